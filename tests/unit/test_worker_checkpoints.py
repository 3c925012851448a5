"""The own states of the workers of a process, which go into one file at the end of a leg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.plan.plan import Role, RoleKind
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.roles.worker.checkpoints import WorkerCheckpoints
from worker_states import state_of

DATA: dict[str, Any] = {
    "name": "test",
    "ticks": 100,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "ppo"}, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"], "copies": 3}],
}
SEATS = [(match, 0) for match in range(3)]


@pytest.fixture
def workers(tmp_path: Path) -> list[WorkerCheckpoints]:
    """Those of the policy blue in a run of one process."""
    run, memory = Run(make_plan(parse_config(DATA, source="test"), ranks=1), tmp_path), RunState()
    run.folder.checkpoints.mkdir()
    return [
        WorkerCheckpoints(
            run, run.plan.policies["blue"], Role(RoleKind.WORKER, *seat), memory, lambda: 1, lambda: 1, lambda: 1
        )
        for seat in SEATS
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_last_worker_of_a_process_completes_the_file(workers: list[WorkerCheckpoints], tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints/blue"
    for boundary in (20, 40):
        before = names(folder) if folder.exists() else []
        for worker, seat in zip(workers, SEATS, strict=True):
            assert [name for name in (names(folder) if folder.exists() else []) if name[0] != "."] == before
            worker.save_worker_state({"seat": list(seat)}, boundary=boundary)
        assert names(folder) == [*before, f"{boundary:012d}.workers-0.ckpt"]
        assert [state_of(folder, boundary, seat) for seat in SEATS] == [{"seat": list(seat)} for seat in SEATS]


def test_workers_without_a_state_leave_no_file(workers: list[WorkerCheckpoints], tmp_path: Path) -> None:
    for worker in workers:
        worker.save_worker_state({}, boundary=20)
    assert names(tmp_path / "checkpoints") == []
    workers[0].save_worker_state({}, boundary=40)
    workers[1].save_worker_state({"mine": 1}, boundary=40)
    workers[2].save_worker_state({}, boundary=40)
    assert [worker.worker_state is None for worker in workers] == [True, False, True]
    assert [state_of(tmp_path / "checkpoints/blue", 40, seat) for seat in SEATS] == [None, {"mine": 1}, None]


def test_worker_that_left_before_an_early_end_has_another_file(
    workers: list[WorkerCheckpoints], tmp_path: Path
) -> None:
    for worker, boundary in zip(workers, (100, 80, 80), strict=True):
        worker.save_worker_state({"at": boundary}, boundary=boundary)
    folder = tmp_path / "checkpoints/blue"
    assert names(folder) == [f"{boundary:012d}.workers-0.ckpt" for boundary in (80, 100)]
    assert [state_of(folder, 80, seat) for seat in SEATS] == [None, {"at": 80}, {"at": 80}]
    assert state_of(folder, 100, SEATS[0]) == {"at": 100}
