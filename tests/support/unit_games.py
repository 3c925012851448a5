"""A batched game as a vector environment in one process, and games of units for tests of algorithms."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from arena.errors import BudgetReached
from arena.game.api import BatchedEnv
from arena.game.ragged import Ragged
from arena.game.spaces import flatten, row, stack, unflatten
from arena.game.units import Choice, GlobalChoice, Select, UnitSpace


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


EVERYTHING = UnitSpace(
    {"Soldier": ["x", "y", "facing"], "Wall": [], "Flag": ["x", "y"]},
    global_features=["tick", "score"],
    actions={
        "Move": Choice(["stay", "go", "turn"]),
        "Attack": Select(masked=True),
        "Give up": GlobalChoice(["no", "yes"], masked=False),
        "Look": Select(),
    },
    hidden=["Soldier", "Flag"],
)
"""A space with all that one can have."""


class RandomUnits(VectorEnv[Any, Any, Any]):
    """Random observations of `EVERYTHING`, episodes of fixed length that are cut, and random rewards.

    Args:
        rows: `num_envs`.
        ticks: the budget; the step after it raises `BudgetReached`.
        length: ticks of an episode.
        seed: of all draws.
        active: a function from the tick to `infos["active"]`; rows that do not act are shown without actors.
    """

    def __init__(
        self,
        *,
        rows: int = 4,
        ticks: int = 10_000,
        length: int = 5,
        seed: int = 0,
        active: Callable[[int], NDArray[np.bool_]] | None = None,
    ) -> None:
        self.num_envs, self.ticks, self._length, self._active = rows, ticks, length, active
        self.single_observation_space = copy.deepcopy(EVERYTHING)
        self.single_observation_space.seed(seed)
        self.single_action_space = EVERYTHING.action_space
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self._rng = np.random.default_rng(seed)
        self.tick = 0
        self.shown: Any = None  # the last observations
        self.actions: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._next()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self.tick == self.ticks:
            raise BudgetReached
        self.tick += 1
        for name, parts in self.shown["actions"].items():
            assert actions[name].lengths.tolist() == parts["actors"].lengths.tolist()
        self.actions.append(actions)
        rows = np.arange(self.num_envs)
        cut = (self.tick + rows) % self._length == 0
        last = [self._sample(True) if over else None for over in cut]
        observations, infos = self._next()
        if cut.any():
            infos |= {"final_obs": np.array(last, object), "_final_obs": cut}
        return observations, self._rng.normal(size=self.num_envs), np.zeros(self.num_envs, np.bool_), cut, infos

    def _next(self) -> tuple[Any, dict[str, Any]]:
        active = np.ones(self.num_envs, np.bool_) if self._active is None else self._active(self.tick)
        self.shown = observed(EVERYTHING, [self._sample(acts) for acts in active])
        return self.shown, {"active": active}

    def _sample(self, acts: bool) -> dict[str, Any]:
        sample = self.single_observation_space.sample()
        return sample if acts else without_actors(sample)


def without_actors(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A single sample in which nothing can be chosen."""
    actions = {name: {part: one[:0] for part, one in shown.items()} for name, shown in sample["actions"].items()}
    return {**sample, "actions": actions}


def _chosen(over: NDArray[np.bool_], fresh: Any, kept: Any) -> Any:
    """The rows of restarted lanes from one leaf, the others from another."""
    if not isinstance(fresh, Ragged):
        return np.where(over.reshape(-1, *(1 for _ in fresh.shape[1:])), fresh, kept)
    rows = [fresh[lane] if over[lane] else kept[lane] for lane in range(len(over))]
    return Ragged.of(rows, fresh.dtype, fresh.shape)


def observed(space: UnitSpace, samples: Sequence[Mapping[str, Any]]) -> Any:
    """Single samples of a space of units as one batched sample."""
    return stack(space, samples)


def random_observations(space: UnitSpace, count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Single samples that keep all rules of the space."""
    space.seed(seed)
    return [space.sample() for _ in range(count)]
