"""External games over MPI: deaths, signals and silence."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from in_process import one_match
from run_cli import finish, ranks_in, started, wait_for

LINE = {"make": "external_games:Line", "kwargs": {"steps": 20}}
SILENT = {"make": "external_games:Silent"}


def config(env: dict[str, Any], **changes: Any) -> dict[str, Any]:
    policies = {"blue": {"algorithm": "learners:VectorLearner"}}
    return one_match(env, policies, ticks=3000, name="live", checkpoint_every=500, **changes)


def updates(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


@pytest.mark.parametrize("rank", [pytest.param(2, marks=pytest.mark.long), 1], ids=["worker", "environment"])
def test_games_continue_after_a_process_failure(rank: int, tmp_path: Path) -> None:
    process = started(tmp_path, config(LINE), ranks=3)
    wait_for(lambda: updates(tmp_path / "run") >= 100)
    os.kill(ranks_in(tmp_path)[rank], signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert "has died" in ended.out
    episodes = list(JournalReader(tmp_path / "run" / "episodes.jsonl"))
    assert len(episodes) > 100
    assert {line["length"] for line in episodes if not line.get("lost")} == {20}
    assert not any(line.get("lost") for line in episodes)
    (*_, last) = JournalReader(tmp_path / "run" / "games.jsonl")
    assert last["begun"] == last["ended"] + last["lost"] + last["held"]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 3])
def test_run_without_games_ends_at_once_when_interrupted(ranks: int, tmp_path: Path) -> None:
    process = started(tmp_path, config(SILENT, watchdog_s=1.0, env_timeout_s=60.0), ranks=ranks)
    wait_for(lambda: (tmp_path / "run" / "external.json").exists())
    time.sleep(5.0)
    assert process.poll() is None, "the watchdog has taken silence for a hang"
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert "--resume goes on from there" in ended.err
