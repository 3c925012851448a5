"""CartPole of EnvPool with the interface of the fused loop, stepped as a program of one file does it.

A pool begins an episode on the step after its end, whose action it ignores; the loop counts this step as a sample.
"""

from __future__ import annotations

import envpool
import numpy as np
from numpy.typing import NDArray

from games import Transition
from stamps import Stamps
from terms import Terms


class EnvPoolLanes:
    """One pool, with one thread besides that of the loop."""

    def __init__(self, terms: Terms) -> None:
        self.lanes = terms.lanes
        self._pool = envpool.make_gymnasium("CartPole-v1", num_envs=terms.lanes, num_threads=1, seed=terms.seed)
        self._stamps = Stamps(terms.notes, every=terms.n_steps)

    def reset(self) -> NDArray[np.float32]:
        """Begins an episode in every lane; [L, 4]."""
        return np.asarray(self._pool.reset()[0])

    def step(self, actions: NDArray[np.int64]) -> Transition:
        """One tick of all lanes."""
        seen, rewards, terminated, truncated, _ = self._pool.step(actions)
        self._stamps.add()
        return Transition(seen, rewards, terminated, truncated, seen)

    def close(self) -> None:
        """Writes the stamps."""
        self._stamps.write()
