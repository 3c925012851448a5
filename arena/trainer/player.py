"""A policy of a run as a program uses it: one observation, one action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.serving.policy import Policy


class Player:
    """A policy as it was at one checkpoint.

    Args:
        policy: with what it has learned.
        name: of the policy.

    Attributes:
        observation_space: of one entity.
        action_space: of one entity.
    """

    observation_space: Space[Any]
    action_space: Space[Any]

    def __init__(self, policy: Policy, name: str) -> None:
        if not hasattr(policy.algorithm, "actor"):
            raise ConfigError(
                f"the algorithm {type(policy.algorithm).__name__} cannot act outside of a run: it has no actor()",
                path=f"policies.{name}",
            )
        self._policy = policy
        self.observation_space, self.action_space = policy.observation_space, policy.action_space

    def act(self, observation: Any, info: Mapping[str, Any] | None = None, *, greedy: bool = True) -> Any:
        """The action for one observation; a policy with a memory goes on with what it has seen before.

        Args:
            observation: a sample of the observation space.
            info: of the game; `action_mask` says which actions are allowed.
            greedy: the best action rather than a sampled one.
        """
        mask = (info or {}).get("action_mask")
        return self._policy.act(observation, None if mask is None else np.asarray(mask), greedy=greedy)

    def act_batch(
        self,
        observations: Any,
        infos: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        greedy: bool = True,
    ) -> Any:
        """The actions for a batch of observations with the leading axis N.

        Args:
            observations: a batched sample of the observation space.
            infos: as of a vector environment, or one per row; `action_mask` says which actions are allowed.
            greedy: the best actions rather than sampled ones.
        """
        masks: NDArray[Any] | None = None
        if isinstance(infos, Mapping):
            masks = infos.get("action_mask")
        elif infos is not None and any("action_mask" in info for info in infos):
            masks = np.stack([info["action_mask"] for info in infos])
        return self._policy.act(observations, masks, greedy=greedy)

    def reset(self) -> None:
        """Forgets what was seen of the episode."""
        self._policy.reset()

    def log_prob(self, observations: Any, actions: Any, masks: NDArray[np.int8] | None = None) -> NDArray[np.float64]:
        """Log-probabilities [N] of the actions of one episode, in its order.

        Raises:
            ConfigError: its algorithm does not tell probabilities.
        """
        return self._policy.log_prob(observations, actions, masks)
