"""Time stamps of a count, kept in memory and written to a file at the end.

The process that steps a game notes its own progress, so that every contestant is timed in the same way and the time
that processes need to start is not part of a rate. `time.monotonic` is one clock for all processes of a machine.
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
        """Notes the time of the first call: a goal is reached."""
        if self.reached is None:
            self.reached = time.monotonic()

    def write(self) -> None:
        """Writes the stamps, if there are any."""
        if self._folder is None or not self.count:
            return
        noted = {"times": list(self._times), "counts": list(self._counts), "reached": self.reached}
        final = Path(self._folder) / f"{os.getpid()}-{id(self)}.json"
        draft = final.with_suffix(".draft")
        draft.write_text(json.dumps(noted))
        draft.rename(final)


class Progress(NamedTuple):
    """The stamps of one process."""

    times: Sequence[float]  # seconds of the monotonic clock, rising
    counts: Sequence[int]
    reached: float | None = None

    def at(self, moment: float) -> float:
        """The count at a moment, interpolated between two stamps."""
        return float(np.interp(moment, self.times, self.counts))


@dataclass(frozen=True)
class Window:
    """A period in which all processes were working."""

    begin: float
    end: float
    count: float  # of all processes together

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    @property
    def rate(self) -> float:
        """Counts per second of wall time."""
        return self.count / self.seconds


def read(folder: str | Path) -> list[Progress]:
    """The stamps in a folder, written by processes that have ended."""
    return [Progress(**json.loads(path.read_text())) for path in sorted(Path(folder).glob("*.json"))]


def window(progress: Sequence[Progress], *, skip: float = 0.2) -> Window:
    """The period from the start of the last process to the end of the first one, without its first part.

    Args:
        progress: of all processes that count.
        skip: share of the period to leave out at its beginning, where caches fill.

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
            "use more ticks, so that all of them work at the same time"
        )
    return Window(begin, end, sum(noted.at(end) - noted.at(begin) for noted in progress))
