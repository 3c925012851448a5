"""The rounds of a league over real processes: the same on any number, through kills, deaths and `--resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from run_cli import alone, differing, finish, kill_all, newest_boundary, started, train, trained, wait_for

ROUNDS, TICKS = 4, 300
LEARNER = {"algorithm": "learners:LearnerWithActor"}  # imports no torch


def league(**keys: Any) -> dict[str, Any]:
    """Rounds of two learners and a random policy in touchdown, with two boundaries in each."""
    return {
        "name": "league",
        "seed": 4,
        "ticks": TICKS,
        "rounds": ROUNDS,
        "checkpoint_every": TICKS // 2,
        "envs": {"game": {"make": "games:SlowTouchdown", "kwargs": {"max_steps": 20}}},
        "policies": {"blue": LEARNER, "red": LEARNER, "rock": {"algorithm": "random"}},
        "league": {"snapshots": {"keep": 2}},
        **keys,
    }


def duel(first: str, second: str) -> dict[str, Any]:
    return {"env": "game", "seats": [first, second], "lanes": 2}


SELVES = {"env": "game", "policies": ["blue", "red"], "rule": {"past_selves": {"self": 0.0}}, "lanes": 2, "copies": 1}
MEETS = {"env": "game", "policies": ["blue", "red"], "against": ["rock"], "rule": "own_leagues:Above", "copies": 2}
PAIRS = {"env": "game", "policies": ["blue", "red", "rock"], "generator": "own_leagues:Ladder", "lanes": 2}
HUNT = {
    **{"env": "game", "policies": ["wolf"], "versus": ["hare"], "sides": [3, 1], "lanes": 2, "copies": 3},
    "rule": {"fictitious": {"self": 0.3}},
}
OPTIONS = {"n_steps": 50, "minibatch_size": 50, "hidden_sizes": [8]}
FORMS: dict[str, dict[str, Any]] = {
    "own rule and generator": {"matches": [{"matchmaking": MEETS}, {"pairings": PAIRS}]},
    "copies of the best": {
        "matches": [{"matchmaking": SELVES}, duel("blue", "red")],
        "league": {"snapshots": {"keep": 2}, "evolution": {"every": 2, "share": 0.5}},
        "policies": {"blue": LEARNER, "red": LEARNER},
    },
    "listed rounds": {
        "rounds": [[duel("blue", "rock")], [duel("blue", "red"), duel("red", "blue")], [duel("red", "rock")]],
        "league": {},
    },
    "proposed matches": {
        "callbacks": [{"class": "own_leagues:Proposes"}],
        "league": {},
        "matches": [{"round_robin": {"env": "game", "policies": ["blue", "red", "rock"], "lanes": 2}}],
    },
    "predators and prey": {
        "envs": {"game": {"make": "tag:simple_tag", "kwargs": {"max_cycles": 20}, "outcome": "info"}},
        "policies": {name: {"algorithm": "ppo", "options": OPTIONS} for name in ("wolf", "hare")},
        "matches": [{"matchmaking": HUNT}],
        "league": {"snapshots": {"gate": {"elo": 400}}},
    },
}


def rounds_of(run: Path) -> list[dict[str, Any]]:
    return list(JournalReader(run / "rounds.jsonl"))


@pytest.mark.parametrize(
    "form",
    [pytest.param(name, marks=[pytest.mark.long] * (name != "own rule and generator")) for name in FORMS],
)
def test_killed_and_resumed_league_equals_an_undisturbed_one(form: str, tmp_path: Path) -> None:
    whole, run = alone(tmp_path, league(**FORMS[form])), tmp_path / "run"
    for reached, more in ((TICKS, []), (TICKS + TICKS // 2, ["--resume"])):  # a round's end, the middle of one
        process = started(tmp_path, league(**FORMS[form]), *more, ranks=2, TICK_SECONDS="0.002")
        wait_for(lambda reached=reached: newest_boundary(run) >= reached)
        assert process.poll() is None, "it is still playing"
        assert kill_all(tmp_path) >= 3
        assert finish(process).code != 0
    trained(tmp_path, "config.yaml", "--resume", ranks=3)
    assert len(rounds_of(run)) == (3 if form == "listed rounds" else ROUNDS)
    assert differing(run, whole) == []


def test_league_goes_on_as_it_was_after_a_death_between_two_rounds(tmp_path: Path) -> None:
    """The root dies when it has planned the next round."""
    form = FORMS["copies of the best"]
    run = trained(tmp_path, league(**form, imports=["killed_at_plan"]), ranks=3)
    assert [line["ranks"] for line in JournalReader(run / "faults.jsonl")] == [[0]]
    assert [line["round"] for line in rounds_of(run)] == list(range(ROUNDS))
    assert differing(run, alone(tmp_path, league(**form))) == []


def test_rounds_of_another_length_are_refused_and_more_rounds_are_not(tmp_path: Path) -> None:
    keys = {**FORMS["copies of the best"], "ticks": 100, "checkpoint_every": 50}
    run = alone(tmp_path, league(rounds=3, **keys), run="run")
    longer = train(tmp_path, "config.yaml", "--resume", "--ticks", "150", ranks=1)
    assert longer.code == 2
    assert "ticks: a round had 100, has 150" in longer.err
    alone(tmp_path, "config.yaml", "--resume", "--set", "rounds=4", run="run")
    assert differing(run, alone(tmp_path, league(rounds=4, **keys))) == []
