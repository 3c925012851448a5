"""A batched game as a vector environment in one process, and games of units for tests of algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from arena.errors import BudgetReached
from arena.game.api import BatchedEnv
from arena.game.ragged import Ragged
from arena.game.spaces import flatten, row, unflatten
from arena.game.units import UnitSpace


class Lanes(VectorEnv[Any, Any, Any]):
    """A batched game of one entity, as the arena's vector face shows it.

    Args:
        game: all lanes of it.
        ticks: the budget; the step after it raises `BudgetReached`.
        seed: of the first lane; each other has the next one.
    """

    def __init__(self, game: BatchedEnv, *, ticks: int = 10_000, seed: int = 0) -> None:
        self.game, self.num_envs, self.ticks = game, game.lanes, ticks
        (self.single_observation_space,) = game.interface.observation_spaces
        (self.single_action_space,) = game.interface.action_spaces
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self._seeds = [seed + lane for lane in range(game.lanes)]
        self.tick = 0
        self.returns: list[float] = []  # of episodes that are over
        self._gathered = np.zeros(game.lanes)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        frame = self.game.reset(np.ones(self.num_envs, np.bool_), self._seeds)
        return frame.observations[0], {"active": frame.active[:, 0].copy()}

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        if self.tick == self.ticks:
            raise BudgetReached
        self.tick += 1
        step = self.game.step([actions])
        rewards, terminated, truncated = (part[:, 0].copy() for part in step[1:])
        seen, infos = step.frame.observations[0], {"active": step.frame.active[:, 0].copy()}
        self._gathered += rewards
        over = terminated | truncated
        if over.any():
            space = self.single_observation_space
            infos["final_obs"] = np.array([row(space, seen, lane) if over[lane] else None for lane in range(len(over))])
            infos["_final_obs"] = over
            self.returns += self._gathered[over].tolist()
            self._gathered[over] = 0.0
            kept = [leaf.copy() for leaf in flatten(space, seen)]
            fresh = self.game.reset(over)
            seen = unflatten(
                space, [_chosen(over, *pair) for pair in zip(flatten(space, fresh.observations[0]), kept, strict=True)]
            )
            infos["active"] = np.where(over, fresh.active[:, 0], infos["active"])
        return seen, rewards, terminated, truncated, infos


def _chosen(over: NDArray[np.bool_], fresh: Any, kept: Any) -> Any:
    """The rows of lanes that have begun an episode from one leaf, the others from another."""
    if not isinstance(fresh, Ragged):
        return np.where(over.reshape(-1, *(1 for _ in fresh.shape[1:])), fresh, kept)
    rows = [fresh[lane] if over[lane] else kept[lane] for lane in range(len(over))]
    return Ragged.of(rows, fresh.dtype, fresh.shape)


def observed(space: UnitSpace, samples: Sequence[Mapping[str, Any]]) -> Any:
    """Single samples of a space of units as one batched sample."""
    return _batched(space, list(samples))


def random_observations(space: UnitSpace, count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Single samples that keep all rules of the space."""
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def _batched(space: Space[Any], samples: list[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _batched(part, [one[key] for one in samples]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Sequence):
        return Ragged.of(samples, space.feature_space.dtype, space.feature_space.shape or ())
    return np.stack(samples)
