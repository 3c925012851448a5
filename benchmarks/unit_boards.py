"""What both sides of `units.py` share: random boards of Minesweeper as plain arrays, and how a rate is measured."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MINES, LABELS, SIZE = 5, 5, 6


class Boards(NamedTuple):
    """Boards with five mines and one or two robots, which all may make any move."""

    mines: NDArray[np.float32]  # [5 * rows, 2]
    robots: NDArray[np.float32]  # [sum of counts, 2]
    counts: NDArray[np.int64]  # [rows] robots
    moves: NDArray[np.int64]  # [sum of counts] that were made


def boards(rows: int) -> Boards:
    """The same boards in every process."""
    rng = np.random.default_rng(rows)
    counts = rng.integers(1, 3, rows)
    cells = [rng.integers(0, SIZE, (number, 2)).astype(np.float32) for number in (MINES * rows, int(counts.sum()))]
    return Boards(*cells, counts, rng.integers(0, LABELS, int(counts.sum())))


def rate(work: Callable[[], object], count: int, seconds: float) -> float:
    """Items per CPU second, `count` in a call, by repeating the work for some seconds; the clock is read twice only."""
    work()
    turns = 1
    while True:
        begun = time.process_time()
        for _ in range(turns):
            work()
        spent = time.process_time() - begun
        if spent >= seconds:
            return count * turns / spent
        turns = max(2 * turns, math.ceil(1.1 * turns * seconds / max(spent, 1e-3)))
