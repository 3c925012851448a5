"""Seeing a process of the same node die, at once and for nothing: a thread that sleeps until the kernel says so.

Nobody waits for a process of which nobody expects a word, and who sleeps at a doorbell hears nothing of MPI. So every
process watches the next one of its node, and the last one the first: whoever dies is missed by somebody.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable


class Sentinel:
    """Watches one process, from now on.

    Args:
        pid: of another process of this node.
        cry: called once, in the sentinel's own thread, when that process has ended.

    Raises:
        OSError: the process has gone already, or the system does not let it be watched.
    """

    def __init__(self, pid: int, cry: Callable[[], None]) -> None:
        self._process = os.pidfd_open(pid)
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._watch, args=(cry,), name="sentinel", daemon=True)
        self._thread.start()

    def _watch(self, cry: Callable[[], None]) -> None:
        poll = select.poll()
        for descriptor in (self._process, self._stop):
            poll.register(descriptor, select.POLLIN)
        if self._stop not in {descriptor for descriptor, _ in poll.poll()}:
            cry()

    def dismiss(self) -> None:
        """Ends the watch; a cry that has begun is waited for."""
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        for descriptor in (self._process, self._stop):
            os.close(descriptor)


def can_watch() -> bool:
    """Whether this system lets a process be watched."""
    return hasattr(os, "pidfd_open") and hasattr(os, "eventfd")
