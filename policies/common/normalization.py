"""Running normalization: observations to mean 0 and deviation 1, rewards by the deviation of the discounted return.

What one worker has seen is a `Statistics` for each array; `pooled` merges those of a whole group in one exchange, so
that all workers hold the same numbers to the bit: those of a single worker with all samples.

    observations   (x - mean) / deviation of everything seen, for the leaves that are numbers, and for each feature of
                   each type of units; pictures, bytes and choices stay as they are, since the networks scale them
    rewards        r / deviation of the running discounted return of the rows (Engstrom et al. 2020, arXiv 2005.12729)

Algorithms that learn from rollouts hold both as a `Normalization`: rewards are scaled by statistics that include their
own rollout, but observations by those before the rollout, from its first tick to the last gradient step on it:
otherwise the policy that learns would differ from the one that acted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.ragged import Ragged
from arena.game.spaces import leaf_spaces
from arena.group.group import Group
from policies.common.columns import RaggedTensor, storage_dtype
from policies.common.nstep import NStepBatch
from policies.common.options import wrong
from policies.common.replay import Transitions
from policies.common.rollout import Rollout
from policies.networks.units.tokens import UnitInputs, unit_inputs

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_EPSILON = 1e-8  # added to a variance: a constant number is normalized to 0
_CHUNK = 4096  # samples that are converted to double precision at once


class Statistics(NamedTuple):
    """Statistics of arrays of one shape: count, mean, and sum of the squared deviations from the mean."""

    size: int
    mean: Floats  # [...]
    squares: Floats  # [...]

    @classmethod
    def none(cls, shape: tuple[int, ...]) -> Statistics:
        return cls(0, np.zeros(shape), np.zeros(shape))

    @classmethod
    def of(cls, values: NDArray[Any]) -> Statistics:
        """Statistics of the arrays along the first axis of values [N, ...]."""
        found = cls.none(values.shape[1:])
        for start in range(0, len(values), _CHUNK):
            part = values[start : start + _CHUNK].astype(np.float64)
            with np.errstate(invalid="ignore", over="ignore"):  # `pooled` refuses the result
                mean = part.mean(0)
                found = found.merged(cls(len(part), mean, np.square(part - mean).sum(0)))
        return found

    def merged(self, other: Statistics) -> Statistics:
        """Statistics of the union of both sets (Chan, Golub and LeVeque 1979, equation 2.1)."""
        if not (self.size and other.size):
            return self if self.size else other
        both = self.size + other.size
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.size / both)
        return Statistics(both, mean, self.squares + other.squares + delta**2 * (self.size * other.size / both))

    @classmethod
    def stored(cls, state: Mapping[str, Any]) -> Statistics:
        """A copy of statistics of a file, whose arrays may be read-only."""
        mean, squares = (np.array(state[name], np.float64) for name in ("mean", "squares"))
        return cls(int(state["size"]), mean, squares)

    @property
    def deviation(self) -> Floats:
        """The standard deviation [...]; 1 where nothing has been seen."""
        return np.sqrt(self.squares / self.size + _EPSILON) if self.size else np.ones_like(self.mean)


def pooled(group: Group, found: Sequence[Statistics]) -> list[Statistics]:
    """Statistics of all workers' samples, the same to the bit at every worker; a collective, if there are any."""
    return joined(group.pool([tuple(one) for one in found]), group.policy) if found else []


def joined(parts: Sequence[Sequence[Any]], policy: str) -> list[Statistics]:
    """Statistics of all samples of several parts, each given as statistics of the same arrays, as tuples."""
    merged = [Statistics.none(np.shape(mean)) for _, mean, _ in parts[0]]
    for part in parts:
        merged = [one.merged(Statistics(*other)) for one, other in zip(merged, part, strict=True)]
    if not all(np.isfinite(one.mean).all() and np.isfinite(one.squares).all() for one in merged):
        raise FloatingPointError(
            f"policy {policy!r}: observations or rewards that are to be normalized have no finite mean and "
            "deviation; are all of them finite, and of moderate size?"
        )
    return merged


