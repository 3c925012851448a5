"""Gymnasium's AsyncVectorEnv, one process per lane, with the interface of the fused loop."""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from numpy.typing import NDArray

from games import GOAL, RECENT, Transition
from solo import Solo
from stamps import Stamps
from terms import Terms


class AsyncLanes:
    """One process per lane; this process, which collects all lanes, notes the stamps."""

    def __init__(self, terms: Terms) -> None:
        self.lanes = terms.lanes
        makers = [partial(Solo, seed=terms.seed * 1000 + lane) for lane in range(terms.lanes)]
        self._envs = AsyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        self._stamps = Stamps(terms.notes, every=terms.n_steps)
        self._wins: deque[bool] = deque(maxlen=RECENT)

    def reset(self) -> NDArray[np.float32]:
        """Begins an episode in every lane; [L, 4]."""
        return np.array(self._envs.reset()[0])

    def step(self, actions: NDArray[np.int64]) -> Transition:
        """One tick of all lanes."""
        seen, rewards, terminated, truncated, infos = self._envs.step(actions)
        self._stamps.add()
        final, over = np.array(seen), terminated | truncated
        if over.any():
            final[over] = np.stack(list(infos["final_obs"][over]))
            self._score(rewards[over])
        return Transition(np.array(seen), rewards, terminated, truncated, final)

    def _score(self, rewards: NDArray[np.float64]) -> None:
        self._wins.extend((rewards > 0).tolist())
        if len(self._wins) == RECENT and sum(self._wins) >= GOAL * RECENT:
            self._stamps.goal()

    def close(self) -> None:
        """Ends the processes and writes the stamps."""
        self._envs.close()
        self._stamps.write()
