"""The probe plays the real game, and predicts by the model that it names."""

from __future__ import annotations

from typing import Any

import pytest

from arena.cli import probe as probing
from arena.cli.probe import Memory, Probe, predict, probe, probe_text
from arena.config import parse_config
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.plan import Plan

MEMORY = Memory(arena=20.0, game=4.0, further_game=1.0, algorithms=100.0)


def plan_of(ranks: int | None, *, copies: int = 4, make: str = "touchdown", **kwargs: Any) -> Plan:
    data = {
        "name": "test",
        "ticks": 10**9,
        "envs": {"game": {"make": make, "kwargs": kwargs}},
        "policies": {"blue": {"algorithm": "ppo"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "copies": copies}],
    }
    return make_plan(parse_config(data, source="test"), ranks=ranks)


def found(plan: Plan) -> Probe:
    return Probe(plan.matches[0], 100, game=0.001, step=0.002, memory=MEMORY)


@pytest.mark.parametrize(
    ("ranks", "cores", "milliseconds"),
    [
        (1, 8, 4 * 5),  # one process does everything
        (4, 8, 5),  # each a match
        (4, 2, 4 * 5 / 2),  # but two cores
        (None, 64, 1 + 2),  # the game, then both workers at once
    ],
)
def test_speed_is_bounded_by_busiest_process_cores_or_game(ranks: int | None, cores: int, milliseconds: float) -> None:
    plan = plan_of(ranks)
    assert predict(plan, found(plan), cores=cores).ticks_per_second == pytest.approx(4 / (milliseconds / 1000))


def test_predicted_memory_is_the_sum_of_hosted_roles() -> None:
    assert predict(plan_of(1), found(plan_of(1)), cores=2).memory == (20 + 4 + 3 * 1 + 100,)
    apart = plan_of(None, copies=1)  # root, environment, learner, random worker
    assert predict(apart, found(apart), cores=2).memory == (20, 24, 120, 20)


@pytest.mark.slow
def test_the_probe_plays_the_first_match_without_torch_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_SECONDS", 0.05)
    plan = plan_of(3, max_steps=20)
    result = probe(plan)
    assert result.match == plan.matches[0]
    assert result.ticks >= 50
    assert 0 < result.game < 0.1
    assert 0 < result.step < 0.1
    assert 5 < result.memory.arena < 100
    assert result.memory.algorithms > 30, "the learner's torch"
    text = probe_text(plan, result)
    assert "predicted for 3 processes" in text
    assert "the model: " in text


def test_failing_game_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="the first match cannot be played: environment of match 0"):
        probe(make_plan(parse_config(FAILING, source="test")))


FAILING = {
    "name": "test",
    "ticks": 10,
    "envs": {"game": {"make": "games:Raises", "kwargs": {"where": "step"}}},
    "policies": {"red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["red"]}],
}
