"""A game with units: pickers take fruit of a basket, and the sweet ones pay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arena.entity_env import (
    Entity,
    Environment,
    Observation,
    ObsSpace,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)


class Orchard(Environment):
    """One tick: each of one to three pickers takes one of two to eight pieces of fruit.

    The reward is the mean sweetness of what was taken. It is not shown: color minus half the size, and some noise.
    """

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Picker": Entity([]), "Fruit": Entity(["color", "size"])})

    def action_space(self) -> dict[str, Any]:
        return {"Take": SelectEntityActionSpace()}

    def reset(self, *, seed: int | None = None) -> Observation:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.pickers = int(self.random.integers(1, 4))
        self.fruit = self.random.normal(size=(self.random.integers(2, 9), 2))
        return self.observe(reward=0.0, done=False)

    def act(self, actions: Mapping[str, Any]) -> Observation:
        taken = self.fruit[[number for _, number in actions["Take"].actees]]
        sweetness = taken @ [1.0, -0.5] + self.random.normal(scale=0.1, size=len(taken))
        return self.observe(reward=float(sweetness.mean()), done=True)

    def observe(self, *, reward: float, done: bool) -> Observation:
        return Observation(
            features={"Picker": [[]] * self.pickers, "Fruit": self.fruit},
            actions={"Take": SelectEntityActionMask(actor_types=["Picker"], actee_types=["Fruit"])},
            reward=reward,
            done=done,
        )
