"""Actions as functions of an actor's outputs and of noise, so that a critic's gradient reaches the actor.

    outputs, noise --sample--> inputs of a critic, differentiable by the outputs

There is a class for each kind of actions.

    TanhActions              a Box: tanh of the outputs, without noise
    SquashedGaussianActions  a Box: a Gaussian that tanh squashes, see `policies.networks.box`
    GumbelSoftmaxActions     a Discrete space: straight-through Gumbel-softmax (Jang et al. 2017, arXiv 1611.01144)

    y_i = exp((z_i + g_i) / tau) / sum_j exp((z_j + g_j) / tau),   g: standard Gumbel noise               eq. (2)

Critics and the game are given the one-hot vector of the largest y, which follows softmax(z); the gradient is that of y
itself (section 2.2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from torch import Tensor
from torch.nn import functional

from policies.networks.box import SquashedGaussian, UnitBox
from policies.networks.distributions import allow, gumbel, normal, uniform_entropy
from policies.networks.heads import DiscreteHead

_OF_UNIFORM = 0.3  # of the greatest entropy; with team-mates that act nearly at random only safe actions pay


class Sample(NamedTuple):
    """Actions that can be differentiated."""

    inputs: Tensor  # [N, inputs], as critics take them
    entropies: Tensor  # [N] of the actor there, in nats; an estimate, or exact; 0 of an actor without noise


class TanhActions(UnitBox):
    """A Box with bounds, without noise; actions are [N, d] in [-1, 1].

    Attributes:
        outputs: numbers that the actor gives.
        inputs: numbers of an action that critics take.
    """

    def __init__(self, space: Space[Any]) -> None:
        super().__init__(space)
        self.inputs = self.outputs

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        """Actions [N, *shape] for outputs [N, outputs]; generator None: the greedy ones."""
        return outputs.tanh()

    def to_critics(self, actions: Tensor) -> Tensor:
        """The critics' inputs [..., inputs] for actions [..., *shape]."""
        return actions

    def sample(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator) -> Sample:
        """Actions for outputs [N, outputs], which can be differentiated; mask bool [N, mask_size]."""
        return Sample(outputs.tanh(), outputs.new_zeros(len(outputs)))

    def wanted_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        """The entropy [N], in nats, that soft actors aim at by default."""
        return outputs.new_zeros(len(outputs))


class SquashedGaussianActions(TanhActions):
    """A Box with bounds, and a policy of means and deviations; its entropy is estimated from the sample itself."""

    def __init__(self, space: Space[Any]) -> None:
        super().__init__(space)
        self.outputs = 2 * self.inputs

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        policy = SquashedGaussian(outputs)
        return policy.mode() if generator is None else policy.sample(self._noise(outputs, generator))

    def sample(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator) -> Sample:
        policy, noise = SquashedGaussian(outputs), self._noise(outputs, generator)
        return Sample(policy.sample(noise), -policy.log_prob(noise))

    def wanted_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        return outputs.new_full((len(outputs),), -float(self.inputs))

    def _noise(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        return normal((len(outputs), self.inputs), generator).to(outputs.device)


class GumbelSoftmaxActions(DiscreteHead):
    """A Discrete space; actions are indices [N] from 0. It has the methods of `TanhActions`.

    Args:
        space: of one entity's actions.
        temperature: tau; the lower it is, the nearer y is to what is played, and the more its gradient varies.
    """

    def __init__(self, space: spaces.Discrete, *, temperature: float) -> None:
        super().__init__(space)
        self._temperature, self.inputs = temperature, self.mask_size

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        return self.choose(torch.zeros(rows, self.outputs), mask, generator)

    def choose(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> Tensor:
        logits = allow(outputs, mask)
        return (logits if generator is None else logits + self._noise(outputs, generator)).argmax(-1)

    def to_critics(self, actions: Tensor) -> Tensor:
        return functional.one_hot(actions, self.inputs).float()

    def sample(self, outputs: Tensor, mask: Tensor | None, generator: torch.Generator) -> Sample:
        logits = allow(outputs, mask)
        disturbed = logits + self._noise(outputs, generator)
        relaxed = (disturbed / self._temperature).softmax(-1)  # y
        log_probs = logits.log_softmax(-1)
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        chosen = self.to_critics(disturbed.argmax(-1))
        return Sample(chosen + (relaxed - relaxed.detach()), entropies)  # the value of the one, the gradient of y

    def wanted_entropy(self, outputs: Tensor, mask: Tensor | None) -> Tensor:
        return _OF_UNIFORM * uniform_entropy(outputs, mask)

    def _noise(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        return gumbel(outputs.shape, generator).to(outputs.device)


Actions = TanhActions | GumbelSoftmaxActions
