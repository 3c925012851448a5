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
_FIRST_PAUSE = 20e-6
_GROWTH = 1.3


def wait_until(done: Callable[[], bool], *, longest_pause: float = 1e-3) -> None:
    """Returns when `done()` is true.

    Args:
        done: cheap, called again and again.
        longest_pause: seconds; the pauses grow up to it.
    """
    for _ in range(_YIELDS):
        if done():
            return
        os.sched_yield()
    pause = _FIRST_PAUSE
    while not done():
        time.sleep(pause)
        pause = min(pause * _GROWTH, longest_pause)
