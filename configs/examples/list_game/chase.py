"""The plain interface: lists with one item per entity, and nothing to inherit from."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

LENGTH = 15  # places of the corridor
PATIENCE = 20  # ticks after which the prey has escaped


class Chase:
    """A corridor: the hunter wants to stand where the prey stands, the prey does not.

    `entities` (names), `seed`, `render` and `close` are optional. `reset` may come once before any seed.
    """

    entities = ("hunter", "prey")

    def __init__(self) -> None:
        self.observation_spaces = [spaces.Box(0, LENGTH - 1, (2,), np.float32) for _ in self.entities]
        self.action_spaces = [spaces.Discrete(3, start=-1) for _ in self.entities]  # left, stay, right
        self.random = np.random.default_rng()

    def seed(self, seed: int) -> None:
        """Called before `reset` when a stream of random numbers is to begin."""
        self.random = np.random.default_rng(seed)

    def reset(self) -> list[Any]:
        """Begins an episode; what each entity sees."""
        self.places, self.ticks = self.random.permutation(LENGTH)[:2], 0
        return self.see()

    def see(self) -> list[Any]:
        """The own place first, then the other's."""
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
