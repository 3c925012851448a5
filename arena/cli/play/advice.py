"""What a policy thinks of the choices that a player has: a probability of each, and the value of the situation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena import registry
from arena.cli.play.decisions import Decision, joined
from arena.errors import ConfigError
from arena.game.spaces import stack
from arena.preflight.spec import spec_of
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from arena.records import checkpoint


class Advisor:
    """A policy that is asked, and does not play.

    The probabilities are from `log_prob` of its algorithm: for each choice of a decision, with all other decisions
    fixed; a policy decides them independently of each other.

    Args:
        name: of the policy.
        given: its `algorithm`, `options` and `load`, a checkpoint's file or None.
        observation_space: of the seat.
        action_space: of the seat.

    Raises:
        ConfigError: the algorithm does not take the seat, or its checkpoint is of other spaces.
    """

    def __init__(
        self, name: str, given: Mapping[str, Any], observation_space: Space[Any], action_space: Space[Any]
    ) -> None:
        cls, options = configured(name, given)
        if spec_of(cls).checks_spaces:
            cls.check(observation_space, action_space)
        env = SpecVectorEnv(observation_space, action_space, rows=1)
        self._algorithm = from_spaces(
            cls, env, StubGroup(name, "gradients", seed=0, shared_seed=0), ticks=1, options=options
        )
        if given["load"] is not None:
            self._algorithm.load_state_dict(checkpoint.load(Path(given["load"])).state)
        self._observation_space, self._action_space = observation_space, action_space

    def probabilities(
        self, observation: Any, mask: NDArray[np.int8] | None, decided: Sequence[Decision]
    ) -> list[list[float]]:
        """For each decision, the probabilities of its options, which add up to 1."""
        found = []
        first = [decision.options[0].choice for decision in decided]
        for place, decision in enumerate(decided):
            actions = [
                joined(self._action_space, decided, [*first[:place], option.choice, *first[place + 1 :]])
                for option in decision.options
            ]
            rows = len(actions)
            log_probs = self._algorithm.log_prob(
                stack(self._observation_space, [observation] * rows),
                stack(self._action_space, actions),
                None if mask is None else np.repeat(mask[None], rows, axis=0),
            )
            weights = np.exp(log_probs - log_probs.max())
            found.append((weights / weights.sum()).tolist())
        return found

    def value(self, observation: Any) -> float | None:
        """The discounted return that the policy expects; None if its algorithm does not tell."""
        if not hasattr(self._algorithm, "state_value"):
            return None
        values = self._algorithm.state_value(stack(self._observation_space, [observation]))
        return None if values is None else float(values[0])


def configured(name: str, given: Mapping[str, Any]) -> registry.ConfiguredAlgorithm:
    """The algorithm of a policy that is to advise, and its options.

    Raises:
        ConfigError: it tells no probabilities, or has a memory.
    """
    found = registry.configured_algorithm(
        given["algorithm"], given["options"], acts=True, path=f"policies.{name}", any_device=True
    )
    if not hasattr(found.cls, "log_prob"):
        raise ConfigError(f"{name!r} tells no probabilities: {given['algorithm']} has no log_prob()", path="--advice")
    if found.options.get("recurrent"):
        raise ConfigError(f"{name!r} has a memory, and has seen nothing of this game", path="--advice")
    return found
