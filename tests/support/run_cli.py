"""Runs the command line as a user does: real processes, a time limit, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from arena.records.journal import JournalReader
from arena.run import mpirun

TESTS = Path(__file__).parent
ARENA = [sys.executable, "-m", "arena"]
PATIENCE = 600.0
"""Seconds after which a test that waits fails: tests wait for events, this is for those that never come."""

# what a start on a busy machine says
_STARTING = re.compile(r"^\d+ of \d+ processes have started\n", re.MULTILINE)
_RANK = b"OMPI_COMM_WORLD_RANK="


class Ended(NamedTuple):
    """How a command has ended."""

    code: int
    out: str
    err: str
    seconds: float


def environment(**changes: str) -> dict[str, str]:
    """The test's own environment variables, with the tests' modules on the path and no variables of a launcher."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "PMI_"))}
    path = os.pathsep.join([str(TESTS), kept.get("PYTHONPATH", "")])
    return {**kept, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", **changes}


def start(command: list[str], cwd: Path, **changes: str) -> subprocess.Popen[str]:
    """Starts a command in a process group of its own."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(**changes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], *, timeout: float = PATIENCE) -> Ended:
    """Waits for a command; past the time limit it and its child processes are killed, and the test fails."""
    begun = time.monotonic()
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"no end within {timeout} s\n{out}\n{err}") from None
    return Ended(process.returncode, out, _STARTING.sub("", err), time.monotonic() - begun)


def arena(cwd: Path, *arguments: str, timeout: float = PATIENCE, **changes: str) -> Ended:
    """`arena ...`"""
    return finish(start([*ARENA, *arguments], cwd, **changes), timeout=timeout)


def by_hand(
    cwd: Path,
    ranks: int,
    *arguments: str,
    timeout: float = PATIENCE,
    program: Sequence[str] = ARENA,
    **changes: str,
) -> Ended:
    """`mpirun -n RANKS arena ...`, with the flags that the README gives; or another program in the place of `arena`."""
    line, settings = mpirun.command(mpirun.find_launcher(), ranks, [*program, *arguments])
    added = {name: value for name, value in settings.items() if name not in os.environ}
    for _ in range(mpirun.STARTS):  # a user would also try again
        ended = finish(start(line, cwd, **added, **changes), timeout=timeout)
        if mpirun.UNSTARTED not in ended.err:
            break
    return ended


def write(cwd: Path, data: Any, name: str = "config.yaml") -> str:
    """Writes a configuration file; returns its name. Runs have one process per role, on any machine, unless told."""
    (cwd / name).write_text(yaml.safe_dump({"ranks": "one_per_role", **data} if isinstance(data, dict) else data))
    return name


def episodes(run: Path) -> list[str]:
    """The lines of a run's episodes, in an order that does not depend on timing."""
    return sorted(json.dumps(line, sort_keys=True) for line in JournalReader(run / "episodes.jsonl"))


def living(cwd: Path) -> list[int]:
    """The living processes with this working folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or of another user
            if os.path.realpath(entry / "cwd") == os.path.realpath(cwd):
                found.append(int(entry.name))
    return found


def ranks_in(cwd: Path) -> dict[int, int]:
    """Rank -> process, without the children of these."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.path.realpath(entry / "cwd") == os.path.realpath(cwd):
                held = (entry / "environ").read_bytes()
                if _RANK in held:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    found[int(entry.name)] = parent, int(held.split(_RANK)[1].split(b"\0")[0])
        except OSError:
            continue  # gone, or of another user
    return {rank: process for process, (parent, rank) in found.items() if parent not in found}


def left_behind(cwd: Path) -> list[str]:
    """Command lines of living processes with this working folder."""
    found = []
    for pid in living(cwd):
        with suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
    return found


def wait_for(condition: Any, *, timeout: float = PATIENCE) -> None:
    """Waits until a condition holds; fails the test if it never does."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"{condition} did not come true within {timeout} s"
        time.sleep(0.05)


def silence_limit(seconds: float) -> float:
    """A `watchdog_s` that roles which are well keep on a machine as busy as this one is now, at least `seconds`."""
    return max(seconds, 1.5 * os.getloadavg()[0] / len(os.sched_getaffinity(0)))
