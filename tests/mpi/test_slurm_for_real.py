"""A batch file with real processes in it: signaled, requeued, resumed, done, and nothing lost or played twice."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from in_process import one_match
from run_cli import ARENA, Ended, finish, start, wait_for, write

DUEL: dict[str, Any] = one_match(
    {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}},
    {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    **{"ticks": 10_000, "name": "duel", "checkpoint_every": 500},
)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a stand-in for scontrol, which notes what it is asked."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "scontrol").write_text(f'#!/bin/bash\necho "$@" >> {folder}/asked\n')
    (folder / "scontrol").chmod(0o700)
    return folder


def job(home: Path, programs: Path, restarts: int) -> subprocess.Popen[str]:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return start(["bash", "duel.sbatch"], home, PATH=path, SLURM_JOB_ID="7", SLURM_RESTART_COUNT=str(restarts))


def signaled(home: Path, process: subprocess.Popen[str]) -> Ended:
    """A start whose batch shell is signaled when there are some checkpoints, or some more than before."""
    record = home / "runs" / "duel-7" / "episodes.jsonl"
    size = record.stat().st_size if record.exists() else 0
    wait_for(lambda: record.exists() and record.stat().st_size > size + 4_000)
    os.kill(process.pid, signal.SIGUSR1)
    return finish(process)


def test_requeued_and_resumed_run_plays_every_tick_once(tmp_path: Path, programs: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write(home, DUEL)
    assert finish(start([*ARENA, "slurm", "config.yaml", "--time", "1h"], home)).code == 0
    first = signaled(home, job(home, programs, 0))
    assert first.code == 0, first
    assert (programs / "asked").read_text() == "requeue 7\n", first
    last = finish(job(home, programs, 1))
    assert last.code == 0, last
    assert "goes on at tick" in last.out
    assert (programs / "asked").read_text() == "requeue 7\n", "a run that is done goes into no queue"
    assert not (home / "runs" / "duel-7" / "requeue").exists()
    lines = list(JournalReader(home / "runs" / "duel-7" / "episodes.jsonl"))
    assert [line["episode"] for line in lines] == list(range(len(lines)))
    assert sum(line["length"] for line in lines) == DUEL["ticks"], "every tick was played once"