class ObservationNormalizer:
    """Observations to mean 0 and deviation 1, each number for itself; calling it changes no statistics.

    Args:
        space: one entity's observation space.
        clip: how far from 0 a normalized number may be; None: any distance. Before there are statistics a number that
            is further away counts as 0: raw numbers of any size would make many a first policy deterministic, and
            learning from a constant `clip` would move the network although it tells nothing.
        enabled: false: all leaves stay as they are, without statistics.
        inputs: for units, converts the leaves first: each feature of each type is normalized over all its units.

    Raises:
        ConfigError: enabled, but no leaf can be normalized.
    """

    def __init__(
        self, space: Space[Any], *, clip: float | None = 10.0, enabled: bool = True, inputs: UnitInputs | None = None
    ) -> None:
        numbers: dict[int, tuple[int, ...]] = {} if inputs is None or not enabled else dict(inputs.numbers)
        if enabled and inputs is None:
            for place, leaf in enumerate(leaf_spaces(space)):
                if isinstance(leaf, spaces.Box) and storage_dtype(leaf.dtype) != torch.uint8:
                    numbers[place] = leaf.shape
        self._inputs, self.enabled = inputs, enabled
        if enabled and not numbers:
            raise wrong("normalize_observations", True, f"false: {space} has no numbers that could be normalized")
        self._places, self._clip = tuple(numbers), math.inf if clip is None else clip
        self.statistics = [Statistics.none(shape) for shape in numbers.values()]
        self._prepare()

    def __call__(self, leaves: list[Any]) -> list[Any]:
        """Leaves [N, ...] on the CPU as the networks take them; those of numbers become float32."""
        if self._inputs is not None:
            leaves = self._inputs(leaves)
        if not self._places:
            return leaves
        normalized = list(leaves)
        columns = zip(self._places, self._means, self._scales, self.statistics, strict=True)
        for place, mean, scale, statistics in columns:
            leaf = leaves[place]
            values = leaf.values if isinstance(leaf, RaggedTensor) else leaf
            moved = torch.sub(values, mean).float().mul_(scale)  # the difference in double precision
            if self._clip < math.inf:
                limit = self._clip
                moved = moved.clamp_(-limit, limit) if statistics.size else moved.masked_fill_(moved.abs() > limit, 0.0)
            normalized[place] = leaf.with_values(moved) if isinstance(leaf, RaggedTensor) else moved
        return normalized

    def describe(self, leaves: Sequence[Any], rows: Flags | None = None) -> list[Statistics]:
        """Statistics of leaves [N, ...], of those rows that a mask [N] marks; for `pooled`, then `update`."""
        if self._inputs is not None and self._places:
            leaves = self._inputs(list(leaves))
        arrays = [leaves[place].numpy() for place in self._places]
        arrays = [leaf if rows is None or rows.all() else leaf[rows] for leaf in arrays]
        return [Statistics.of(leaf.values if isinstance(leaf, Ragged) else leaf) for leaf in arrays]

    def describe_new(self, batch: NStepBatch) -> list[Statistics]:
        """Statistics of the observations that are new in a worker's experience; for `pooled`, then `update`."""
        return self.describe(batch.points.observations)

    def minibatch(self, batch: Transitions) -> Transitions:
        """A minibatch as the networks take it, by the current statistics, not those of the time of playing."""
        return batch.observed(self)

    def update(self, found: Sequence[Statistics]) -> None:
        """Takes in what the group has seen since the last time."""
        self.statistics = [one.merged(other) for one, other in zip(self.statistics, found, strict=True)]
        self._prepare()

    def state_dict(self) -> dict[str, Any]:
        return {str(place): one._asdict() for place, one in zip(self._places, self.statistics, strict=True)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from stored statistics; refuses those of a network with other inputs."""
        if set(state) != set(map(str, self._places)):
            learned, now = ("normalized" if there else "plain" for there in (state, self._places))
            raise ConfigError(
                f"the stored policy has learned from {learned} observations, this one has {now} ones; set "
                f"normalize_observations: {'true' if state else 'false'}, and take the spaces that it was learned with"
            )
        stored = [Statistics.stored(state[str(place)]) for place in self._places]
        for one, here in zip(stored, self.statistics, strict=True):
            if one.mean.shape != here.mean.shape:
                raise ConfigError(
                    f"the stored policy has normalized observations of the shape {one.mean.shape}, here they have "
                    f"{here.mean.shape}; take the environment's spaces that it was learned with"
                )
        self.statistics = stored
        self._prepare()

    def _prepare(self) -> None:
        # At least one axis: torch ignores the dtype of a tensor without axes when it promotes the type of a difference.
        self._means = [torch.from_numpy(np.atleast_1d(one.mean)) for one in self.statistics]
        self._scales = [torch.from_numpy(np.atleast_1d(1 / one.deviation)).float() for one in self.statistics]


class RewardNormalizer:
    """Rewards divided by the deviation of the discounted return that the rows have gathered, if `enabled`.

    The running return of a row is R <- gamma R + r, from 0 in each episode; discounting counts transitions, as in
    `policies.common.rollout`, so R is measured where a transition is complete. `clip` is how far from 0 a normalized
    reward may be; None: any distance.
    """

    def __init__(self, rows: int, *, gamma: float, clip: float | None = 10.0, enabled: bool = True) -> None:
        self._gamma, self._clip, self.enabled = gamma, math.inf if clip is None else clip, enabled
        self.statistics = Statistics.none(())
        self._returns = np.zeros(rows)  # R of each row
        self._open = np.zeros(rows, np.bool_)  # rows whose transition is under way

    def __call__(self, rewards: Floats) -> Floats:
        """Rewards [...] as they are learned from."""
        if not self.enabled:
            return rewards
        return np.clip(rewards / self.statistics.deviation, -self._clip, self._clip)

    def describe(self, rewards: Floats, active: Flags, ended: Flags) -> list[Statistics]:
        """Statistics of the running returns of the ticks that follow those of the last call.

        Rewards are [T, B], `active` is [T+1, B], also after the last tick, and `ended` [T, B].
        """
        if not self.enabled:
            return []
        complete, returns = np.zeros_like(ended), np.zeros_like(rewards)
        for t in range(len(rewards)):
            self._returns[active[t]] *= self._gamma
            self._open |= active[t]
            self._returns[self._open] += rewards[t][self._open]
            complete[t] = self._open & (ended[t] | active[t + 1])
            returns[t] = self._returns
            self._returns[ended[t]] = 0.0
            self._open &= ~complete[t]
        return [Statistics.of(returns[complete])]

    def update(self, found: Sequence[Statistics]) -> None:
        for one in found:
            self.statistics = self.statistics.merged(one)

    def state_dict(self) -> dict[str, Any]:
        return self.statistics._asdict() if self.enabled else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from stored statistics; begins without where rewards were not normalized, or no longer are."""
        if state and self.enabled:
            self.statistics = Statistics.stored(state)

    def worker_state_dict(self) -> dict[str, Any]:
        """The running returns of the rows; empty where rewards are not normalized."""
        return {"returns": self._returns.copy(), "open": self._open.copy()} if self.enabled else {}

    def load_worker_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with those, if there are as many rows as there were."""
        if self.enabled and state and state["returns"].shape == self._returns.shape:
            self._returns[:], self._open[:] = state["returns"], state["open"]


class Normalization:
    """Normalization of observations and rewards, for an algorithm that learns from rollouts.

    normalization.observe(group, rollout)    after collecting: one exchange; rewards are scaled by this rollout as well
    normalization.observations(leaves)       all that goes into the network
    normalization.rewards(rewards)           rewards from which advantages are computed
    normalization.advance()                  after learning: from now on, this rollout counts for observations too

    Without a barrier, the statistics of `describe` travel with a rollout's transitions; rank 0 calls `update` with the
    statistics that have arrived.
    """

    def __init__(self, space: Space[Any], rows: int, options: Any) -> None:
        self.observations = ObservationNormalizer(
            space,
            clip=options.clip_observations,
            enabled=options.normalize_observations,
            inputs=unit_inputs(space, options.transformer),
        )
        self.rewards = RewardNormalizer(
            rows, gamma=options.gamma, clip=options.clip_rewards, enabled=options.normalize_rewards
        )
        self._newest: list[Statistics] = []  # observations of the rollout that is learned from

    def observe(self, group: Group, rollout: Rollout) -> None:
        """Takes in a whole rollout of every worker; a collective, where anything is normalized."""
        self.update(pooled(group, self.describe(rollout)))

    def describe(self, rollout: Rollout) -> list[Statistics]:
        """Statistics of a whole rollout of this worker, of observations and of rewards; to be called once."""
        if not (self.observations.enabled or self.rewards.enabled):
            return []
        leaves, _, _ = rollout.flat()
        observed = self.observations.describe(leaves, rollout.active[:-1].ravel())
        return [*observed, *self.rewards.describe(rollout.rewards, rollout.active, rollout.ended)]

    def update(self, found: Sequence[Statistics]) -> None:
        """Takes the result of `describe`: for rewards at once, for observations from `advance` on."""
        observed = len(self.observations.statistics)
        self._newest = list(found[:observed])
        self.rewards.update(found[observed:])

    def advance(self) -> None:
        """From now on, observations are scaled by the statistics of the last rollout as well."""
        self.observations.update(self._newest)

    def state_dict(self) -> dict[str, Any]:
        return {"observations": self.observations.state_dict(), "rewards": self.rewards.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if set(state) != {"observations", "rewards"}:
            raise ConfigError(f"the stored normalization holds {sorted(state)}, expected observations and rewards")
        self.observations.load_state_dict(state["observations"])
        self.rewards.load_state_dict(state["rewards"])
