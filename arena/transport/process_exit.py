"""Notices at once that a process of the same node has ended: a thread sleeps until the kernel reports the exit.

A rank that waits for a message from another rank, or sleeps at its doorbell, does not learn from MPI that a third rank
has died. So every process watches the next one of its node, and the last one watches the first.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable


class ExitWatcher:
    """Watches one process, from now on.

    Raises:
        OSError: the process has already ended, or the system does not let it be watched.
    """

    def __init__(self, pid: int, on_exit: Callable[[], None]) -> None:
        self._process = os.pidfd_open(pid)
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._watch, args=(on_exit,), name="exit-watcher", daemon=True)
        self._thread.start()

    def _watch(self, on_exit: Callable[[], None]) -> None:
        poll = select.poll()
        for descriptor in (self._process, self._stop):
            poll.register(descriptor, select.POLLIN)
        if self._stop not in {descriptor for descriptor, _ in poll.poll()}:
            on_exit()

    def stop(self) -> None:
        """Ends the watch; waits for a call of `on_exit` that has begun."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        for descriptor in (self._process, self._stop):
            os.close(descriptor)


def can_watch() -> bool:
    """Whether this system lets a process be watched: Linux 5.3, and no filter of system calls that forbids it."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return hasattr(os, "eventfd")
