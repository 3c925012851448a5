"""A policy of a run as a program uses it: one observation, one action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.spaces import flatten, row, unflatten
from arena.serving.models import PureModel
from arena.serving.policy import Infos, Policy, mask_of


class Player:
    """A policy as it was at one checkpoint.

    Attributes:
        observation_space: of one entity.
        action_space: of one entity.
        memory: what it remembers of the episode, a vector, or one per row of a batch; None: nothing. May be set.
    """

    def __init__(self, policy: Policy, name: str) -> None:
        if not hasattr(policy.algorithm, "actor"):
            text = f"the algorithm {type(policy.algorithm).__name__} cannot act outside of a run: it has no actor()"
            raise ConfigError(text, path=f"policies.{name}")
        self._policy = policy
        self.observation_space, self.action_space = policy.observation_space, policy.action_space
        served = getattr(policy.algorithm, "served", None)
        self._model = None if served is None else PureModel(policy.algorithm, 0)
        self._random = np.random.default_rng(0)
        self.memory: NDArray[np.float32] | None = None

    @property
    def remembers(self) -> bool:
        """Whether actions depend on what was seen before."""
        return self._model is not None and self._model.memory_size > 0

    def act(
        self,
        observation: Any,
        info: Infos = None,
        *,
        mask: Any = None,
        greedy: bool = True,
        entity: int | None = None,
    ) -> Any:
        """The action for one observation; a policy with a memory goes on with what it has seen before.

        Args:
            observation: a sample of the observation space.
            info: of the game; `action_mask` says which actions are allowed. Or the mask itself.
            mask: [mask_size], in the place of an info; None: all actions are allowed.
            greedy: the best action rather than a sampled one.
            entity: see `Policy.act`.
        """
        mask = mask_of(info if mask is None else mask)
        if not self.remembers:
            return self._policy.act(observation, mask, greedy=greedy, entity=entity)
        rows = np.array([self._policy.place(entity)])
        batch = [leaf[None] for leaf in flatten(self.observation_space, observation)]
        before = None if self.memory is None else self.memory[None]
        actions, after = self._recall(rows, batch, None if mask is None else mask[None], before, greedy=greedy)
        self.memory = after[0]
        return row(self.action_space, actions, 0)

    def act_batch(self, observations: Any, infos: Infos = None, *, greedy: bool = True) -> Any:
        """The actions for a batch of observations with the leading axis N.

        Args:
            observations: a batched sample of the observation space.
            infos: as of a vector environment, or one per row; `action_mask` says which actions are allowed, and
                `_final_obs`, of a vector environment, which rows have ended and forget.
            greedy: the best actions rather than sampled ones.
        """
        masks = mask_of(infos)
        if not self.remembers:
            return self._policy.act(observations, masks, greedy=greedy)
        before = self.memory
        if before is not None and isinstance(infos, Mapping) and "_final_obs" in infos:
            before = np.where(np.asarray(infos["_final_obs"])[:, None], np.float32(0), before)
        batch = flatten(self.observation_space, observations)
        actions, self.memory = self._recall(np.arange(len(batch[0])), batch, masks, before, greedy=greedy)
        return actions

    def _recall(
        self,
        rows: NDArray[np.intp],
        leaves: Sequence[NDArray[Any]],
        masks: NDArray[Any] | None,
        memory: NDArray[np.float32] | None,
        *,
        greedy: bool,
    ) -> tuple[Any, NDArray[np.float32]]:
        """Actions of rows, and what they remember then; `memory` None: nothing yet."""
        assert self._model is not None, "it remembers"
        before = np.zeros((len(rows), self._model.memory_size), np.float32) if memory is None else memory
        random = None if greedy else [self._random] * len(rows)
        return self._model.act(rows, unflatten(self.observation_space, leaves), masks, before, random)

    def reset(self) -> None:
        """Forgets what was seen of the episode."""
        self.memory = None
        self._policy.reset()

    def log_prob(self, observations: Any, actions: Any, masks: NDArray[np.int8] | None = None) -> NDArray[np.float64]:
        """Log-probabilities [N] of the actions of one episode, in its order.

        Args:
            observations: a batched sample [N, ...].
            actions: [N, ...] as the environment takes them.
            masks: [N, mask_size] which were allowed; None: all.

        Raises:
            ConfigError: its algorithm does not tell probabilities.
        """
        return self._policy.log_prob(observations, actions, masks)
