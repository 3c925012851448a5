"""Whether a process of this node gets to run at all: it may have been stopped, or others may have the cores.

Without NumPy: the process that watches another one from outside imports it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def delays(pid: int) -> dict[int, float]:
    """Seconds that the threads of a process have been ready to run while others had the cores; nothing if unknown.

    Source: Documentation/scheduler/sched-stats.rst of Linux, `/proc/<pid>/schedstat`.
    """
    found = {}
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found[int(task.name)] = int((task / "schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):  # it has gone, or this system does not count
        return {}
    return found


def starved_seconds(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """How long the thread that has waited most for a core has waited between two looks at `delays`."""
    return max((seconds - before.get(task, 0.0) for task, seconds in after.items()), default=0.0)


def stopped(pid: int) -> bool:
    """Whether a process has been told to pause, by a signal or a debugger; False if unknown.

    Source: proc_pid_stat(5) of Linux, the field after the name of the program.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False
