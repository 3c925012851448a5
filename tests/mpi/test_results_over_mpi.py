"""The results and replays of a run are the same for every number of processes, after kill -9, and after a death."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from in_process import one_match
from run_cli import alone, differing, finish, kill_all, ranks_in, started, trained, wait_for
from slow_results import json_lines, without_clock


def duel(seconds: float = 0.0) -> dict[str, Any]:
    game = {"make": "games:SlowTouchdown", "kwargs": {"max_steps": 60, "seconds": seconds}}
    policies = {"blue": {"algorithm": "learners:VectorLearner"}, "red": {"algorithm": "random"}}
    recorded = {"record": "replays", "results": {"every": 100, "smoothing": 7}}
    given = {"name": "duel", "seed": 4, "checkpoint_every": 500, "match": {"lanes": 4, "copies": 2}}
    return one_match(game, policies, ticks=1500, **given, **recorded)


def results(run: Path) -> int:
    """How many results a run has written so far."""
    return len(list(JournalReader(run / "result.json"))) if (run / "result.json").exists() else 0


def check(run: Path, whole: Path) -> None:
    assert without_clock(run) == without_clock(whole)
    assert [line["ticks"] for line in without_clock(run)] == list(range(100, 1501, 100))
    assert (run / "progress.csv").read_text().count("training_iteration") == 1
    assert list(run.glob("replays/*/*/*.replay"))
    assert differing(run, whole) == []


def test_results_do_not_depend_on_processes_nor_on_a_kill(tmp_path: Path) -> None:
    whole, run = alone(tmp_path, duel()), tmp_path / "run"
    process = started(tmp_path, duel(seconds=0.002), ranks=3)
    wait_for(lambda: results(run) > 6, process)
    assert results(run) < 15, "results are written while the run goes on"
    kill_all(tmp_path)
    finish(process)
    check(trained(tmp_path, "config.yaml", "--resume", ranks=2), whole)


@pytest.mark.long
def test_results_are_the_same_after_a_process_failure(tmp_path: Path) -> None:
    whole, run = alone(tmp_path, duel()), tmp_path / "run"
    process = started(tmp_path, duel(seconds=0.002))
    wait_for(lambda: results(run) > 2, process)
    os.kill(ranks_in(tmp_path)[0], signal.SIGKILL)  # the root: another process goes on with its files
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert [line["kind"] for line in json_lines(run / "faults.jsonl")] == ["process"]
    check(run, whole)
