"""What is refused when everybody is ready: what needs states that nobody can save, and what can stand still one day."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.config import parse_config
from arena.errors import ConfigError
from arena.plan.plan import RoleKind, make_plan
from arena.roles.protocol import Ready
from arena.roles.root.admission import is_resumable, refuse_unplayable, schedules_of
from arena.run.run import Run

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
MEET_AGAIN = {
    "rounds": 3,
    "matches": [*DATA["matches"], {"swiss": {"env": "game", "policies": ["blue", "old", "red"]}}],  # type: ignore[misc]
}


def run_of(*, allow_unproved: bool = False, **changes: Any) -> Run:
    data = {**DATA, **changes}
    plan = make_plan(parse_config(data, source="test"))
    return Run(plan, Path("run"), source="test.yaml", config=yaml.safe_dump(data), allow_unproved=allow_unproved)


def everybody(run: Run, *, episodic: Sequence[str] = (), fragile: Sequence[str] = ()) -> list[Ready]:
    """What all say who are ready: the policies that meet at ends of episodes, and those that cannot be saved."""
    ready = [Ready(role) for role in run.roles if role.kind is RoleKind.ENVIRONMENT]
    for role in (role for role in run.roles if role.kind is RoleKind.WORKER):
        name = run.plan.seat(role).policy
        ready.append(Ready(role, name not in fragile, "episodes" if name in episodic else "ticks"))
    return ready


def test_those_who_learn_have_said_when_they_meet() -> None:
    run = run_of(matches=[{"env": "game", "seats": ["blue", "old"]}])
    assert schedules_of(run.plan, everybody(run, episodic=["blue", "old"])) == {"blue": "episodes"}


@pytest.mark.parametrize(("changes", "refused"), [({}, False), ({"rounds": 2}, True), ({"rounds": 2, **TWICE}, True)])
def test_who_cannot_be_saved_plays_one_round_and_no_more(changes: dict[str, Any], refused: bool) -> None:
    run = run_of(**changes)
    ready = everybody(run, fragile=["red"])
    assert not is_resumable(ready)
    with pytest.raises(ConfigError, match=r"test\.yaml: rounds: .* 'red'") if refused else nullcontext():
        refuse_unplayable(run, ready, {}, begins=True)


@pytest.mark.parametrize("begins", [True, False])
def test_a_round_that_can_deadlock_is_refused_whenever_it_is_played(begins: bool) -> None:
    run, allowed = run_of(**TWICE), run_of(**TWICE, allow_unproved=True)
    with pytest.raises(ConfigError, match=r"test\.yaml: the run can deadlock: the workers of blue, red"):
        refuse_unplayable(run, everybody(run, episodic=["blue", "red"]), {}, begins=begins)
    refuse_unplayable(run, everybody(run), {}, begins=begins)
    refuse_unplayable(allowed, everybody(allowed, episodic=["blue", "red"]), {}, begins=begins)


def test_a_later_round_that_can_deadlock_is_refused_when_the_run_begins() -> None:
    run, allowed = run_of(**MEET_AGAIN), run_of(**MEET_AGAIN, allow_unproved=True)
    known = {"blue": "episodes", "red": "ticks"}
    with pytest.raises(ConfigError, match=r"test\.yaml: matches\[1\]\.swiss: a later round can deadlock"):
        refuse_unplayable(run, everybody(run), known, begins=True)
    refuse_unplayable(run, everybody(run), known, begins=False)
    refuse_unplayable(run, everybody(run), dict.fromkeys(known, "ticks"), begins=True)
    refuse_unplayable(allowed, everybody(allowed), known, begins=True)
