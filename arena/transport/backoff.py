"""Polling with growing pauses, for calls that have no blocking form that sleeps.

Blocking MPI calls spin: an idle process costs a whole core, and with more processes than cores it takes the core from
the process that it waits for. Testing with growing pauses costs nothing in a long wait and little in a short one, and
signals are handled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_YIELDS = 30
_FIRST_PAUSE = 20e-6  # seconds
_LONGEST_PAUSE = 5e-3
_GROWTH = 1.3


class Backoff:
    """The pauses of one wait: first `sched_yield`, then sleeps that grow."""

    def __init__(self, *, longest_pause: float = _LONGEST_PAUSE) -> None:
        self._yields = _YIELDS
        self._pause = _FIRST_PAUSE
        self._longest = longest_pause

    @property
    def patient(self) -> bool:
        """Whether the next pause is a sleep."""
        return self._yields == 0

    def next_pause(self) -> float:
        """Seconds of the next sleep."""
        pause, self._pause = self._pause, min(self._pause * _GROWTH, self._longest)
        return pause

    def pause(self) -> None:
        """Yields the processor or sleeps."""
        if self._yields:
            self._yields -= 1
            os.sched_yield()
        else:
            time.sleep(self.next_pause())


def wait_until(done: Callable[[], bool], *, longest_pause: float = _LONGEST_PAUSE) -> None:
    """Calls `done()` with growing pauses until it is true."""
    if done():
        return
    backoff = Backoff(longest_pause=longest_pause)
    while not done():
        backoff.pause()
