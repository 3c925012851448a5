"""Random streams of the lanes of a game, and the moves on the square [-1, 1]^2."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

STEP = 0.1  # length of a move
MOVES = STEP * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float64)  # stay, +x, -x, +y, -y


class LaneStreams:
    """One `numpy.random.Generator` per lane, from fresh entropy until the lane is seeded."""

    def __init__(self, lanes: int) -> None:
        self._generators = [np.random.default_rng() for _ in range(lanes)]

    def begin(self, lanes: NDArray[np.bool_], seeds: Sequence[int | None] | None) -> list[int]:
        """The numbers of the lanes in a mask; reseeds those with a seed."""
        chosen = [int(lane) for lane in np.flatnonzero(lanes)]
        for lane in chosen:
            seed = None if seeds is None else seeds[lane]
            if seed is not None:
                self._generators[lane] = np.random.default_rng(seed)
        return chosen

    def __getitem__(self, lane: int) -> np.random.Generator:
        return self._generators[lane]
