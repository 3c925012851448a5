"""Heads: how many outputs a space of actions needs, their distribution, and the conversion to the game's actions.

    outputs of the actor [N, outputs] --distribution--> actions as learned from [N, *shape] --to_env--> the game's own

Actions as learned from are indices from 0 (Discrete, MultiDiscrete), 0. and 1. (MultiBinary), or unbounded numbers
(Box), which are 0 in the middle between two bounds and -1 and 1 at them: what the space adds, `start`, bounds, shape
and dtype, is only for the game. Those of a Dict or Tuple are the numbers of its parts side by side. Actions of units
are ragged rows of decisions: action by action, actor by actor, each a pair of the action's number and the choice.

Sampling is a pure function of the parameters and of noise that was drawn before, so that a whole rollout's noise comes
from one call and no generator is touched per tick. `N` is the batch; log-probabilities and entropies are [N], of units
a number per decision [D].

A forbidden choice (mask 0) gets a logit so low that its probability is exactly 0. A row in which nothing is allowed
does not act; its sample is arbitrary.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from arena.errors import ConfigError
from arena.game.ragged import Ragged
from arena.game.spaces import flatten, leaf_spaces, mask_size, unflatten
from arena.game.units import UnitActions
from policies.common.columns import RaggedTensor, row_order

FORBIDDEN = -1e9  # finite: 0 * log(0) would be nan in the entropy and its gradient
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


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


# ------------------------------------------------------------------------------------------------------ distributions


class Categorical:
    """One choice out of `n`, by logits [N, n] that are not normalized; actions are indices [N], int64."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def sample(self, noise: Tensor) -> Tensor:
        """Actions [N, ...] that follow the distribution when the noise is that of the space's `ActionHead`."""
        return (self.logits + noise).argmax(-1)  # the Gumbel-max trick; noise: `gumbel`, [N, n]

    def mode(self) -> Tensor:
        """The most probable actions [N, ...]."""
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self._log_probs.gather(0, actions.unsqueeze(0)).squeeze(0)

    def entropy(self) -> Tensor:
        return self._entropy

    def mean(self, values: Tensor) -> Tensor:
        """The mean [N] of a number per choice [N, n]."""
        return (self._probs * values.t()).sum(0)

    def gradient(self, actions: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
        """The gradient of a loss with respect to the actor's outputs, [N, outputs].

        `log_prob` [N] and `entropy` are the loss's derivatives with respect to the log-probabilities of the actions,
        and to the entropy of any row. Parameters beside the outputs have their gradient added to their `grad`.
        """
        gradient = self._probs * -log_prob  # of log p_a by z_i: [i = a] - p_i
        gradient.scatter_add_(0, actions.unsqueeze(0), log_prob.unsqueeze(0))
        if entropy:
            surprise = self._log_probs + self._entropy  # of H by z_i: -p_i (log p_i + H)
            gradient.addcmul_(self._probs, surprise, value=-entropy)
        return gradient.t()

    @cached_property
    def _log_probs(self) -> Tensor:
        """[n, N]: a softmax over a handful of choices goes over whole rows when the choices come first."""
        return self.logits.t().log_softmax(0)

    @cached_property
    def _probs(self) -> Tensor:
        return self._log_probs.exp()  # [n, N]

    @cached_property
    def _entropy(self) -> Tensor:
        return -(self._probs * self._log_probs).sum(0)


class MultiCategorical:
    """Several independent choices with `sizes` options, by logits side by side; actions are indices [N, k], int64."""

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
    """Independent yes-or-no choices by logits [N, k], log(p / (1 - p)) of a 1; actions are 0. or 1. [N, k], float32."""

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
    """Independent normal numbers, of means [N, d] and log_std [d] or [N, d]; actions are [N, d], float32, unbounded."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean, self.log_std = mean, log_std

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + noise * self.log_std.exp()  # noise: `normal`, [N, d]

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        return self._log_densities(actions).sum(-1)

    def _log_densities(self, actions: Tensor) -> Tensor:
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


class Independent:
    """Independent parts of a Dict or Tuple; actions are the numbers of all parts side by side [N, k], float32."""

    def __init__(self, heads: Sequence[ActionHead], outputs: Tensor) -> None:
        self._heads, self._outputs = heads, [head.outputs for head in heads]
        parts = torch.split(outputs, self._outputs, -1)
        self.parts = [head.distribution(part, None) for head, part in zip(heads, parts, strict=True)]

    def sample(self, noise: Tensor) -> Tensor:
        parts = torch.split(noise, self._outputs, -1)
        return side_by_side([policy.sample(part) for policy, part in zip(self.parts, parts, strict=True)])

    def mode(self) -> Tensor:
        return side_by_side([policy.mode() for policy in self.parts])

    def log_prob(self, actions: Tensor) -> Tensor:
        pairs = zip(self.parts, parts_of(self._heads, actions), strict=True)
        return torch.stack([policy.log_prob(part) for policy, part in pairs]).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([policy.entropy() for policy in self.parts]).sum(0)

    def gradient(self, actions: Tensor, log_prob: Tensor, entropy: float) -> Tensor:
        pairs = zip(self.parts, parts_of(self._heads, actions), strict=True)
        return torch.cat([policy.gradient(part, log_prob, entropy) for policy, part in pairs], -1)


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    """Actions of several heads [N, *shape] as one tensor [N, k], float32, which holds every index exactly."""
    return torch.cat([part.reshape(len(part), -1).float() for part in parts], 1)


def parts_of(heads: Sequence[ActionHead], actions: Tensor) -> list[Tensor]:
    """The inverse of `side_by_side`."""
    sizes = [math.prod(head.shape) for head in heads]
    parts = zip(heads, torch.split(actions, sizes, 1), strict=True)
    return [part.reshape(len(part), *head.shape).to(head.dtype) for head, part in parts]


Distribution = Categorical | MultiCategorical | Bernoulli | DiagonalGaussian | Independent


class OfferedActions(NamedTuple):
    """What the actors of one action choose from."""

    actors: RaggedTensor  # [B]
    logits: Tensor  # [D, n]; where there are fewer than n choices, the others are forbidden


class Decisions:
    """All decisions of a batch of units: each actor of each action chooses for itself.

    Attributes:
        offered: of the actions in which anything is decided.
        lengths: int64 [B] decisions of each row.
        total: D.
    """

    def __init__(self, offered: Sequence[OfferedActions]) -> None:
        counts = np.stack([one.actors.lengths for one in offered])  # [actions, B]
        self.lengths: NDArray[np.int64] = counts.sum(0)
        self.total = int(self.lengths.sum())
        self._actions = np.flatnonzero(counts.any(1)).tolist() or [0]  # in which anything is decided
        self.offered = [offered[action] for action in self._actions]
        self._choices = [Categorical(one.logits) for one in self.offered]
        self._counts = counts[self._actions]

    def sample(self, numbers: Tensor) -> RaggedTensor:
        """Decisions [D, 2] drawn with a number int64 [B] of each row."""
        seeds = numbers.cpu().numpy().view(np.uint64)
        drawn = []
        for action, one, choice in zip(self._actions, self.offered, self._choices, strict=True):
            noise = hashed_gumbel(seeds, action, one.actors, one.logits.shape[1])
            drawn.append(choice.sample(torch.from_numpy(noise).to(one.logits.device)))
        return self._paired(drawn)

    def mode(self) -> RaggedTensor:
        """The most probable decisions [D, 2]."""
        return self._paired([choice.mode() for choice in self._choices])

    def uniform(self) -> Decisions:
        """The same decisions with all that is allowed equally likely."""
        flat = [torch.where(one.logits > FORBIDDEN / 2, 0.0, FORBIDDEN) for one in self.offered]
        found = copy.copy(self)
        found.offered = [one._replace(logits=logits) for one, logits in zip(self.offered, flat, strict=True)]
        found._choices = [Categorical(logits) for logits in flat]
        return found

    def log_prob(self, actions: RaggedTensor) -> Tensor:
        """Log-probabilities [D] of decisions [D, 2]."""
        return self._of(actions, lambda choice, chosen: choice.log_prob(chosen))

    def logits_of(self, actions: RaggedTensor) -> Tensor:
        """The logits [D] of decisions [D, 2], which are not normalized."""
        return self._of(actions, lambda choice, chosen: choice.logits.gather(1, chosen.unsqueeze(1)).squeeze(1))

    def _of(self, actions: RaggedTensor, find: Callable[[Categorical, Tensor], Tensor]) -> Tensor:
        """What `find` says of each choice's decisions, [D]."""
        chosen = actions.values[:, 1]
        if len(self._choices) == 1:
            return find(self._choices[0], chosen)
        by_action = torch.empty_like(chosen).index_copy_(0, self._order, chosen)
        parts = by_action.split([len(one.logits) for one in self.offered])  # type: ignore[no-untyped-call]
        return self._in_rows([find(choice, part) for choice, part in zip(self._choices, parts, strict=True)])

    def entropy(self) -> Tensor:
        """Entropies [D] in nats."""
        return self._in_rows([choice.entropy() for choice in self._choices])

    def mean_of(self, others: Decisions) -> Tensor:
        """The means [D] of the logits that others, of the same rows, give the choices; these get no gradient."""
        pairs = zip(self._choices, others.offered, strict=True)
        return self._in_rows([choice.mean(other.logits.detach()) for choice, other in pairs])

    def sums(self, numbers: Tensor) -> Tensor:
        """[B]: numbers of decisions [D], added up in each row."""
        return RaggedTensor(numbers, self.lengths).sums(numbers)

    @cached_property
    def _order(self) -> Tensor:
        """[D] the index that brings all decisions from the order of actions to the order of rows."""
        return torch.from_numpy(row_order(self._counts)).to(self.offered[0].logits.device)

    def _in_rows(self, parts: Sequence[Tensor]) -> Tensor:
        return parts[0] if len(parts) == 1 else torch.cat(list(parts)).index_select(0, self._order)

    def _paired(self, chosen: Sequence[Tensor]) -> RaggedTensor:
        numbered = zip(self._actions, chosen, strict=True)
        pairs = [torch.stack([torch.full_like(part, action), part], 1) for action, part in numbered]
        return RaggedTensor(self._in_rows(pairs), self.lengths)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64: Steele, Lea and Flood 2014, doi 10.1145/2714064.2660195
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIFORM_BITS = 52  # so that (bits + 1/2) / 2^52 is neither 0 nor 1


def hashed_gumbel(seeds: NDArray[np.uint64], action: int, actors: RaggedTensor, choices: int) -> NDArray[np.float32]:
    """Standard Gumbel noise [D, choices] of the actors of an action, from a number [B] of each row.

    What a row draws depends on its own number of that tick and on action, actor and choice alone, by a hash: neither on
    other rows nor on how many decisions they have. So it does not matter how rows are cut into batches.
    """

    def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:  # the finalizer of splitmix64
        numbers = (numbers ^ (numbers >> np.uint64(30))) * _FACTORS[0]
        numbers = (numbers ^ (numbers >> np.uint64(27))) * _FACTORS[1]
        return numbers ^ (numbers >> np.uint64(31))

    places = np.arange(len(actors.values)) - np.repeat(actors.offsets, actors.lengths)
    places += (action << 32) + 1
    by_actor = mixed(np.repeat(seeds, actors.lengths) + places.astype(np.uint64) * _GOLDEN)
    bits = mixed(by_actor[:, None] + np.arange(1, choices + 1, dtype=np.uint64) * _GOLDEN)
    uniform = ((bits >> np.uint64(64 - _UNIFORM_BITS)).astype(np.float64) + 0.5) * 2.0**-_UNIFORM_BITS
    return -np.log(-np.log(uniform)).astype(np.float32)


# -------------------------------------------------------------------------------------------------------------- heads


class ActionHead(nn.Module, ABC):
    """What an actor's outputs mean in one space of actions.

    Attributes:
        outputs: how many numbers the actor gives.
        shape, dtype: of one action as learned from.
        mask_size: length of an action mask; 0 where the space takes none.
        decides: whether an action is a ragged row of decisions, see `UnitHead`.
    """

    decides = False
    outputs: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    mask_size: int

    @abstractmethod
    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        """The randomness of `ticks` samples of `rows` rows, [ticks, rows, outputs]."""

    @abstractmethod
    def distribution(self, outputs: Any, mask: Tensor | None) -> Any:
        """The distribution that the actor's outputs [N, outputs] stand for; mask bool [N, mask_size]."""

    @abstractmethod
    def to_env(self, actions: Any) -> Any:
        """A batch of actions as the vector environment takes them."""

    @abstractmethod
    def from_env(self, actions: Any) -> Any:
        """The inverse of `to_env`: a batch of the environment's actions as learned from, [N, *shape]."""

    def env_log_prob(self, policy: Any, actions: Any) -> Tensor:
        """Log-probability [N] with which the environment gets these actions, [N, *shape] by `from_env`.

        It differs from that of the actions as learned from where `to_env` maps several of them to one.
        """
        return policy.log_prob(actions)  # type: ignore[no-any-return]


class DiscreteHead(ActionHead):
    """One choice; `start` is only for the game."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__()
        self.outputs = self.mask_size = mask_size(space)
        self.shape, self.dtype = (), torch.int64
        self._start, self._env_dtype = space.start, space.dtype

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return gumbel((ticks, rows, self.outputs), generator)

    def uniform(self, rows: int, mask: Tensor | None, generator: torch.Generator) -> Tensor:
        """Actions [rows], all that are allowed equally likely, on the CPU."""
        logits = allow(torch.zeros(rows, self.outputs), None if mask is None else mask.cpu())
        return (logits + gumbel((rows, self.outputs), generator)).argmax(-1)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return Categorical(allow(outputs, mask))

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return (actions + self._start).astype(self._env_dtype, copy=False)

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        return torch.from_numpy(actions.astype(np.int64) - int(self._start))


class MultiDiscreteHead(DiscreteHead):
    """Several choices; the shape of `nvec` and `start` are only for the game."""

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__(space)
        self.shape, self._sizes = (int(space.nvec.size),), space.nvec.ravel().tolist()

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return MultiCategorical(allow(outputs, mask), self._sizes)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return super().to_env(actions.reshape(-1, *np.shape(self._start)))

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        return torch.from_numpy((actions.astype(np.int64) - self._start).reshape(len(actions), -1))


class MultiBinaryHead(ActionHead):
    """Flags; their shape is only for the game."""

    def __init__(self, space: spaces.MultiBinary) -> None:
        super().__init__()
        self.outputs, self.mask_size = int(np.prod(space.shape)), 0
        self.shape, self.dtype = (self.outputs,), torch.float32
        self._env_shape, self._env_dtype = space.shape, space.dtype

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return logistic((ticks, rows, self.outputs), generator)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return Bernoulli(outputs)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        return actions.reshape(-1, *self._env_shape).astype(self._env_dtype)

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        return torch.from_numpy(actions.reshape(len(actions), -1).astype(np.float32))


class BoxHead(ActionHead):
    """Unbounded Gaussian, which learns from its own actions; the game gets them scaled and clipped, see `env_log_prob`.

    A number with two bounds is learned as (number - middle) / half_width, so that a new policy, with mean 0 and
    deviation exp(log_std_init), explores all of it, whatever its unit. One without two bounds stays as it is; the
    largest number of a dtype is no bound.
    """

    def __init__(self, space: spaces.Box, log_std_init: float) -> None:
        super().__init__()
        self.outputs, self.mask_size = int(np.prod(space.shape)), 0
        self.shape, self.dtype = (self.outputs,), torch.float32
        self.log_std = nn.Parameter(torch.full((self.outputs,), log_std_init))
        self._low, self._high = space.low, space.high
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        dtypes: tuple[Any, ...] = (space.dtype, np.float32)
        largest = min(float(np.finfo(dtype).max) for dtype in dtypes)
        bounded = (np.abs(low) < largest) & (np.abs(high) < largest)
        with np.errstate(invalid="ignore"):
            self._middle = np.where(bounded, low / 2 + high / 2, 0.0)
            half_width = np.where(bounded, high / 2 - low / 2, 1.0)
        self.half_width = np.where(half_width > 0, half_width, 1.0)  # [*shape]; a single number is no interval
        if (self._middle != 0).any() or (self.half_width != 1).any():
            # Weights mean nothing without the scale that they were learned with, so it is stored beside them.
            self.register_buffer("scale", torch.from_numpy(np.stack([self._middle.ravel(), self.half_width.ravel()])))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
        """As of torch; refuses, with a ConfigError, weights that were learned between other bounds."""
        stored, here = state_dict.get(f"{prefix}scale"), getattr(self, "scale", None)
        if stored is not None and here is not None and not torch.equal(stored.cpu(), here.cpu()):
            (middle, reach), (now, width) = stored.tolist(), here.tolist()
            raise ConfigError(
                f"the stored policy acts in a Box with the middle {middle} and the half width {reach}, here they are "
                f"{now} and {width}; take the bounds of the action space that it was learned with"
            )
        super()._load_from_state_dict(state_dict, prefix, *others)

    def scale_text(self) -> dict[str, list[float]]:
        """The scale, for the description of an exported model; empty where actions are as learned from."""
        if not hasattr(self, "scale"):
            return {}
        return {"middle": self._middle.ravel().tolist(), "half_width": self.half_width.ravel().tolist()}

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return normal((ticks, rows, self.outputs), generator)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return DiagonalGaussian(outputs, self.log_std)

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        scaled = self._middle + self.half_width * actions.reshape(-1, *self._low.shape)
        return np.clip(scaled.astype(self._low.dtype, copy=False), self._low, self._high)  # type: ignore[no-any-return]

    def from_env(self, actions: NDArray[Any]) -> Tensor:
        unit = (np.asarray(actions, np.float64) - self._middle) / self.half_width
        return torch.from_numpy(unit.reshape(len(unit), -1).astype(np.float32))

    def env_log_prob(self, policy: Distribution, actions: Tensor) -> Tensor:
        assert isinstance(policy, DiagonalGaussian)
        low, high = (self.from_env(bound[None])[0].to(actions.device) for bound in (self._low, self._high))
        return policy.clipped_log_prob(actions, low, high, torch.from_numpy(self.half_width.ravel()).to(actions))


class CompositeHead(ActionHead):
    """A Dict or Tuple, nested at will: each part has a head of its own, and they are independent. It takes no mask."""

    def __init__(self, space: spaces.Dict | spaces.Tuple[Any], log_std_init: float) -> None:
        super().__init__()
        self._space = space
        self._each = [action_head(part, log_std_init=log_std_init) for part in leaf_spaces(space)]
        if not self._each:
            raise ConfigError(f"the action space {space} has no part; there is nothing to choose")
        for part in leaf_spaces(space):
            check_choices(part, "actions")
        self.heads = nn.ModuleList(self._each)
        self.outputs, self.mask_size = sum(head.outputs for head in self._each), 0
        self.shape, self.dtype = (sum(math.prod(head.shape) for head in self._each),), torch.float32

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        return torch.cat([head.noise(ticks, rows, generator) for head in self._each], -1)

    def distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return Independent(self._each, outputs)

    def to_env(self, actions: NDArray[Any]) -> Any:
        parts = zip(self._each, parts_of(self._each, torch.from_numpy(actions)), strict=True)
        return unflatten(self._space, [head.to_env(part.numpy()) for head, part in parts])

    def from_env(self, actions: Any) -> Tensor:
        parts = zip(self._each, flatten(self._space, actions), strict=True)
        return side_by_side([head.from_env(np.asarray(part)) for head, part in parts])

    def env_log_prob(self, policy: Independent, actions: Tensor) -> Tensor:
        each = zip(self._each, policy.parts, parts_of(self._each, actions), strict=True)
        return torch.stack([head.env_log_prob(part, acted) for head, part, acted in each]).sum(0)


class UnitHead(ActionHead):
    """Decisions of units; what the actor gives, and may choose from, depends on the observation."""

    decides = True

    def __init__(self, space: UnitActions) -> None:
        super().__init__()
        self.outputs, self.mask_size = 0, 0
        self.shape, self.dtype = (2,), torch.int64
        self._names = list(space.actions)

    def noise(self, ticks: int, rows: int, generator: torch.Generator) -> Tensor:
        """A number of each row and tick, [ticks, rows], see `hashed_gumbel`."""
        return torch.randint(2**63 - 1, (ticks, rows), generator=generator)

    def distribution(self, outputs: Sequence[OfferedActions], mask: Tensor | None) -> Decisions:
        return Decisions(outputs)

    def to_env(self, actions: Ragged) -> dict[str, Ragged]:
        action, choice = actions.values[:, 0], actions.values[:, 1]
        if len(self._names) == 1:
            return {self._names[0]: Ragged(choice, actions.lengths)}
        rows, size = actions.rows(), len(actions)
        chosen = [action == number for number in range(len(self._names))]
        parts = [Ragged(choice[one], np.bincount(rows[one], minlength=size)) for one in chosen]
        return dict(zip(self._names, parts, strict=True))

    def from_env(self, actions: Mapping[str, Ragged]) -> RaggedTensor:
        pairs = []
        for number, name in enumerate(self._names):
            part = actions[name]
            pairs.append(Ragged(np.stack([np.full(part.total, number), part.values.astype(np.int64)], 1), part.lengths))
        return RaggedTensor.of(Ragged.side_by_side(pairs))

    def env_log_prob(self, policy: Decisions, actions: RaggedTensor) -> Tensor:
        """The sum over a row's decisions, [N]."""
        return actions.sums(policy.log_prob(actions))


_MOST_CHOICES = 2**20  # weights of a gigabyte, with 64 hidden units, their gradient and Adam's two means


def check_choices(space: Space[Any], what: str) -> None:
    """Refuses `what`, "observations" or "actions", of more choices than a network can have inputs or outputs."""
    count = mask_size(space)
    if count > _MOST_CHOICES:
        observed = what == "observations"
        kind, remedy = ("input", ", or an `encoder` of your own that embeds them") if observed else ("output", "")
        raise ConfigError(
            f"the {what} {space} have {count:,} choices, and a network needs an {kind} for each, at most "
            f"{_MOST_CHOICES:,}; use a MultiDiscrete of their digits or a Box of numbers{remedy}"
        )


def action_head(space: Space[Any], *, log_std_init: float = 0.0) -> ActionHead:
    """The head for a space of actions; refuses spaces without one."""
    if isinstance(space, spaces.Discrete):
        return DiscreteHead(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiDiscreteHead(space)
    if isinstance(space, spaces.MultiBinary):
        return MultiBinaryHead(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxHead(space, log_std_init)
    if isinstance(space, UnitActions):
        return UnitHead(space)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return CompositeHead(space, log_std_init)
    raise ConfigError(
        "actions can be Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or Tuple of these, not "
        f"{space}; wrap the environment so that its actions are one of these"
    )
