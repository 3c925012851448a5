"""What games that compute all lanes at once have in common, and the moves on the square [-1, 1]^2."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arena.game.api import Flags, Seeds
from envs.common import options

STEP = 0.1  # length of a move
MOVES = STEP * np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float64)  # stay, +x, -x, +y, -y


class Lanes:
    """Random streams and ticks of a game's lanes, and which of them play.

    Attributes:
        ticks: int64 [L] played in this episode.
        playing: bool [L] lanes whose episode goes on.
    """

    batched = True

    def __init__(self, lanes: int, max_steps: int) -> None:
        self.lanes, self.max_steps = options.count("lanes", lanes), options.count("max_steps", max_steps)
        self.ticks = np.zeros(self.lanes, np.int64)
        self.playing: Flags = np.zeros(self.lanes, np.bool_)
        self._streams = [np.random.default_rng() for _ in range(self.lanes)]  # until a lane is seeded

    def begin(self, lanes: Flags, seeds: Seeds) -> Iterator[tuple[int, np.random.Generator]]:
        """Yields the lanes of a mask and their random streams; they play when all have been yielded, with no ticks."""
        for lane in np.flatnonzero(lanes).tolist():
            if seeds is not None and (seed := seeds[lane]) is not None:
                self._streams[lane] = np.random.default_rng(seed)
            self.ticks[lane] = 0
            yield lane, self._streams[lane]
        self.playing |= lanes

    def end(self, over: Flags | bool = False) -> tuple[Flags, Flags]:
        """Counts a tick of the lanes that play; which of them are `over`, and which are late, each [L]."""
        self.ticks += self.playing
        ended: Flags = self.playing & over
        going = self.playing ^ ended
        late = going & (self.ticks >= self.max_steps)
        self.playing = going ^ late
        return ended, late

    def close(self) -> None:
        """Nothing to release."""
