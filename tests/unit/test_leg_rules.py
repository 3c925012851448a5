"""Whether a leg can be played, and whether its end is that of a synchronized group."""

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
from arena.records.checkpoint import StatePlace
from arena.records.folder import RunFolder
from arena.roles.protocol import Done, Ready
from arena.roles.root.legs import boundary_at, check_playable, check_synchronized, leg_from, parts
from arena.roles.run import Leg, Run

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


def plan_of(**changes: Any) -> Plan:
    return make_plan(parse_config({**DATA, **changes}, source="test"))


def run_of(**changes: Any) -> Run:
    return Run(plan_of(**changes), Path("run"), source="test.yaml")


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


@pytest.mark.parametrize(("saved", "newest"), [((80, 100), 80), ((60, 70), 70), ((None, 90), 90)])
def test_boundary_of_an_early_end_has_the_newest_checkpoint(saved: tuple[int | None, ...], newest: int) -> None:
    plan = plan_of(matches=[{"env": "game", "seats": ["blue", "blue"]}])
    done = {role: Done(role, 80, saved=tick) for role, tick in zip((BLUE, RED), saved, strict=True)}
    found = boundary_at(80, plan, done, episodes={}, updates={}, seconds={}, idle={}, journals={})
    assert found.checkpoints == {"blue": newest}


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


def test_states_of_a_planned_end_are_not_those_of_an_early_end(tmp_path: Path) -> None:
    plan, folder = plan_of(), RunFolder(tmp_path)
    places = [StatePlace("x", tick, 0, 9) for tick in (100, 80)]
    done = {role: Done(role, 80, saved=80, worker_state=place) for role, place in zip((BLUE, RED), places, strict=True)}
    boundary = boundary_at(80, plan, done, episodes={}, updates={}, seconds={}, idle={}, journals={})
    assert leg_from(boundary, plan, Leg(), folder, done).private_states == {(0, 1): places[1]}


def test_each_role_gets_its_own_state_only() -> None:
    places = {worker: StatePlace("x", 0, *worker) for worker in ((0, 0), (0, 1), (1, 0))}
    roles = [ENVIRONMENT, BLUE, RED, Role(RoleKind.WORKER, 2, 0)]
    found = [part.private_states for part in parts(Leg(private_states=places), roles) if part is not None]
    assert found == [{}, {(0, 0): places[0, 0]}, {(0, 1): places[0, 1]}, {}]


def test_each_role_gets_the_episodes_of_its_own_match() -> None:
    leg = Leg(start=100, episodes={(0, 0): 3, (1, 0): 5, (0, 2): 4}, updates={"blue": 7})
    roles = [ENVIRONMENT, RED, Role(RoleKind.ENVIRONMENT, 1), Role(RoleKind.ENVIRONMENT, 2)]
    first, same, second, empty = (part for part in parts(leg, roles) if part is not None)
    assert first == same == Leg(start=100, episodes={(0, 0): 3, (0, 2): 4}, updates={"blue": 7})
    assert second.episodes == {(1, 0): 5} and empty.episodes == {}
    assert list(parts(None, roles)) == [None] * 4
