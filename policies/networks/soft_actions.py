"""What soft actor-critic learns: actions of both kinds, actor, critics and temperature.

ContinuousActions  a Box: an expectation over actions is one sample, made of noise so that it can be differentiated
DiscreteActions    a Discrete space: the expectation is an exact sum
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from torch import Tensor, nn

from policies.common.options import wrong
from policies.networks.box import SquashedGaussian, UnitBox
from policies.networks.critics import ActorAndCritics, Critics
from policies.networks.distributions import allow, normal, uniform_entropy
from policies.networks.heads import DiscreteHead

_OF_UNIFORM = 0.98  # of the greatest entropy: the target of arXiv 1910.07207 for choices


def check_reachable(target_entropy: float | str, space: Space[Any]) -> None:
    """Refuses a target entropy that no policy can have: the temperature would grow, or fall, without end.

    Raises:
        ConfigError: the target is negative, or not below the entropy of uniform choice, in a Discrete space; not below
            the entropy of uniform numbers in [-1, 1] in a Box.
    """
    if target_entropy == "auto":
        return
    wanted = float(target_entropy)
    if isinstance(space, spaces.Discrete) and space.n == 1:
        reached, expected = False, "auto, as there is nothing to choose"
    elif isinstance(space, spaces.Discrete):
        most = math.log(space.n)
        reached, expected = 0 <= wanted < most, f"auto, or at least 0 and less than {most:.4g}, as uniform choice has"
    else:
        most = math.prod(space.shape or ()) * math.log(2)
        reached, expected = wanted < most, f"auto, or less than {most:.4g}, as uniform numbers from -1 to 1 have"
    if not reached:
        raise wrong("target_entropy", target_entropy, f"{expected}: the actions are {space}")


Critic = Callable[[Tensor | None], Tensor]
"""Q [k, N, critic_outputs] of actions as the critics take them, see `ContinuousActions.to_critics`."""


class SoftValues(NamedTuple):
    """Soft values of states, and the policy's entropies there."""

    values: Tensor  # V(s) [N]
    entropies: Tensor  # of the policy [N], in nats; of numbers an estimate


class ContinuousActions(UnitBox):
    """A Box: a Gaussian that tanh squashes into the bounds. The critics value one action, Q(s, a).

    Attributes:
        outputs: numbers that the actor gives.
        critic_inputs, critic_outputs: numbers of an action that the critics take, and values that they give.
    """

    def __init__(self, space: Space[Any], target_entropy: float | str) -> None:
        super().__init__(space)
        size = self.outputs
        self.outputs, self.critic_inputs, self.critic_outputs = 2 * size, size, 1
        self._target_entropy = -float(size) if target_entropy == "auto" else float(target_entropy)

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Actions of the policy with the actor's outputs [N, outputs]; generator None: the greedy ones."""
        policy = SquashedGaussian(outputs)
        return policy.mode() if generator is None else policy.sample(self._noise(outputs, generator))

    def to_critics(self, actions: Tensor) -> Tensor | None:
        """The actions as the critics take them; None where they value all choices at once."""
        return actions

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) [k, N] of actions, in the critics' values [k, N, critic_outputs]."""
        return values.squeeze(-1)

    def soft_values(
        self, outputs: Tensor, mask: Tensor | None, critics: Critic, alpha: float, generator: torch.Generator
    ) -> SoftValues:
        """V(s) = E [min Q(s, a) - alpha log pi(a|s)] [N], a of the policy with these outputs: equation (3)."""
        policy, noise = SquashedGaussian(outputs), self._noise(outputs, generator)
        least = critics(policy.sample(noise)).squeeze(-1).min(0).values
        log_probs = policy.log_prob(noise)
        return SoftValues(least - alpha * log_probs, -log_probs)

    def target_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The entropy [N] that the temperature steers to."""
        return outputs.new_full((len(outputs),), self._target_entropy)

    def _noise(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        return normal((len(outputs), self.critic_inputs), generator).to(outputs.device)


class DiscreteActions(DiscreteHead):
    """A Discrete space: a probability per choice; the methods of `ContinuousActions`. The critics value all choices.

    The target entropy `auto` is a part of the greatest entropy that the mask allows.
    """

    def __init__(self, space: spaces.Discrete, target_entropy: float | str) -> None:
        super().__init__(space)
        self.critic_inputs, self.critic_outputs = 0, self.mask_size
        self._target_entropy = target_entropy

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.choose(torch.zeros(rows, self.outputs), mask, generator)

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        policy = self.distribution(outputs, mask)
        if generator is None:
            return policy.mode()
        return policy.sample(self.noise(1, len(outputs), generator)[0].to(outputs.device))

    def to_critics(self, actions: Tensor) -> Tensor | None:
        return None

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        return values.gather(2, actions.expand(len(values), -1).unsqueeze(-1)).squeeze(-1)

    def soft_values(
        self, outputs: Tensor, mask: Tensor | None, critics: Critic, alpha: float, generator: torch.Generator
    ) -> SoftValues:
        log_probs = allow(outputs, mask).log_softmax(-1)
        probs = log_probs.exp()
        values = (probs * (critics(None).amin(0) - alpha * log_probs)).sum(-1)
        return SoftValues(values, -(probs * log_probs).sum(-1))

    def target_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        if self._target_entropy != "auto":
            return outputs.new_full((len(outputs),), float(self._target_entropy))
        return _OF_UNIFORM * uniform_entropy(outputs, mask)


SoftActions = ContinuousActions | DiscreteActions


def soft_actions(space: Space[Any], target_entropy: float | str) -> SoftActions:
    """The kind of actions of a space.

    Raises:
        ConfigError: it is neither Discrete nor a Box of floats with bounds.
    """
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space, target_entropy)
    return ContinuousActions(space, target_entropy)


class Temperature(nn.Module):
    """alpha, by its logarithm; it begins at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.zeros(()))


class SoftActorCritic(ActorAndCritics):
    """All that is learned; the temperature only where it is not fixed.

    Args:
        critics, outputs, layers: as of `ActorAndCritics`.
        temperature: or None.
    """

    def __init__(self, critics: Critics, outputs: int, *, temperature: Temperature | None, **layers: Any) -> None:
        super().__init__(critics, outputs, **layers)
        self.temperature = temperature
