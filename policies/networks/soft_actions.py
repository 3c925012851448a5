"""What soft actor-critic learns: actions of both kinds, actor, critics and temperature.

    ContinuousActions  a Box: an expectation over actions is one sample, made of noise so that it can be differentiated
    DiscreteActions    a Discrete space: the expectation is an exact sum

`SoftActions` is what both have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
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
"""Q [k, N, critic_outputs] of actions as the critics take them, see `SoftActions.to_critics`."""


class SoftValues(NamedTuple):
    """Soft values of states, and the policy's entropies there."""

    values: Tensor  # V(s) [N]
    entropies: Tensor  # of the policy [N], in nats; of numbers an estimate


class SoftActions(Protocol):
    """One entity's actions.

    Attributes:
        shape, dtype, mask_size: of actions as learned from.
        outputs: numbers that the actor gives.
        critic_inputs, critic_outputs: numbers of an action that the critics take, and values that they give.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    mask_size: int
    outputs: int
    critic_inputs: int
    critic_outputs: int

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A batch of actions as the vector environment takes them."""
        ...

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        """The inverse of `to_env`."""
        ...

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        """Uniformly random actions [rows, *shape]."""
        ...

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Actions of the policy with the actor's outputs [N, outputs]; generator None: the greedy ones."""
        ...

    def to_critics(self, actions: Tensor) -> Tensor | None:
        """The actions as the critics take them; None where they value all choices at once."""
        ...

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        """Q(s, a) [k, N] of actions, in the critics' values [k, N, critic_outputs]."""
        ...

    def soft_values(
        self, outputs: Tensor, mask: Tensor | None, critics: Critic, alpha: float, generator: torch.Generator
    ) -> SoftValues:
        """V(s) = E [min Q(s, a) - alpha log pi(a|s)] [N], a of the policy with these outputs: equation (3).

        Args:
            outputs: of the actor, [N, outputs].
            mask: bool [N, mask_size].
            critics: the values of actions in the state of each row.
            alpha: the temperature.
            generator: for samples of actions.
        """
        ...

    def target_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The entropy [N] that the temperature steers to."""
        ...


class ContinuousActions:
    """A Box: a Gaussian that tanh squashes into the bounds. It implements `SoftActions`."""

    def __init__(self, space: Space[Any], target_entropy: float | str) -> None:
        self._box = UnitBox(space)
        self.shape: tuple[int, ...]
        self.shape, self.dtype, self.mask_size = self._box.shape, self._box.dtype, 0
        self.outputs, self.critic_inputs, self.critic_outputs = 2 * self._box.outputs, self._box.outputs, 1
        self._target_entropy = -float(self._box.outputs) if target_entropy == "auto" else float(target_entropy)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self._box.to_env(actions)

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        return self._box.from_env(actions)

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        return self._box.uniform(rows, generator)

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        policy = SquashedGaussian(outputs)
        return policy.mode() if generator is None else policy.sample(self.noise(outputs, generator))

    def to_critics(self, actions: Tensor) -> Tensor | None:
        return actions

    def of_actions(self, values: Tensor, actions: Tensor) -> Tensor:
        return values.squeeze(-1)

    def soft_values(
        self, outputs: Tensor, mask: Tensor | None, critics: Critic, alpha: float, generator: torch.Generator
    ) -> SoftValues:
        policy, noise = SquashedGaussian(outputs), self.noise(outputs, generator)
        least = critics(policy.sample(noise)).squeeze(-1).min(0).values
        log_probs = policy.log_prob(noise)
        return SoftValues(least - alpha * log_probs, -log_probs)

    def target_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        return outputs.new_full((len(outputs),), self._target_entropy)

    def noise(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """Standard normal noise [N, d] for samples of actions."""
        return normal((len(outputs), self._box.outputs), generator).to(outputs.device)


class DiscreteActions:
    """A Discrete space: a probability per choice. It implements `SoftActions`.

    The target entropy `auto` is a part of the greatest entropy that the mask allows.
    """

    def __init__(self, space: spaces.Discrete, target_entropy: float | str) -> None:
        self._head = DiscreteHead(space)
        self.shape, self.dtype, self.mask_size = self._head.shape, self._head.dtype, self._head.mask_size
        self.outputs, self.critic_inputs, self.critic_outputs = self.mask_size, 0, self.mask_size
        self._target_entropy = target_entropy

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return self._head.to_env(actions)

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        """Actions of the environment as learned from."""
        return self._head.from_env(actions)

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.choose(torch.zeros(rows, self.outputs), mask, generator)

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        policy = self._head.distribution(outputs, mask)
        if generator is None:
            return policy.mode()
        return policy.sample(self._head.noise(1, len(outputs), generator)[0].to(outputs.device))

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
