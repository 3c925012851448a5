"""A game of two equal players, of which the first wins after 10 ticks or loses after 60."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step

WON, LOST = 10, 60  # ticks


class Uneven:
    """Each lane draws the result of its game at the start; `first` wins quickly in either seat.

    Args:
        lanes: how many games.
    """

    batched = True

    def __init__(self, *, lanes: int) -> None:
        space, action = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2)
        self.interface = Interface(("one", "two"), (space, space), (action, action), (0, 0))
        self.lanes = lanes
        self._ticks = np.zeros(lanes, np.int64)
        self._ends = np.zeros(lanes, np.int64)
        self._rngs = [np.random.default_rng(0)] * lanes

    def reset(
        self,
        lanes: NDArray[np.bool_],
        seeds: Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Frame:
        for lane in np.flatnonzero(lanes):
            if seeds is not None and seeds[lane] is not None:
                self._rngs[lane] = np.random.default_rng(seeds[lane])
            self._ends[lane] = WON if self._rngs[lane].random() < 0.5 else LOST
        self._ticks[lanes] = 0
        return self._frame()

    def step(self, actions: Sequence[Any]) -> Step:
        self._ticks += 1
        over = self._ticks >= self._ends
        won = np.where(self._ends == WON, 1.0, -1.0) * over
        rewards = np.stack([won, -won], axis=1)
        ended = np.repeat(over[:, None], 2, axis=1)
        return Step(self._frame(), rewards, ended, np.zeros_like(ended))

    def render(self) -> None:
        return None

    def close(self) -> None:
        pass

    def _frame(self) -> Frame:
        seen = (self._ticks[:, None] / LOST).astype(np.float32)
        return Frame([seen, seen.copy()], np.repeat((self._ticks < self._ends)[:, None], 2, axis=1), (None, None))


class Uncopyable(Uneven):
    """The same, with a lock, which cannot be copied."""

    def __init__(self, *, lanes: int) -> None:
        super().__init__(lanes=lanes)
        self._lock = threading.Lock()
