"""Models: they choose the actions of a policy for the rows that ask, in one process and without learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from arena.game.spaces import flatten, leaves_of, unflatten
from arena.serving.policy import Policy

Numbers = NDArray[np.intp]
Masks = NDArray[np.int8] | None
Memory = NDArray[np.float32]
Random = Sequence[np.random.Generator] | None


class Model(Protocol):
    """A policy at one checkpoint.

    Attributes:
        version: the tick of the checkpoint; -1: there is none.
        engine: what computes it.
        memory_size: numbers that a row remembers, in the server; 0: none.
    """

    version: int
    engine: str
    memory_size: int = 0

    def begin(self, row: int) -> None:
        """A game begins in a row; for models that keep a state of their own."""
        return

    def act(self, rows: Numbers, observations: Any, masks: Masks, memory: Memory, random: Random) -> tuple[Any, Memory]:
        """The actions of some rows [K, ...], and the memory after them.

        Args:
            rows: [K] their numbers; of a team's entities, one after the other.
            observations: a batched sample [K, ...].
            masks: [K, mask_size] the allowed actions; None: all.
            memory: [K, memory_size]; zeros at the beginning of a game.
            random: a generator for each row; None: the best actions.
        """
        ...


class PureModel(Model):
    """A model that is a function: of algorithms that have `served()`."""

    engine = "torch"

    def __init__(self, algorithm: Any, version: int) -> None:
        self.algorithm, self.version = algorithm, version
        self._served = algorithm.served()
        self.memory_size, self.entities = self._served.memory_size, getattr(self._served, "entities", 0)

    def act(self, rows: Numbers, observations: Any, masks: Masks, memory: Memory, random: Random) -> tuple[Any, Memory]:
        """See `Model`."""
        places = [(rows % self.entities).astype(np.int64)] if self.entities else []
        acted: tuple[Any, Memory] = self._served.act(observations, masks, memory, random, *places)
        return acted


class ActorModel(Model):
    """A model of an algorithm that has `actor()` alone, which acts in all rows and keeps their state."""

    engine = "actor"

    def __init__(self, policy: Policy, rows: int, *, greedy: bool) -> None:
        self.version = -1 if policy.ticks is None else policy.ticks
        self._act = policy.actor(rows, greedy=greedy)
        self._space, self._action_space = policy.observation_space, policy.action_space
        self._leaves = [np.zeros((rows, *leaf.shape), leaf.dtype) for leaf in leaves_of(self._space)]
        self._begun = np.zeros(rows, np.bool_)

    def begin(self, row: int) -> None:
        """The actor forgets what it knows of the row."""
        self._begun[row] = True

    def act(self, rows: Numbers, observations: Any, masks: Masks, memory: Memory, random: Random) -> tuple[Any, Memory]:
        """See `Model`."""
        for leaf, observed in zip(self._leaves, flatten(self._space, observations), strict=True):
            leaf[rows] = observed
        active = np.zeros(len(self._begun), np.bool_)
        active[rows] = True
        infos: dict[str, Any] = {"active": active}  # as a user's own actor reads them
        if self._begun.any():
            infos["_final_obs"] = self._begun.copy()
        if masks is not None:
            infos["action_mask"] = np.ones((len(active), masks.shape[1]), np.int8)
            infos["action_mask"][rows] = masks
        try:
            actions = self._act(unflatten(self._space, self._leaves), infos)
        except Exception:
            for leaf in self._leaves:  # else the observation that it cannot take would be in the next batch too
                leaf[rows] = 0
            raise
        self._begun[:] = False
        chosen = [leaf[rows] for leaf in flatten(self._action_space, actions)]
        return unflatten(self._action_space, chosen), memory


def model_of(policy: Policy, rows: int, *, greedy: bool) -> Model:
    """The model of a policy that plays in so many rows."""
    if getattr(policy.algorithm, "served", None) is not None:
        return PureModel(policy.algorithm, -1 if policy.ticks is None else policy.ticks)
    return ActorModel(policy, rows, greedy=greedy)
