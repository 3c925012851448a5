"""Admission of a leg: policies whose state cannot be saved, and matches that can deadlock, are rejected."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.plan import RoleKind
from arena.roles.protocol import Ready
from arena.roles.root.admission import check_playable, is_resumable, schedules_of
from arena.roles.run import Run

DATA = {
    "name": "test",
    "ticks": 20,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {
        "blue": {"algorithm": "ppo"},
        "red": {"algorithm": "ppo"},
        "old": {"algorithm": "ppo", "frozen": True},
    },
    "matches": [{"env": "game", "seats": ["blue", "red"]}],
}
TWICE = {"matches": [{"env": "game", "seats": ["blue", "red"], "copies": 2}]}


def run_of(**changes: Any) -> Run:
    data = {**DATA, **changes}
    plan = make_plan(parse_config(data, source="test"))
    return Run(plan, Path("run"), source="test.yaml")


def all_ready(run: Run, *, episodic: Sequence[str] = (), fragile: Sequence[str] = ()) -> list[Ready]:
    """Ready messages of all roles.

    Args:
        run: the run.
        episodic: policies whose workers synchronize at the ends of episodes.
        fragile: policies whose state cannot be saved.
    """
    ready = [Ready(role) for role in run.roles if role.kind is RoleKind.ENVIRONMENT]
    for role in (role for role in run.roles if role.kind is RoleKind.WORKER):
        name = run.plan.seat(role).policy
        ready.append(Ready(role, name not in fragile, "episodes" if name in episodic else "ticks"))
    return ready


def test_schedules_of_lists_policies_that_learn() -> None:
    run = run_of(matches=[{"env": "game", "seats": ["blue", "old"]}])
    assert schedules_of(run.plan, all_ready(run, episodic=["blue", "old"])) == {"blue": "episodes"}


@pytest.mark.parametrize(("changes", "refused"), [({}, False), ({"rounds": 2}, True), ({"rounds": 2, **TWICE}, True)])
def test_admission_rejects_more_rounds_without_a_state(changes: dict[str, Any], refused: bool) -> None:
    run = run_of(**changes)
    ready = all_ready(run, fragile=["red"])
    assert not is_resumable(ready)
    with pytest.raises(ConfigError, match=r"test\.yaml: rounds: .* 'red'") if refused else nullcontext():
        check_playable(run, ready)


def test_admission_rejects_a_round_that_can_deadlock() -> None:
    run = run_of(**TWICE)
    with pytest.raises(ConfigError, match=r"test\.yaml: the run can deadlock: the workers of blue, red"):
        check_playable(run, all_ready(run, episodic=["blue", "red"]))
    check_playable(run, all_ready(run))
