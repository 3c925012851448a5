"""Worker algorithms for matches whose games fail, and algorithms that fail in ways of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from players import Player
from staging import NOTES


class Rows(Player):
    """Notes of every tick: rewards, terminated, truncated, and what is seen last in the rows that ended."""

    face = "vector"

    def run(self) -> None:
        env = self.env
        env.reset()
        while True:
            _, rewards, terminated, truncated, infos = env.step(np.ones(env.num_envs, np.int64))
            ends = terminated | truncated
            final = [float(seen[0]) for seen in infos["final_obs"][ends]] if ends.any() else []
            NOTES.append((rewards.tolist(), terminated.tolist(), truncated.tolist(), final))


class Entities(Rows):
    """As `Rows`, in a seat of several entities."""


class ResetsWithSeed(Player):
    """Asks for an episode of its own seed, then plays."""

    def __init__(self, env: Any, group: Any, *, ticks: int, seed: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.seed = seed

    def run(self) -> None:
        self.env.reset()
        self.env.step(0)
        self.env.reset(seed=self.seed)
        while True:
            _, _, terminated, truncated, _ = self.env.step(0)
            if terminated or truncated:
                self.env.reset()
