"""Clones of served policies: `RemoteModel.clone` gives an actor the policy as it was at an earlier checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from arena.errors import ConfigError
from arena.external.actor import EntityLink, Forward, RemoteModel
from arena.game.spaces import flatten, row, unflatten
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.serving.models import ActorModel, Model


class _Shared:
    """A model that several clones may use."""

    def __init__(self, model: Model) -> None:
        self.model, self.lock = model, threading.Lock()


class ClonedModel(RemoteModel):
    """A policy at one checkpoint, which answers at once, one observation at a time, with a memory of its own."""

    def __init__(self, link: EntityLink, shared: _Shared) -> None:
        super().__init__(link)
        self._shared, self._model = shared, shared.model
        self._memory = np.zeros((1, self._model.memory_size), np.float32)
        self._model.begin(0)

    @property
    def version(self) -> int:
        """The tick of the checkpoint."""
        return self._model.version

    def forward(self, observation: Any, *, mask: Any = None) -> Forward:
        """See `RemoteModel.forward`; the game's own requests are not touched."""
        link = self._link
        sample, allowed = link.fitted_observation(observation), link.fitted_mask(mask)
        space = link.observation_space
        batch = unflatten(space, [leaf[None] for leaf in flatten(space, sample)])
        masks = None if allowed is None else allowed[None]
        with self._shared.lock:  # actors run in several threads
            actions, self._memory = self._model.act(np.zeros(1, np.intp), batch, masks, self._memory, None)
        forward = Forward(link)
        forward.answered(row(link.action_space, actions, 0), self._model.version)
        return forward

    def record(self, observation: Any, action: Any, *, mask: Any = None) -> None:
        """Nothing can be recorded for a clone: the policy that plays is another.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("a clone only answers; record the action with the entity's own remote_model")


class Clones:
    """Makes clones; clones that exist at the same time share a checkpoint, if the model has no state of its own."""

    def __init__(self, folder: RunFolder, load: Callable[[EntityLink, int], Model]) -> None:
        self._folder, self._load = folder, load
        self._shared: WeakValueDictionary[tuple[str, int], _Shared] = WeakValueDictionary()
        self._lock = threading.Lock()

    def __call__(self, link: EntityLink, step: int) -> RemoteModel:
        """The policy of an entity at its newest checkpoint up to a tick; -1: the newest.

        Raises:
            ConfigError: there is none.
        """
        files = checkpoint.list_checkpoints(self._folder.checkpoints_path(link.policy))
        ticks = [tick for tick in map(checkpoint.ticks_of, files) if step == -1 or tick <= step]
        if not ticks:
            raise ConfigError(f"{link.policy!r} has no checkpoint up to tick {step}")
        key = link.policy, max(ticks)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                shared = _Shared(self._load(link, key[1]))
                if not isinstance(shared.model, ActorModel):
                    self._shared[key] = shared
        return ClonedModel(link, shared)
