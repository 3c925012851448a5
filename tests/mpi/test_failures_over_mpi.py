"""Real processes that fail: exit 1 soon, one message with one traceback at most, no process left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arena.config import load_config
from arena.records import checkpoint
from arena.records.faults import fault_text
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.roles.status import RunStatus, run_status
from faulty_workers import name_of
from in_process import one_match
from run_cli import Ended, train


def run_of(*, blue: Any = None, env: Any = None, ticks: int = 60, **changes: Any) -> dict[str, Any]:
    """Two copies of a match of one seat, in legs of 20 ticks."""
    policies, match = {"blue": blue or {"algorithm": "faulty_workers:FailsAt"}}, {"copies": 2, "lanes": 2}
    given = {"name": "failing", "seed": 5, "checkpoint_every": 20, "restarts": 0}
    return one_match(env or {"make": "games:Countdown"}, policies, ticks=ticks, match=match, **given) | changes


def learner(where: str) -> dict[str, Any]:
    return {"blue": {"algorithm": f"faulty_workers:{name_of(where)}"}}


def game(fault: str) -> dict[str, Any]:
    return {"env": {"make": "faulty_games:Faulty", "kwargs": {"fault": fault}}}


EXITS = {"blue": {"algorithm": "faulty_workers:Ends", "options": {"how": "exit"}}}
WITHOUT_PROGRAM = {"env": {"make": "faulty_games:External", "kwargs": {"dies_at": 7}}}
CALLBACK = {"callbacks": [{"class": "recorders:Fails", "options": {"where": "update", "nth": 1}}]}
WORKER = "worker of policy 'blue' in seat 0 of match"


@pytest.mark.parametrize(
    ("parts", "ranks", "words", "who"),
    [
        (learner("checkpoint"), None, "ZeroDivisionError: fails at checkpoint", WORKER),
        (learner("step"), 2, "ZeroDivisionError: fails at step", WORKER),
        (game("exit"), None, "SystemExit: 3", "environment of match"),
        (WITHOUT_PROGRAM, 3, "Error", "environment of match"),
        (CALLBACK, 2, "ZeroDivisionError: fails at update", "arena: the run has ended: callback recorders:Fails\n"),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (
                (learner("init"), None, "ZeroDivisionError: fails at init", WORKER),
                (learner("init"), 2, "ZeroDivisionError: fails at init", WORKER),
                (learner("first checkpoint"), None, "ZeroDivisionError: fails at first checkpoint", WORKER),
                (learner("checkpoint"), 3, "ZeroDivisionError: fails at checkpoint", WORKER),
                (learner("load"), None, "ZeroDivisionError: fails at load", WORKER),
                (EXITS, None, "SystemExit: 5", WORKER),
                (game("raise"), None, "RuntimeError: the game cannot be stepped", "environment of match"),
                (game("raise"), 3, "RuntimeError: the game cannot be stepped", "environment of match"),
                (CALLBACK, None, "ZeroDivisionError: fails at update", "callback recorders:Fails\n"),
            )
        ),
    ],
)
def test_failure_is_reported_once(parts: Any, ranks: int | None, words: str, who: str, tmp_path: Path) -> None:
    ended = train(tmp_path, run_of(**parts), ranks=ranks)
    assert ended.code == 1, ended.err
    assert ended.err.count("Traceback") == 1, ended.err
    assert words in ended.err
    assert who in ended.err
    assert "MPI_ABORT" not in ended.err, "the launcher's banner is removed"
    run = RunFolder(tmp_path / "run")
    if run.config.exists():  # it had begun
        (line,) = JournalReader(run.faults)
        assert f"{line['who']}: " in fault_text(line) and words in fault_text(line)
        assert (line["kind"], line["who"] in ended.err, words in run.log_path(0).read_text()) == ("run", True, True)
        assert run_status(run, load_config(run.config), played=0) is RunStatus.FAILED


@pytest.mark.parametrize("how", ["_exit 0", *(pytest.param(how, marks=pytest.mark.long) for how in ("_exit", "segv"))])
def test_silently_ended_process_ends_the_run(how: str, tmp_path: Path) -> None:
    ended = train(tmp_path, run_of(blue={"algorithm": "faulty_workers:Ends", "options": {"how": how}}))
    check_sentence(ended, " died; what was played is in the run folder")
    assert "arena: the run has ended: rank" in ended.err


def check_sentence(ended: Ended, words: str) -> None:
    assert ended.code == 1, ended.err
    assert words in ended.err, ended.err
    assert "Traceback" not in ended.err, ended.err
    assert ended.err.count("arena: the run has ended") == 1, ended.err


@pytest.mark.parametrize(
    ("parts", "file"),
    [
        ({"callbacks": ["faulty_workers:SmallDisk"]}, "episodes.jsonl"),
        ({"blue": {"algorithm": "faulty_workers:GrowingStateOnSmallDisk"}, "checkpoint_every": 500}, ".ckpt"),
    ],
    ids=["root", "worker"],
)
def test_full_disk_of_a_process_ends_the_run_with_a_message(parts: Any, file: str, tmp_path: Path) -> None:
    ended = train(tmp_path, run_of(ticks=10**6, **parts), ranks=3)
    check_sentence(ended, f"{file} cannot be written: File too large")
    assert checkpoint.load(tmp_path / "run" / "checkpoints" / "blue").ticks > 0


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
