"""Real processes that fail: exit 1 soon, one message with one traceback at most, no process left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.records import checkpoint
from faulty_workers import name_of
from run_cli import ARENA, TESTS, Ended, arena, by_hand, episodes, finish, left_behind, start, wait_for, write

SOON = 100.0  # seconds, most of them for the start on a busy machine


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def run_of(*, blue: Any = None, env: Any = None, ticks: int = 60, **changes: Any) -> dict[str, Any]:
    """Two copies of a match of one seat, in legs of 20 ticks."""
    return {
        "name": "failing",
        "seed": 5,
        "ticks": ticks,
        "checkpoint_every": 20,
        "restarts": 0,
        "envs": {"game": env or {"make": "games:Countdown"}},
        "policies": {"blue": blue or {"algorithm": "faulty_workers:FailsAt"}},
        "matches": [{"env": "game", "seats": ["blue"], "copies": 2, "lanes": 2}],
        **changes,
    }


def ending_of(tmp_path: Path, data: Any) -> Ended:
    return arena(tmp_path, "train", write(tmp_path, data), "--run-dir", "run", timeout=SOON)


def check_told_once(ended: Ended, words: str, who: str) -> None:
    assert ended.code == 1, ended.err
    assert ended.err.count("Traceback") == 1, ended.err
    assert ended.err.count(words) == 1, ended.err
    assert who in ended.err
    assert "MPI_ABORT" not in ended.err


@pytest.mark.parametrize("where", ["init", "step", "first checkpoint", "checkpoint", "load"])
def test_failing_algorithm_is_reported_once(where: str, tmp_path: Path) -> None:
    ended = ending_of(tmp_path, run_of(blue={"algorithm": f"faulty_workers:{name_of(where)}"}))
    check_told_once(ended, f"ZeroDivisionError: fails at {where}", "worker of policy 'blue' in seat 0 of match")


def test_algorithm_that_exits_its_process_ends_the_run(tmp_path: Path) -> None:
    ended = ending_of(tmp_path, run_of(blue={"algorithm": "faulty_workers:Ends", "options": {"how": "exit"}}))
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1, ended.err
    assert "SystemExit: 5" in ended.err


@pytest.mark.parametrize("how", [pytest.param("_exit", marks=pytest.mark.long), "_exit 0", "segv"])
def test_silently_ended_process_ends_the_run(how: str, tmp_path: Path) -> None:
    ended = ending_of(tmp_path, run_of(blue={"algorithm": "faulty_workers:Ends", "options": {"how": how}}))
    assert ended.code == 1, ended
    assert "Traceback" not in ended.err, ended.err
    assert " died; what was played is in the run folder" in ended.err
    assert "arena: the run has ended: rank" in ended.err


@pytest.mark.parametrize(
    ("fault", "words"),
    [("raise", "RuntimeError: the game cannot be stepped"), ("exit", "SystemExit: 3")],
)
def test_failing_game_is_reported_once(fault: str, words: str, tmp_path: Path) -> None:
    env = {"make": "faulty_games:Faulty", "kwargs": {"fault": fault}}
    ended = ending_of(tmp_path, run_of(env=env))
    assert ended.code == 1, ended.err
    assert ended.err.count("Traceback") == 1, ended.err
    assert words in ended.err
    assert "environment of match" in ended.err


def test_killed_simulator_is_restarted_and_reported(tmp_path: Path) -> None:
    env = {"make": "faulty_games:External", "kwargs": {"dies_at": 33}}
    ended = ending_of(tmp_path, run_of(env=env, on_env_error="restart", checkpoint_every=60))
    assert ended.code == 0, ended.err
    assert "games that failed were made again 2 times, 4 unfinished episodes dropped: see faults.jsonl" in ended.out
    faults = [json.loads(line) for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    assert sorted((fault["match"], fault["tick"]) for fault in faults) == [(0, 33), (1, 33)]
    assert "BrokenPipeError" in (tmp_path / "run" / "logs" / "rank-0000.log").read_text()


def test_a_simulator_does_not_outlive_the_run_that_fails_with_it(tmp_path: Path) -> None:
    ended = ending_of(tmp_path, run_of(env={"make": "faulty_games:External", "kwargs": {"dies_at": 7}}))
    assert ended.code == 1, ended.err
    assert ended.err.count("Traceback") == 1, ended.err


def test_full_disk_of_the_root_ends_the_run_with_a_message(tmp_path: Path) -> None:
    program = [sys.executable, str(TESTS / "faulty_root.py")]
    config = write(tmp_path, run_of(ticks=10**6))
    ended = by_hand(tmp_path, 5, "train", config, "--run-dir", "run", program=program, timeout=SOON, FLUSHES="9")
    check_sentence(ended, " cannot be written: No space left on device")
    assert checkpoint.load(tmp_path / "run" / "checkpoints" / "blue").ticks > 0


def test_full_disk_in_one_process_ends_the_run_and_resume_works(tmp_path: Path) -> None:
    config = write(tmp_path, run_of(ticks=2000, blue={"algorithm": "workers:Counts"}))
    command = [*ARENA, "train", config, "--run-dir", "run", "--ranks", "1"]
    full = finish(start(["bash", "-c", f"ulimit -f 16; exec {' '.join(command)}"], tmp_path), timeout=SOON)
    check_sentence(full, "episodes.jsonl cannot be written: File too large")
    again = finish(start([*command, "--resume"], tmp_path), timeout=SOON)
    assert again.code == 0, again.err
    assert episodes(tmp_path / "run")[-1]


def test_full_disk_of_a_worker_ends_the_run_with_a_message(tmp_path: Path) -> None:
    data = run_of(ticks=10**6, checkpoint_every=500, blue={"algorithm": "faulty_workers:GrowingStateOnSmallDisk"})
    ended = ending_of(tmp_path, data)
    check_sentence(ended, ".ckpt cannot be written: File too large")
    assert checkpoint.load(tmp_path / "run" / "checkpoints" / "blue").ticks > 0


def test_deleted_run_folder_ends_the_run_and_stays_deleted(tmp_path: Path) -> None:
    config = write(tmp_path, run_of(ticks=10**9, checkpoint_every=10**8))
    process = start([*ARENA, "train", config, "--run-dir", "run"], tmp_path)
    journal = tmp_path / "run" / "episodes.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    shutil.rmtree(tmp_path / "run")
    check_sentence(finish(process, timeout=SOON), "is not there any more")
    assert not (tmp_path / "run").exists()


def check_sentence(ended: Ended, words: str) -> None:
    assert ended.code == 1, ended.err
    assert words in ended.err, ended.err
    assert "Traceback" not in ended.err, ended.err
    assert ended.err.count("arena: the run has ended") == 1, ended.err


def test_unwritable_folder_is_refused(tmp_path: Path) -> None:
    ended = arena(tmp_path, "train", write(tmp_path, run_of()), "--run-dir", "/proc/run", timeout=SOON)
    assert ended.code == 2, ended.err
    assert "the run folder cannot be made" in ended.err
    assert "Traceback" not in ended.err


def test_process_ends_although_the_abort_of_mpi_returns(tmp_path: Path) -> None:
    program = """
from types import SimpleNamespace
from arena.transport import mpi
mpi.MPI = SimpleNamespace(COMM_WORLD=SimpleNamespace(Abort=lambda status: None))
mpi.World.abort(None, 3)
print("it goes on")
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, ""), ended.stderr
