"""Distributions of actions, with little overhead per call.

Sampling is a pure function of the parameters and of noise that was drawn before, so that a whole rollout's noise
comes from one call and no generator is touched per tick. `N` is the batch; log-probabilities and entropies are [N].

A forbidden choice (mask 0) gets a logit so low that its probability is exactly 0. A row in which nothing is allowed
does not act; its sample is arbitrary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
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

    def gradient(self, actions: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
        """The gradient of a loss with respect to the actor's outputs, [N, outputs].

        Parameters beside the outputs have their gradient added to their `grad`.

        Args:
            actions: [N, ...], as `log_prob` takes them.
            log_prob: the loss's derivatives with respect to their log-probabilities, [N].
            entropy: its derivative with respect to the entropy of any row.
        """
        ...


def uniform_entropy(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The entropy [N] of a uniform choice among what is allowed, the greatest possible; 0 where nothing is."""
    allowed = torch.ones_like(logits) if mask is None else mask
    return allowed.sum(-1).clamp(min=1).log()


def allow(logits: Tensor, mask: Tensor | None) -> Tensor:
    """The logits, with `FORBIDDEN` for forbidden choices (mask false); mask None allows everything."""
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
        logits: [N, n], not normalized.
    """

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, noise: Tensor) -> Tensor:
        return (self.logits + noise).argmax(-1)  # the Gumbel-max trick; noise: `gumbel`, [N, n]

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self._log_probs.gather(0, actions.unsqueeze(0)).squeeze(0)

    def entropy(self) -> Tensor:
        return self._entropy

    def gradient(self, actions: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
        gradient = self._probs * -log_prob  # of log p_a by z_i: [i = a] - p_i
        gradient.scatter_add_(0, actions.unsqueeze(0), log_prob.unsqueeze(0))
        if entropy:
            surprise = self._log_probs + self._entropy  # of H by z_i: -p_i (log p_i + H)
            gradient.addcmul_(self._probs, surprise, value=-entropy)
        return gradient.t()

    @cached_property
    def _log_probs(self) -> Tensor:
        """[n, N]: a softmax over a handful of choices goes over whole rows when the choices come first."""
        return functional.log_softmax(self.logits.t(), 0)

    @cached_property
    def _probs(self) -> Tensor:
        return self._log_probs.exp()  # [n, N]

    @cached_property
    def _entropy(self) -> Tensor:
        return -(self._probs * self._log_probs).sum(0)


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

    def gradient(self, actions: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
        parts = zip(self.choices, actions.unbind(-1), strict=True)
        return torch.cat([choice.gradient(part, log_prob, entropy) for choice, part in parts], -1)


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

    def gradient(self, actions: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
        probs = self.logits.sigmoid()  # p; of log p(a) by z: a - p, of H by z: -z p (1 - p)
        return log_prob.unsqueeze(-1) * (actions - probs) - entropy * self.logits * probs * (1 - probs)


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
        return self._log_densities(actions).sum(-1)

    def _log_densities(self, actions: Tensor) -> Tensor:
        """[N, d]"""
        scaled = (actions - self.mean) * (-self.log_std).exp()
        return -0.5 * scaled.square() - self.log_std - _LOG_SQRT_2PI

    def clipped_log_prob(self, actions: Tensor, low: Tensor, high: Tensor, unit: Tensor) -> Tensor:
        """Log-probability [N] of actions [N, d] that were clipped to bounds [d] after they were sampled.

        A number on a bound has the probability of all that lies beyond it, any other its density: clipped actions
        follow a censored normal distribution.

        Args:
            actions, low, high: in the numbers that are sampled.
            unit: [d] how much 1 is in the unit that densities are given in.
        """
        deviation = self.log_std.exp()
        below = torch.special.log_ndtr((low - self.mean) / deviation).where(actions <= low, -torch.inf)
        above = torch.special.log_ndtr((self.mean - high) / deviation).where(actions >= high, -torch.inf)
        inside = (actions > low) & (actions < high)  # where both bounds are the same number, nothing is
        densities = self._log_densities(actions) - unit.log()
        return torch.where(inside, densities, torch.logaddexp(below, above)).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + (0.5 + _LOG_SQRT_2PI)).expand_as(self.mean).sum(-1)

    def gradient(self, actions: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
        deviation = (-self.log_std).exp()  # 1 / s; of log p(a) by the mean: (a - mean) / s^2
        scaled = (actions - self.mean) * deviation
        weight = log_prob.unsqueeze(-1)
        if self.log_std.requires_grad:  # of log p(a) by log s: scaled^2 - 1, of H: 1
            by_log_std = (weight * (scaled.square() - 1) + entropy).sum_to_size(self.log_std.shape)
            self.log_std.grad = by_log_std if self.log_std.grad is None else self.log_std.grad.add_(by_log_std)
        return weight * scaled * deviation
