"""Whether a process of this node gets to run: it may be stopped, or other processes may have the cores.

Imports no NumPy: the watchdog process uses this module too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def delays(pid: int) -> dict[int, float]:
    """Thread -> seconds in which it was ready to run but got no core; empty if unknown.

    Source: Documentation/scheduler/sched-stats.rst of Linux, `/proc/<pid>/schedstat`.
    """
    found = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found[int(task.name)] = int((task / "schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):  # the process has ended, or this system has no such statistics
        return {}
    return found


def starved_seconds(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """The longest time for which a thread waited for a core, between two results of `delays`."""
    return max((seconds - before.get(task, 0.0) for task, seconds in after.items()), default=0.0)


def stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal or a debugger; False if unknown.

    Source: proc_pid_stat(5) of Linux, the field after the name of the program.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False
