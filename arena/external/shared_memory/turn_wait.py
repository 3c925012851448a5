"""The pauses of a wait for the turn, and the seconds that it has taken."""

from __future__ import annotations

import os
import time

_YIELDS = 30
_FIRST_PAUSE, _GROWTH = 20e-6, 1.3  # seconds
_LONGEST_PAUSE, _LONGEST_LATER = 0.5e-3, 5e-3  # in the first second, and after it
_LONG = 200e-6  # seconds that the yields take
_GAP = 1.0  # seconds; a longer gap between two looks counts as this plus the CPU time of this process


class TurnWait:
    """One wait for the turn: yields the core, then sleeps, longer and longer.

    The other side may need this side's core, so neither spins.

    Args:
        usual_s: mean time of recent waits; above 0.2 ms, a wait begins with a sleep of half this time, at most 0.5 ms.
    """

    def __init__(self, usual_s: float = 0.0) -> None:
        self._yields, self._pause = _YIELDS, _FIRST_PAUSE
        self._first = min(usual_s / 2, _LONGEST_PAUSE) if usual_s > _LONG else 0.0
        self._looked = self._cpu_at = time.monotonic()
        self._cpu = time.process_time()
        self.seconds = 0.0

    def look(self) -> float:
        """The seconds of this wait, without time in which this process was stopped."""
        now = time.monotonic()
        gap, self._looked = now - self._looked, now
        if gap > _GAP:
            cpu = time.process_time()
            gap, self._cpu, self._cpu_at = min(gap, _GAP + cpu - self._cpu), cpu, now
        elif now - self._cpu_at > _GAP:
            self._cpu, self._cpu_at = time.process_time(), now
        self.seconds += gap
        return self.seconds

    def skip(self) -> None:
        """Leaves out the time since the last look."""
        self._looked = self._cpu_at = time.monotonic()
        self._cpu = time.process_time()

    def pause_s(self) -> float:
        """Seconds of the next pause; 0.0: yields the core."""
        if self._first:
            first, self._first, self._yields = self._first, 0.0, 0
            return first
        if self._yields:
            self._yields -= 1
            return 0.0
        pause = self._pause
        self._pause = min(pause * _GROWTH, _LONGEST_PAUSE if self.seconds < 1.0 else _LONGEST_LATER)
        return pause

    def pause(self) -> None:
        """Yields the core, or sleeps."""
        pause = self.pause_s()
        if pause:
            time.sleep(pause)
        else:
            os.sched_yield()
