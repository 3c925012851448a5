"""Runs the command line as a user does: real processes, a time limit, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from arena.cli.main import main
from arena.records.journal import JournalReader
from arena.run import mpirun

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # benchmarks are scripts: they find each other so

from random_runs import differences as differences
from random_runs import left_by as left_by

TESTS = Path(__file__).parent
ARENA = [sys.executable, "-m", "arena"]
PATIENCE = 600.0
"""Seconds after which a test that waits fails: tests wait for events, this is for those that never come."""

# what a start on a busy machine says
_STARTING = re.compile(r"^\d+ of \d+ processes have started.*\n", re.MULTILINE)
_RANK = re.compile(rb"(?:^|\0)(?:OMPI_COMM_WORLD|PMI)_RANK=(\d+)\0")  # of Open MPI, of MPICH


class Ended(NamedTuple):
    """How a command has ended."""

    code: int
    out: str
    err: str


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
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"no end within {timeout} s\n{out}\n{err}") from None
    return Ended(process.returncode, out, _STARTING.sub("", err))


def arena(cwd: Path, *arguments: str, **changes: str) -> Ended:
    """`arena ...`"""
    return finish(start([*ARENA, *arguments], cwd, **changes))


def started(
    cwd: Path,
    config: Any,
    *more: str,
    run: str = "run",
    ranks: int | None = None,
    program: Sequence[str] = ARENA,
    **changes: str,
) -> subprocess.Popen[str]:
    """`arena train` of a configuration, or of a file with one, into a folder; without `ranks`, one process per role."""
    file = config if isinstance(config, str) else write(cwd, config)
    asked = [] if ranks is None else ["--ranks", str(ranks)]
    return start([*program, "train", file, "--run-dir", run, *asked, *more], cwd, **changes)


def train(cwd: Path, config: Any, *more: str, **keys: Any) -> Ended:
    """How such a command, see `started`, has ended."""
    return finish(started(cwd, config, *more, **keys))


def trained(cwd: Path, config: Any, *more: str, run: str = "run", **keys: Any) -> Path:
    """The folder of such a run, which has ended well."""
    ended = train(cwd, config, *more, run=run, **keys)
    assert ended.code == 0, ended.err
    return cwd / run


def alone(cwd: Path, config: Any, *more: str, run: str = "whole") -> Path:
    """The folder of a run of the same command in this process, which has what others take a second to import."""
    file = config if isinstance(config, str) else write(cwd, config)
    assert main(["train", str(cwd / file), "--run-dir", str(cwd / run), "--ranks", "1", *more]) == 0
    return cwd / run


def started_by_hand(
    cwd: Path, ranks: int, *arguments: str, program: Sequence[str] = ARENA, **changes: str
) -> subprocess.Popen[str]:
    """`mpirun -n RANKS arena ...`, with the flags that the README gives; or another program in the place of `arena`."""
    line, settings = mpirun.command(mpirun.find_launcher(), ranks, [*program, *arguments])
    added = {name: value for name, value in settings.items() if name not in os.environ}
    return start(line, cwd, **added, **changes)


def reached_by_hand(
    cwd: Path, ranks: int, *arguments: str, reached: Callable[[], bool], **keys: Any
) -> subprocess.Popen[str]:
    """Such a command, which goes on, once a condition holds."""
    for _ in range(mpirun.STARTS):  # a user would also try again
        process = started_by_hand(cwd, ranks, *arguments, **keys)
        wait_for(lambda process=process: reached() or process.poll() is not None)
        if process.poll() is None:
            return process
        ended = finish(process)
        if mpirun.UNSTARTED not in ended.err:
            break
    raise AssertionError(ended)


def by_hand(cwd: Path, ranks: int, *arguments: str, **keys: Any) -> Ended:
    """How such a command has ended."""
    for _ in range(mpirun.STARTS):
        ended = finish(started_by_hand(cwd, ranks, *arguments, **keys))
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


def differing(run: Path, other: Path) -> list[str]:
    """The results of two runs that do not have the same bytes, by name."""
    return differences(left_by(run), left_by(other))


def has_played(run: Path) -> bool:
    """Whether an episode of a run is on record."""
    return (run / "episodes.jsonl").exists() and (run / "episodes.jsonl").stat().st_size > 0


def newest_boundary(run: Path) -> int:
    return max((int(path.stem) for path in run.glob("boundaries/[0-9]*.json")), default=0)


def living(cwd: Path) -> list[int]:
    """The living processes with this working folder, without this one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # gone, or of another user
            if os.path.realpath(entry / "cwd") == os.path.realpath(cwd):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [
        int(child) for path in Path("/proc", str(pid), "task").glob("*/children") for child in path.read_text().split()
    ]


def kill_all(cwd: Path) -> int:
    """Kills all processes at once, so that none sees another one die, and waits for their end; returns their number.

    A process has its working folder no more when its threads still have its files, and their locks: its end is what
    the kernel tells of it.
    """
    victims: list[int] = []
    for pid in living(cwd):
        with suppress(ProcessLookupError):  # one that has come to its end meanwhile
            victims.append(os.pidfd_open(pid))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for victim in victims:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(victim, number)
    for victim in victims:
        assert select.select([victim], [], [], PATIENCE)[0], f"a killed process has not ended within {PATIENCE} s"
        os.close(victim)
    wait_for(lambda: not living(cwd))
    return len(victims)


def ranks_in(cwd: Path) -> dict[int, int]:
    """Rank -> process, without the children of these."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.path.realpath(entry / "cwd") == os.path.realpath(cwd):
                rank = _RANK.search((entry / "environ").read_bytes())
                if rank is not None:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    found[int(entry.name)] = parent, int(rank[1])
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


def wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[str] | None = None, *, timeout: float = PATIENCE
) -> None:
    """Waits until a condition holds; fails the test if it never does, or if `process` ends before."""
    deadline = time.monotonic() + timeout
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            raise AssertionError(finish(process))
        assert time.monotonic() < deadline, f"{condition} did not come true within {timeout} s"
        time.sleep(0.05)


def silence_limit(seconds: float) -> float:
    """A `watchdog_s` that roles which are well keep on a machine as busy as this one is now, at least `seconds`."""
    return max(seconds, 1.5 * os.getloadavg()[0] / len(os.sched_getaffinity(0)))
