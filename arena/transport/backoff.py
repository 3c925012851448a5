"""How a process waits for a message: attentive at first, then ever more lazily.

MPI's own blocking calls spin. With more processes than cores the spinner takes the core from the one that it waits
for, and an idle process costs a whole core. Testing with growing pauses costs nothing when the wait is long, little
when it is short, and lets signals through.
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
    """The pauses of one wait: first the processor is offered to others, then come sleeps that grow.

    Args:
        longest_pause: seconds; the sleeps grow up to it.
    """

    def __init__(self, *, longest_pause: float = _LONGEST_PAUSE) -> None:
        self._yields = _YIELDS
        self._pause = _FIRST_PAUSE
        self._longest = longest_pause

    @property
    def patient(self) -> bool:
        """Whether it is time to sleep."""
        return self._yields == 0

    def next_pause(self) -> float:
        """Seconds to sleep now."""
        pause, self._pause = self._pause, min(self._pause * _GROWTH, self._longest)
        return pause

    def pause(self) -> None:
        """Lets a little time pass."""
        if self._yields:
            self._yields -= 1
            os.sched_yield()
        else:
            time.sleep(self.next_pause())


def wait_until(done: Callable[[], bool], *, longest_pause: float = _LONGEST_PAUSE) -> None:
    """Returns when `done()`, which is called again and again, is true."""
    if done():
        return
    backoff = Backoff(longest_pause=longest_pause)
    while not done():
        backoff.pause()
