"""Processes: starts a command, observes all processes that it starts, and measures what they use.

Wall time runs from the start of the command to its end. CPU time is counted twice: by the kernel for all descendants
that were waited for (`os.wait4`), and by sampling `/proc`, which also counts daemons that no process waits for, and
shows the use of each process over time. `accounting.py` compares the two counts.

Unshared memory (USS) is `Private_Clean + Private_Dirty` of `/proc/PID/smaps_rollup`: the memory that the end of
this process would free. The proportional share (PSS) divides shared memory by the number of its processes: its sum over
all processes is their memory together.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PAUSE = 0.01  # seconds between two checks whether the command has ended
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


class Line(NamedTuple):
    """A process at one moment."""

    parent: int
    seconds: float  # CPU, user and system
    started: int  # clock ticks since boot: tells a process from a later process with the same number
    state: str


def lines() -> dict[int, Line]:
    """All processes of the machine, by number."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                found[int(name)] = parse_stat(Path(f"/proc/{name}/stat").read_text())
    return found


def parse_stat(text: str) -> Line:
    """The line of `/proc/PID/stat`; the command's name, in parentheses, may hold anything."""
    fields = text.rpartition(")")[2].split()
    return Line(int(fields[1]), (int(fields[11]) + int(fields[12])) * _TICK, int(fields[19]), fields[0])


def descendants(root: int, table: Mapping[int, Line]) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for number, line in table.items():
        children.setdefault(line.parent, []).append(number)
    found, waiting = [], [root] if root in table else []
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


class Held(NamedTuple):
    """The memory of a process at one moment, in bytes, and how many files it has open."""

    moment: float  # monotonic clock
    unshared: int  # USS
    proportional: int  # PSS: shared memory divided by the number of its processes, so sums are meaningful
    descriptors: int = 0


