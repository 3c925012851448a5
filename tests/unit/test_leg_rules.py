"""Whether a leg can be played; at its end the boundary, its checkpoints, and how the run continues."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.plan import Plan, Role, RoleKind
from arena.records.folder import RunFolder
from arena.roles.protocol import Done, Ready
from arena.roles.root.legs import (
    NextStep,
    boundary_at,
    check_playable,
    check_synchronized,
    idle_checkpoints,
    leg_from,
    next_step,
    planned_end,
    seats_of,
)
from arena.roles.run import Leg, Run

FOLDER = RunFolder(Path("run"))
ENVIRONMENT = Role(RoleKind.ENVIRONMENT, 0)
BLUE, RED = (Role(RoleKind.WORKER, 0, seat) for seat in (0, 1))
DATA = {
    "name": "test",
    "ticks": 250,
    "checkpoint_every": 100,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {
        "blue": {"algorithm": "ppo"},
        "red": {"algorithm": "ppo", "frozen": True},
        "rests": {"algorithm": "ppo"},
    },
    "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 3}],
}


def plan_of(*, number: int = 0, **changes: Any) -> Plan:
    return make_plan(parse_config({**DATA, **changes}, source="test"), number=number)


def boundary(tick: int = 100, *messages: Done, plan: Plan | None = None, **given: Any) -> Any:
    empty: dict[str, Any] = {"updates": {}, "seconds": {}, "idle": {}, "journals": {}}
    return boundary_at(tick, plan or plan_of(), {done.role: done for done in messages}, **{**empty, **given})


def run_of(*, episodes: int | None = None, **changes: Any) -> Run:
    return Run(plan_of(**changes), Path("run"), source="test.yaml", episodes=episodes)


def all_ready(run: Run, *, episodic: Collection[str] = (), fragile: Collection[str] = ()) -> list[Ready]:
    """Ready messages of all roles; `episodic` policies synchronize at the ends of episodes, `fragile` have no state."""
    ready = [Ready(role) for role in run.roles if role.kind is RoleKind.ENVIRONMENT]
    for role in (role for role in run.roles if role.kind is RoleKind.WORKER):
        name = run.plan.seat(role).policy
        ready.append(Ready(role, name not in fragile, "episodes" if name in episodic else "ticks"))
    return ready


LEARNERS = {"blue": {"algorithm": "ppo"}, "red": {"algorithm": "ppo"}}
TWICE = [{"env": "game", "seats": ["blue", "red"], "copies": 2}]


@pytest.mark.parametrize(
    ("changes", "refused"), [({}, False), ({"rounds": 2}, True), ({"rounds": 2, "matches": TWICE}, True)]
)
def test_more_rounds_without_a_state_are_rejected(changes: dict[str, Any], refused: bool) -> None:
    run = run_of(**changes)
    with pytest.raises(ConfigError, match=r"test\.yaml: rounds: .* 'blue'") if refused else nullcontext():
        check_playable(run, all_ready(run, fragile=["blue"]))


def test_round_that_can_deadlock_is_rejected() -> None:
    run = run_of(policies=LEARNERS, matches=TWICE)
    with pytest.raises(ConfigError, match=r"test\.yaml: the run can deadlock: the workers of blue, red"):
        check_playable(run, all_ready(run, episodic=["blue", "red"]))
    check_playable(run, all_ready(run))
    frozen = run_of(matches=TWICE)
    check_playable(frozen, all_ready(frozen, episodic=["blue", "red"]))


@pytest.mark.parametrize(("start", "end"), [(0, 100), (99, 100), (100, 200), (200, 250)])
def test_planned_end_is_the_next_multiple_or_the_last_tick(start: int, end: int) -> None:
    assert planned_end(run_of(), start, resumable=True) == end
    assert (
        planned_end(run_of(), start, resumable=False) == planned_end(run_of(episodes=3), start, resumable=True) == 250
    )


EVERY_100 = {"evaluation": {"every": 100}}


@pytest.mark.parametrize(
    ("changes", "tick", "stopping", "step"),
    [
        ({}, 100, False, "leg"),
        ({}, 100, True, "stopped_at"),
        ({}, 250, False, "following"),
        ({}, 250, True, "following"),
        (EVERY_100, 100, False, "following"),
        (EVERY_100, 250, False, "following"),
        ({"rounds": 2}, 100, False, "leg"),
        ({"rounds": 2}, 250, False, "following"),
        ({"rounds": 2}, 250, True, "stopped_at"),
        ({"rounds": 2, "number": 1}, 500, True, "following"),
    ],
)
def test_next_step_is_a_leg_or_new_roles_or_a_stop(
    changes: dict[str, Any], tick: int, stopping: bool, step: str
) -> None:
    leg = Leg(start=tick)
    found = next_step(run_of(**changes), leg, stopping=stopping)
    assert found == NextStep(**{step: tick if step == "stopped_at" else leg})


def test_next_step_after_games_is_the_next_round() -> None:
    leg, run = Leg(start=70), run_of(episodes=5, rounds=2)
    assert next_step(run, leg, stopping=False) == NextStep(following=leg)
    assert next_step(run, leg, stopping=True) == NextStep(stopped_at=70)


def test_boundary_holds_the_content_of_the_done_messages() -> None:
    messages = (Done(RED, 100, returned=True), Done(ENVIRONMENT, 100, episodes=(4, 0, 7)), Done(BLUE, 100, saved=100))
    idle = {"rests": 50}
    found = boundary(100, *messages, updates={"blue": 3}, idle=idle, journals={"episodes.jsonl": 9})
    assert (found.tick, found.updates, found.journals) == (100, {"blue": 3}, {"episodes.jsonl": 9})
    assert found.episodes == [(0, 0, 4), (0, 2, 7)]
    assert found.left == [(0, 1)]
    assert found.seats == seats_of(plan_of())
    assert found.checkpoints == {"rests": 50, "blue": 100}


@pytest.mark.parametrize(("saved", "newest"), [((80, 100), 80), ((60, 70), 70), ((None, 90), 90)])
def test_boundary_of_an_early_end_has_the_newest_checkpoint(saved: tuple[int | None, ...], newest: int) -> None:
    plan = plan_of(matches=[{"env": "game", "seats": ["blue", "blue"]}])
    messages = [Done(role, 80, saved=tick) for role, tick in zip((BLUE, RED), saved, strict=True)]
    assert boundary(80, *messages, plan=plan).checkpoints == {"blue": newest}


@pytest.mark.parametrize(
    ("states", "left", "refused"),
    [
        ((b"one", b"other"), (), True),
        ((b"one", b"one"), (), False),
        ((b"one", None), (), False),  # the second worker has synchronized, after the first had left
        ((None, None), (), False),
        ((b"one", b"other"), ((1, 0),), False),  # the second worker has left and has learned nothing new
    ],
)
def test_check_synchronized_rejects_diverged_workers(
    states: tuple[bytes | None, ...], left: tuple[tuple[int, int], ...], refused: bool
) -> None:
    plan = plan_of(matches=TWICE)
    workers = [Role(RoleKind.WORKER, match, seat) for match in range(2) for seat in range(2)]
    done = {role: Done(role, 100, alone=states[role.match or 0] if role.seat == 0 else None) for role in workers}
    with pytest.raises(ConfigError) if refused else nullcontext() as caught:
        check_synchronized(100, plan, done, left)
    if refused:
        assert caught is not None and caught.value.path == "policies.blue"


def test_idle_policies_have_a_checkpoint_of_this_run() -> None:
    other = Path("other/checkpoints/blue/000000000100.ckpt")
    for path, found in ((FOLDER.checkpoints_path("blue") / "000000000100.ckpt", True), (other, False)):
        assert idle_checkpoints(plan_of(), Leg(restore={"rests": path}), FOLDER) == ({"rests": path} if found else {})
        assert idle_checkpoints(plan_of(), Leg(restore={"blue": path}), FOLDER) == {}, "blue plays"


def test_next_leg_has_the_checkpoints_of_the_boundary() -> None:
    last = Leg(restore={"blue": Path("given.ckpt"), "red": Path("red.ckpt")})
    leg = leg_from(boundary(100, Done(BLUE, 100, saved=100)), plan_of(), last, FOLDER)
    assert leg.start == 100
    assert leg.restore == {"blue": FOLDER.checkpoints_path("blue") / "000000000100.ckpt", "red": Path("red.ckpt")}


def test_next_leg_is_unchanged_by_later_updates() -> None:
    updates, seconds = {"blue": 3}, {"blue": 1.0}
    leg = leg_from(boundary(updates=updates, seconds=seconds), plan_of(), Leg(), FOLDER)
    updates["blue"], seconds["blue"] = 4, 2.0
    assert (leg.updates, leg.seconds) == ({"blue": 3}, {"blue": 1.0})
