"""Stamps: when a count was reached, noted in memory and written to a file in the end.

The process that steps a game notes its own progress, so that every contestant is timed in the same way and the time
that processes need to start is no part of a rate. `time.monotonic` is one clock for all processes of a machine.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Stamps:
    """Notes the time of the first and then of every `every`-th count.

    Args:
        folder: where `write` puts the file of this process; None: nowhere.
        every: counts between two notes.
    """

    def __init__(self, folder: str | Path | None, *, every: int = 1) -> None:
        self.count = 0
        self.reached: float | None = None  # when a goal was reached; set by the caller
        self._folder = folder
        self._every = every
        self._next = 1
        self._times = array("d")
        self._counts = array("q")

    def add(self, amount: int = 1) -> None:
        """Counts on."""
        self.count += amount
        if self.count >= self._next:
            self._times.append(time.monotonic())
            self._counts.append(self.count)
            self._next = self.count + self._every

    def goal(self) -> None:
        """Notes that a goal is reached, the first time that it is said."""
        if self.reached is None:
            self.reached = time.monotonic()

    def write(self) -> None:
        """Writes what was noted; nothing when nothing was."""
        if self._folder is None or not self.count:
            return
        noted = {"times": list(self._times), "counts": list(self._counts), "reached": self.reached}
        final = Path(self._folder) / f"{os.getpid()}-{id(self)}.json"
        draft = final.with_suffix(".draft")
        draft.write_text(json.dumps(noted))
        draft.rename(final)


class Progress(NamedTuple):
    """What one process has noted."""

    times: Sequence[float]  # seconds of the monotonic clock, rising
    counts: Sequence[int]
    reached: float | None = None

    def at(self, moment: float) -> float:
        """The count at a moment, between two notes as if it had grown evenly."""
        return float(np.interp(moment, self.times, self.counts))


@dataclass(frozen=True)
class Window:
    """A period in which all processes were working."""

    begin: float
    end: float
    count: float  # of all together

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def rate(self) -> float:
        """Counts per second of wall time."""
        return self.count / self.seconds


def read(folder: str | Path) -> list[Progress]:
    """What the processes that have ended have noted in a folder."""
    return [Progress(**json.loads(path.read_text())) for path in sorted(Path(folder).glob("*.json"))]


def window(progress: Sequence[Progress], *, skip: float = 0.2) -> Window:
    """The stretch from when the last process has begun to when the first one has ended, without its first part.

    Args:
        progress: of all processes that count.
        skip: share of the stretch that is left out at its beginning: caches and pauses settle there.

    Raises:
        ValueError: no process has recorded anything, or there is no moment at which all were working.
    """
    if not progress:
        raise ValueError("no process has noted its progress; did the run end before its first tick?")
    first = max(noted.times[0] for noted in progress)
    end = min(noted.times[-1] for noted in progress)
    begin = first + skip * (end - first)
    if end <= begin:
        raise ValueError(
            f"the last of {len(progress)} processes began {first - end:.2f} s after the first had ended; "
            "use more ticks, so that all of them are at work at the same time"
        )
    return Window(begin, end, sum(noted.at(end) - noted.at(begin) for noted in progress))
