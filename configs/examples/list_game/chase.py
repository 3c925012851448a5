"""The list interface: one item per entity, no base class."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

LENGTH = 15  # places of the corridor
PATIENCE = 20  # ticks after which the prey has escaped


class Chase:
    """A corridor: the hunter is rewarded for reaching the place of the prey, the prey for escaping.

    `entities` (names), `seed`, `render` and `close` are optional. `reset` may come once before any seed.
    """

    entities = ("hunter", "prey")
    outcome = "zero_sum"  # who has won: the side whose return is above zero

    def __init__(self) -> None:
        self.observation_spaces = [spaces.Box(0, LENGTH - 1, (2,), np.float32) for _ in self.entities]
        self.action_spaces = [spaces.Discrete(3, start=-1) for _ in self.entities]  # left, stay, right
        self.random = np.random.default_rng()

    def seed(self, seed: int) -> None:
        """Called before `reset` to start a new random stream."""
        self.random = np.random.default_rng(seed)

    def reset(self) -> list[Any]:
        """Starts an episode and returns the observation of each entity."""
        self.places, self.ticks = self.random.permutation(LENGTH)[:2], 0
        return self.see()

    def see(self) -> list[Any]:
        """The observation of each entity: its own place first, then the other's."""
        return [self.places.astype(np.float32), self.places[::-1].astype(np.float32)]

    def step(self, actions: list[Any]) -> tuple[list[Any], list[float], bool, list[dict[str, Any]]]:
        """Observations, rewards, done (one bool for all, or a list), infos."""
        self.places = np.clip(self.places + actions, 0, LENGTH - 1)
        self.ticks += 1
        caught, late = self.places[0] == self.places[1], self.ticks == PATIENCE
        reward = 1.0 if caught else -1.0 if late else 0.0
        # A true "TimeLimit.truncated" says that the episode was cut off, not that it ended by the rules.
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": bool(late and not caught)} for _ in self.entities]
        return self.see(), [reward, -reward], bool(caught or late), infos