def held(number: int) -> Held | None:
    """What a process holds now; None if it has ended or may not be inspected."""
    try:
        lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
        descriptors = len(os.listdir(f"/proc/{number}/fd"))
    except OSError:
        return None
    sizes = {line.split()[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    if "Pss:" not in sizes:
        return None
    return Held(time.monotonic(), sizes["Private_Clean:"] + sizes["Private_Dirty:"], sizes["Pss:"], descriptors)


def rank_of(number: int) -> int | None:
    """The rank that an MPI launcher gave a process; None without a rank."""
    with suppress(OSError, ValueError):
        pairs = (item.partition("=") for item in Path(f"/proc/{number}/environ").read_text().split("\0"))
        variables = {name: value for name, _, value in pairs}
        return next((int(variables[name]) for name in _RANK_VARIABLES if name in variables), None)
    return None


def has_loaded(number: int, library: str) -> bool:
    """Whether a process has mapped a file with this in its name."""
    with suppress(OSError):
        return library in Path(f"/proc/{number}/maps").read_text()
    return False


@dataclass
class Usage:
    """The samples of one process."""

    started: int
    rank: int | None = None
    times: list[float] = field(default_factory=list)  # monotonic clock
    seconds: list[float] = field(default_factory=list)  # CPU used until then
    memory: list[Held] = field(default_factory=list)
    torch: bool = False

    def cpu(self, begin: float, end: float) -> float:
        """CPU seconds used between two moments."""
        used = np.interp([begin, end], self.times, self.seconds, left=0.0)
        return float(used[1] - used[0])

    @property
    def peak_share(self) -> int:
        """The largest sampled proportional share of memory, in bytes."""
        return max((seen.proportional for seen in self.memory), default=0)

    @property
    def peak(self) -> int:
        """The largest sampled unshared memory, in bytes."""
        return max((seen.unshared for seen in self.memory), default=0)


@dataclass
class Finished:
    """A command that has ended, and the usage of all its processes."""

    code: int
    begun: float  # monotonic clock
    wall: float
    waited_cpu: float  # CPU seconds of all processes that were waited for, by the kernel
    processes: dict[int, Usage]
    left_behind: list[int]
    out: str
    err: str

    @property
    def seen_cpu(self) -> float:
        """CPU seconds of all processes, by their last samples."""
        return sum(usage.seconds[-1] for usage in self.processes.values() if usage.seconds)

    @property
    def cpu(self) -> float:
        """CPU seconds of all processes: the larger of the two counts, as each can miss some."""
        return max(self.waited_cpu, self.seen_cpu)

    def cpu_between(self, begin: float, end: float) -> float:
        """CPU seconds of all processes between two moments of the monotonic clock."""
        return sum(usage.cpu(begin, end) for usage in self.processes.values() if usage.times)

    def of_rank(self, rank: int) -> list[Usage]:
        """The processes of one rank: its process, and the processes that this one has started."""
        return [usage for usage in self.processes.values() if usage.rank == rank]

    def peak_of_rank(self, rank: int) -> int:
        """Unshared memory of a rank in bytes, at most."""
        return sum(usage.peak for usage in self.of_rank(rank))


class Failed(RuntimeError):
    """A measured command has failed."""


class Watch:
    """Samples a process and all its descendants.

    Args:
        root: the process.
        memory: whether to sample unshared memory too, which is far more expensive.
    """

    def __init__(self, root: int, *, memory: bool) -> None:
        self.seen: dict[int, Usage] = {}
        self._root = root
        self._memory = memory

    def look(self) -> None:
        """Measures all processes once."""
        table, now = lines(), time.monotonic()
        # A process whose parent has ended is no longer a descendant: known processes are followed by number.
        known = [number for number in self.seen if number in table]
        for number in {*descendants(self._root, table), *known}:
            usage = self.seen.setdefault(number, Usage(table[number].started))
            if usage.started == table[number].started:
                usage.times.append(now)
                usage.seconds.append(table[number].seconds)
                self._look_closer(number, usage)

    def _look_closer(self, number: int, usage: Usage) -> None:
        if usage.rank is None:
            usage.rank = rank_of(number)
        if self._memory:
            now_held = held(number)
            if now_held is not None:
                usage.memory.append(now_held)
            usage.torch = usage.torch or has_loaded(number, "libtorch")

    def left_behind(self) -> list[int]:
        """The sampled processes that still live."""
        table = lines()
        return [
            number
            for number, usage in self.seen.items()
            if number in table and table[number].started == usage.started and table[number].state != "Z"
        ]


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: float,
    every: float = 0.25,
    memory: bool = False,
) -> Finished:
    """Runs a command to its end.

    Args:
        command: the program and its arguments.
        cwd: where it runs; its output is kept there.
        environment: all of its environment variables.
        timeout: seconds, after which the command and all its processes are killed.
        every: seconds between two samples of its processes.
        memory: whether to sample unshared memory.

    Raises:
        Failed: the command did not end in time.
    """
    out, err = cwd / "stdout", cwd / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        begun = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        watch = Watch(process.pid, memory=memory)
        status, used = _wait(process, watch, begun + timeout, every)
    wall = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it again
    told = {"out": out.read_text(errors="replace"), "err": err.read_text(errors="replace")}
    if time.monotonic() >= begun + timeout:
        raise Failed(f"{' '.join(command[:6])} ... was not done within {timeout:.0f} s\n{told['out']}{told['err']}")
    return Finished(process.returncode, begun, wall, used, watch.seen, _lingering(watch), **told)


def _wait(process: subprocess.Popen[bytes], watch: Watch, deadline: float, every: float) -> tuple[int, float]:
    """Samples until the process has ended; returns its status and the CPU seconds of all processes waited for."""
    next_look = time.monotonic()
    while True:
        number, status, usage = os.wait4(process.pid, os.WNOHANG)
        if number:
            return status, usage.ru_utime + usage.ru_stime
        now = time.monotonic()
        if now >= deadline:
            kill(watch)
        if now >= next_look:
            watch.look()
            next_look = time.monotonic() + every
        time.sleep(_PAUSE)


def kill(watch: Watch) -> None:
    """Kills all processes of a watch that still run."""
    watch.look()
    for number in watch.left_behind():
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def _lingering(watch: Watch, *, grace: float = 2.0) -> list[int]:
    """The processes that still live a moment after the command has ended."""
    deadline = time.monotonic() + grace
    while (left := watch.left_behind()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
