"""The end of a leg: the boundary, the checkpoints that belong to it, and how the run continues."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.plan import Plan, Role, RoleKind
from arena.records.folder import RunFolder
from arena.roles.protocol import Done
from arena.roles.root.leg_end import (
    IdlePolicy,
    NextStep,
    boundary_at,
    check_synchronized,
    idle_policies,
    leg_from,
    next_boundary,
    next_step,
    seats_of,
)
from arena.roles.run import Leg

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


@pytest.mark.parametrize(("start", "end"), [(0, 100), (99, 100), (100, 200), (200, 250)])
def test_next_boundary_is_the_next_multiple_or_the_last_tick(start: int, end: int) -> None:
    assert next_boundary(plan_of(), start) == end


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
    found = next_step(plan_of(**changes), leg, stopping=stopping)
    assert found == NextStep(**{step: tick if step == "stopped_at" else leg})


def test_boundary_holds_the_content_of_the_done_messages() -> None:
    messages = (Done(RED, 100, returned=True), Done(ENVIRONMENT, 100, episodes=(4, 0, 7)), Done(BLUE, 100, saved=100))
    idle = {"rests": IdlePolicy(50)}
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


TWICE = [{"env": "game", "seats": ["blue", "red"], "copies": 2}]


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


def test_idle_policies_keep_or_copy_a_checkpoint() -> None:
    def kept(name: str, tick: int) -> Path:
        return FOLDER.checkpoints_path(name) / f"{tick:012d}.ckpt"

    def found(path: Path) -> dict[str, IdlePolicy]:
        return idle_policies(200, plan_of(), Leg(restore={"rests": path}), FOLDER)

    assert found(kept("rests", 100)) == {"rests": IdlePolicy(100)}
    assert found(kept("blue", 100)) == {"rests": IdlePolicy(200, kept("blue", 100))}
    assert found(Path("other/checkpoints/blue/000000000100.ckpt")) == {}, "a checkpoint of another run is left out"
    assert idle_policies(200, plan_of(), Leg(restore={"blue": kept("blue", 100)}), FOLDER) == {}, "blue plays"


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
