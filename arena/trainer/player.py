"""A policy of a run as a program uses it: one observation, one action."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.serving.policy import Infos, Policy


class Player:
    """A policy as it was at one checkpoint.

    Attributes:
        observation_space: of one entity.
        action_space: of one entity.
    """

    def __init__(self, policy: Policy, name: str) -> None:
        if not hasattr(policy.algorithm, "actor"):
            text = f"the algorithm {type(policy.algorithm).__name__} cannot act outside of a run: it has no actor()"
            raise ConfigError(text, path=f"policies.{name}")
        self._policy = policy
        self.observation_space, self.action_space = policy.observation_space, policy.action_space

    @property
    def memory(self) -> NDArray[np.float32] | None:
        """What it remembers, of calls without `entity`: a vector, or one per row of a batch. May be set."""
        return self._policy.memories.get(None)

    @memory.setter
    def memory(self, memory: NDArray[np.float32] | None) -> None:
        self._policy.remember(memory)

    @property
    def remembers(self) -> bool:
        """Whether actions depend on what was seen before."""
        return self._policy.memory_size > 0

    def act(
        self,
        observation: Any,
        info: Infos = None,
        *,
        mask: Any = None,
        greedy: bool = True,
        entity: str | int | None = None,
    ) -> Any:
        """The action for one observation, or a batch of actions for a batch; see `Policy.act`."""
        return self._policy.act(observation, info, mask=mask, greedy=greedy, entity=entity)

    def act_batch(self, observations: Any, infos: Infos = None, *, greedy: bool = True) -> Any:
        """The actions for a batch of observations with the leading axis N; see `Policy.act`."""
        return self._policy.act(observations, infos, greedy=greedy)

    def reset(self, entity: str | int | None = None) -> None:
        """Forgets what an entity has seen of the episode; None: all."""
        self._policy.reset(entity)

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
