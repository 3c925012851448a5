"""External simulators under real mpirun: nothing is left when a process dies or the run is interrupted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from run_cli import ARENA, finish, left_behind, ranks_in, start, wait_for, write

PROGRAMS = str(Path(__file__).parents[1] / "support" / "link_programs.py")
GROUPS = {
    "walker": {"agents": 3, "observations": [[3], [2, 2]], "continuous": 2},
    "chooser": {"agents": 2, "observations": [[2], [1]], "branches": [3, 2]},
}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))
    wait_for(lambda: not list(tmp_path.glob("mpi-policy-arena-*/*")))


def config(folder: Path, kind: str = "plays", **changes: Any) -> dict[str, Any]:
    kwargs = {"command": [sys.executable, PROGRAMS, kind], "groups": GROUPS, "folder": str(folder), "close_s": 1.0}
    return {
        "name": "simulated",
        "ticks": 100000,
        "checkpoint_every": 100,
        "envs": {"world": {"make": "shared_memory", "kwargs": {**kwargs, **changes}}},
        "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "world", "seats": ["blue", "red"], "lanes": 5}],
    }


def boundaries(run: Path) -> int:
    return len(list((run / "boundaries").glob("*.json")))


@pytest.mark.parametrize("rank", [1, 2], ids=["environment", "worker"])
def test_a_repaired_run_goes_on_and_an_interrupt_ends_all_programs(rank: int, tmp_path: Path) -> None:
    command = [*ARENA, "train", write(tmp_path, config(tmp_path)), "--run-dir", "run", "--ranks", "4"]
    process = start(command, tmp_path)
    wait_for(lambda: boundaries(tmp_path / "run") >= 1)
    os.kill(ranks_in(tmp_path)[rank], signal.SIGKILL)
    faults = tmp_path / "run" / "faults.jsonl"
    wait_for(lambda: faults.exists() and faults.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert [line["kind"] for line in JournalReader(faults)] == ["process"]


def test_a_program_that_starts_slowly_is_waited_for(tmp_path: Path) -> None:
    written = {**config(tmp_path, "late"), "ticks": 50, "watchdog_s": 1.0}
    written["envs"]["world"]["kwargs"]["command"].append("4")
    process = start([*ARENA, "train", write(tmp_path, written), "--run-dir", "run", "--ranks", "2"], tmp_path)
    ended = finish(process)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("killed", "was killed by SIGKILL after 5 hand-overs"),
        ("cuts", "found the end of the file at 200"),
        ("closes", "has closed the link after 5 hand-overs"),
    ],
)
def test_a_simulator_that_fails_ends_the_run_with_one_message(kind: str, message: str, tmp_path: Path) -> None:
    written = config(tmp_path, kind)
    if kind == "cuts":
        written["envs"]["world"]["kwargs"]["command"].append("200")
    process = start([*ARENA, "train", write(tmp_path, written), "--run-dir", "run", "--ranks", "2"], tmp_path)
    ended = finish(process)
    assert ended.code == 1
    assert message in ended.err
    assert "Traceback" not in ended.err
