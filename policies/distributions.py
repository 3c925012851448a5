"""Distributions of actions, as thin as the hot loop wants them.

Sampling is a pure function of the parameters and of noise that was drawn before, so that a whole rollout's noise
comes from one call and no generator is touched per tick. `N` is the batch; log-probabilities and entropies are [N].

A forbidden choice (mask 0) gets a logit so low that its probability is exactly 0. A row in which nothing is allowed
is one that does not act; it samples anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

FORBIDDEN = -1e9  # finite: 0 * log(0) would be nan in the entropy and its gradient
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """A batch of distributions over actions."""

    def sample(self, noise: Tensor) -> Tensor:
        """Actions [N, ...] that follow the distribution when the noise follows the class's own `noise`."""
        ...

    def mode(self) -> Tensor:
        """The most probable actions [N, ...]."""
        ...

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability, or log-density, [N] of actions as `sample` gives them."""
        ...

    def entropy(self) -> Tensor:
        """Entropy [N] in nats."""
        ...


def allow(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The logits with those of forbidden choices (mask false) sunk; mask None allows everything."""
    return logits if mask is None else torch.where(mask, logits, FORBIDDEN)


def gumbel(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise, float32: argmax(logits + noise) follows softmax(logits)."""
    exponential = torch.empty(*shape, dtype=torch.float32).exponential_(generator=generator)
    return exponential.clamp_min_(1e-30).log_().neg_()  # a zero would be infinite noise: stronger than any mask


def logistic(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Standard logistic noise, float32: logit + noise > 0 has the probability sigmoid(logit)."""
    return gumbel(shape, generator).sub_(gumbel(shape, generator))


def normal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Standard normal noise, float32."""
    return torch.empty(*shape, dtype=torch.float32).normal_(generator=generator)


class Categorical:
    """One choice out of `n`; actions are indices [N], int64.

    Args:
        logits: [N, n], not normalised.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, noise: Tensor) -> Tensor:
        return (self.logits + noise).argmax(-1)  # the Gumbel-max trick; noise: `gumbel`, [N, n]

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self._log_probs().gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        log_probs = self._log_probs()
        return -(log_probs.exp() * log_probs).sum(-1)

    def _log_probs(self) -> Tensor:
        if not hasattr(self, "_normalised"):
            self._normalised = functional.log_softmax(self.logits, -1)
        return self._normalised


class MultiCategorical:
    """Several independent choices; actions are indices [N, k], int64.

    Args:
        logits: [N, sum of sizes], the choices' logits side by side.
        sizes: how many options each of the `k` choices has.
    """

    def __init__(self, logits: Tensor, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self.choices = [Categorical(part) for part in torch.split(logits, self.sizes, -1)]

    def sample(self, noise: Tensor) -> Tensor:
        parts = torch.split(noise, self.sizes, -1)  # noise: `gumbel`, [N, sum of sizes]
        return torch.stack([choice.sample(part) for choice, part in zip(self.choices, parts, strict=True)], -1)

    def mode(self) -> Tensor:
        return torch.stack([choice.mode() for choice in self.choices], -1)

    def log_prob(self, actions: Tensor) -> Tensor:
        parts = actions.unbind(-1)
        return torch.stack([choice.log_prob(part) for choice, part in zip(self.choices, parts, strict=True)]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([choice.entropy() for choice in self.choices]).sum(0)


class Bernoulli:
    """Independent yes-or-no choices; actions are 0. or 1. [N, k], float32.

    Args:
        logits: [N, k], log(p / (1 - p)) of a 1.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, noise: Tensor) -> Tensor:
        return (self.logits + noise > 0).float()  # noise: `logistic`, [N, k]

    def mode(self) -> Tensor:
        return (self.logits > 0).float()

    def log_prob(self, actions: Tensor) -> Tensor:
        return (actions * self.logits - functional.softplus(self.logits)).sum(-1)

    def entropy(self) -> Tensor:
        return (functional.softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1)


class DiagonalGaussian:
    """Independent normal numbers; actions are [N, d], float32, without bounds.

    Args:
        mean: [N, d].
        log_std: [d] or [N, d], logarithm of the standard deviations.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + noise * self.log_std.exp()  # noise: `normal`, [N, d]

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        scaled = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * scaled.square() - self.log_std - _LOG_SQRT_2PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + (0.5 + _LOG_SQRT_2PI)).expand_as(self.mean).sum(-1)
