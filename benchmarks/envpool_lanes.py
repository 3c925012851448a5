"""A pool of EnvPool with the interface of the fused loop, stepped as a program of one file does it.

A pool begins an episode on the step after its end, whose action it ignores; the loop counts this step as a sample.
"""

from __future__ import annotations

from typing import Any

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
        task = terms.env.removeprefix("envpool:")
        self._pool = envpool.make_gymnasium(task, num_envs=terms.lanes, num_threads=1, seed=terms.seed)
        self.actions = int(self._pool.action_space.n)
        self._stamps = Stamps(terms.notes, every=terms.n_steps)

    def reset(self) -> NDArray[Any]:
        """Begins an episode in every lane; [L, *shape]."""
        return np.asarray(self._pool.reset()[0])

    def step(self, actions: NDArray[np.int64]) -> Transition:
        """One tick of all lanes."""
        seen, rewards, terminated, truncated, _ = self._pool.step(actions)
        self._stamps.add()
        return Transition(seen, rewards, terminated, truncated, seen)

    def close(self) -> None:
        """Writes the stamps."""
        self._stamps.write()
