"""The results of a run are the same for every number of processes, after kill -9, and after a process failure."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from run_cli import ARENA, arena, finish, left_behind, ranks_in, start, wait_for, write
from slow_results import json_lines, without_clock

PPO = {"algorithm": "ppo", "options": {"n_steps": 32, "n_epochs": 2, "minibatch_size": 64, "hidden_sizes": [16]}}
DUEL: dict[str, Any] = {
    "name": "duel",
    "seed": 4,
    "ticks": 1500,
    "checkpoint_every": 500,
    "results": {"every": 100, "smoothing": 7},
    "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 60}}},
    "policies": {"blue": PPO, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 4, "copies": 2}],
}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def whole(cwd: Path) -> list[dict[str, Any]]:
    """The results of the run in one process."""
    ended = arena(cwd, "train", write(cwd, DUEL), "--run-dir", "whole", "--ranks", "1")
    assert ended.code == 0, ended.err
    found = without_clock(cwd / "whole")
    assert [line["ticks"] for line in found] == list(range(100, 1501, 100))
    return found


def test_results_do_not_depend_on_processes_nor_on_a_kill(tmp_path: Path) -> None:
    known = whole(tmp_path)
    ended = arena(tmp_path, "train", "config.yaml", "--run-dir", "two", "--ranks", "2")
    assert ended.code == 0, ended.err
    assert without_clock(tmp_path / "two") == known

    process = start([*ARENA, "train", "config.yaml", "--run-dir", "killed", "--ranks", "3"], tmp_path)
    run = tmp_path / "killed"
    wait_for(lambda: len(json_lines_so_far(run)) > 5 or process.poll() is not None)
    assert len(json_lines_so_far(run)) < 15, "results are written while the run goes on"
    for pid in [process.pid, *ranks_in(tmp_path).values()]:
        os.kill(pid, signal.SIGKILL)
    finish(process)
    ended = arena(tmp_path, "train", "config.yaml", "--run-dir", "killed", "--resume", "--ranks", "3")
    assert ended.code == 0, ended.err
    assert without_clock(run) == known
    assert (run / "progress.csv").read_text().count("training_iteration") == 1


def json_lines_so_far(run: Path) -> list[dict[str, Any]]:
    return list(JournalReader(run / "result.json")) if (run / "result.json").exists() else []


@pytest.mark.long
def test_results_are_the_same_after_a_process_failure(tmp_path: Path) -> None:
    known = whole(tmp_path)
    process = start([*ARENA, "train", "config.yaml", "--run-dir", "run"], tmp_path)
    run = tmp_path / "run"
    wait_for(lambda: len(json_lines_so_far(run)) > 2 or process.poll() is not None)
    os.kill(ranks_in(tmp_path)[0], signal.SIGKILL)  # the root: another process goes on with its files
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert [line["kind"] for line in json_lines(run / "faults.jsonl")] == ["process"]
    assert without_clock(run) == known
