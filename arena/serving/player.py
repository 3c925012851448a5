"""Plays the entities of one policy in all served games; the rows that ask are computed in one batch."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Interface
from arena.game.spaces import flatten, no_op, unflatten
from arena.serving.models import ActorModel, Model

_log = logging.getLogger(__name__)


class Player:
    """The entities of one policy.

    Args:
        model: chooses the actions; may be replaced by `take`.
        entities: the indices of the policy's entities, which have the same spaces.
        slots: of games at the same time.
        seed: of the draws; None: the best actions.
        max_batch: rows that are computed together.
    """

    def __init__(
        self,
        name: str,
        model: Model,
        entities: Sequence[int],
        interface: Interface,
        slots: int,
        *,
        seed: int | None,
        max_batch: int,
    ) -> None:
        self.name, self.model, self.entities = name, model, list(entities)
        self.versions = set[int]()  # of the models that have answered
        self._seed, self._max_batch = seed, max_batch
        self._observation_space = interface.observation_spaces[self.entities[0]]
        self._action_space = interface.action_spaces[self.entities[0]]
        rows = slots * len(self.entities)
        self._memory = np.zeros((rows, model.memory_size), np.float32)
        self._random: dict[int, np.random.Generator] = {}  # by row whose game has begun

    def take(self, model: Model) -> bool:
        """Replaces the model by a newer one, or by another engine of the same; returns whether it did.

        The games' memory stays.
        """
        if model.version < self.model.version:
            return False
        self.model = model
        return True

    def warm_up(self) -> float:
        """Computes batches that no game sees, as the first ones are slow; returns the seconds of the quickest.

        A model that keeps a state of its own computes none, as they would change it; its time is unknown (infinite).
        """
        if isinstance(self.model, ActorModel):
            return math.inf
        rows, space = np.arange(min(len(self._memory), self._max_batch)), self._observation_space
        observed = unflatten(space, [np.repeat(leaf[None], len(rows), axis=0) for leaf in flatten(space, no_op(space))])
        random = None if self._seed is None else [np.random.default_rng(0) for _ in rows]
        quickest = math.inf
        for _ in range(5):
            begun = time.perf_counter()
            self.model.act(rows, observed, None, self._memory[rows], random)
            quickest = min(quickest, time.perf_counter() - begun)
        return quickest

    def begin(self, slot: int, game: str) -> None:
        """A game begins in a slot; its draws depend on the seed and on its name alone."""
        for place, entity in enumerate(self.entities):
            row = slot * len(self.entities) + place
            self._memory[row] = 0.0
            self.model.begin(row)
            if self._seed is not None:
                key = int.from_bytes(hashlib.sha256(game.encode()).digest()[:8], "little")
                self._random[row] = np.random.default_rng([self._seed, entity, key])

    def act(
        self,
        asks: NDArray[np.bool_],
        observations: Sequence[Any],
        masks: Sequence[NDArray[np.int8] | None],
        actions: Sequence[Any],
    ) -> list[int]:
        """Writes the actions of the rows that ask.

        Args:
            asks: [L, E] by slot and entity.
            observations: by entity, a batched sample [L, ...].
            masks: by entity, [L, mask_size] or None.
            actions: by entity, a batched action [L, ...] that is written to.

        Returns:
            the slots on which the model has failed.
        """
        count = len(self.entities)
        slots = [np.flatnonzero(asks[:, entity]) for entity in self.entities]
        rows = np.concatenate([found * count + place for place, found in enumerate(slots)])
        if not len(rows):
            return []
        self.versions.add(self.model.version)
        by_entity = [
            [leaf[found] for leaf in flatten(self._observation_space, observations[entity])]
            for entity, found in zip(self.entities, slots, strict=True)
        ]
        observed = by_entity[0] if count == 1 else [np.concatenate(leaf) for leaf in zip(*by_entity, strict=True)]
        by_entity_masks = [masks[entity] for entity in self.entities]
        allowed = None
        if by_entity_masks[0] is not None:
            allowed = np.concatenate(
                [mask[found] for mask, found in zip(by_entity_masks, slots, strict=True) if mask is not None]
            )

        def compute(batch: slice) -> tuple[NDArray[np.intp], list[NDArray[Any]]]:
            """The rows of a batch of positions, and the leaves of their actions; their memory is kept."""
            which = rows[batch]
            acted, memory = self.model.act(
                which,
                unflatten(self._observation_space, [leaf[batch] for leaf in observed]),
                None if allowed is None else allowed[batch],
                self._memory[which],
                None if self._seed is None else [self._random[row] for row in which.tolist()],
            )
            if self.model.memory_size:
                self._memory[which] = memory
            return which, flatten(self._action_space, acted)

        failed: list[int] = []
        computed: list[tuple[NDArray[np.intp], list[NDArray[Any]]]] = []
        for begin in range(0, len(rows), self._max_batch):
            end = min(begin + self._max_batch, len(rows))
            try:
                computed.append(compute(slice(begin, end)))
            except Exception:
                for position in range(begin, end):
                    try:
                        computed.append(compute(slice(position, position + 1)))
                    except Exception:
                        _log.exception("policy %r has failed on one observation", self.name)
                        failed.append(int(rows[position]) // count)
        for which, leaves in computed:
            for place, entity in enumerate(self.entities):
                mine = which % count == place
                for into, leaf in zip(flatten(self._action_space, actions[entity]), leaves, strict=True):
                    into[which[mine] // count] = leaf[mine]
        return failed
