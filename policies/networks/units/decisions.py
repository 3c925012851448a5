"""Distributions over decisions: each actor of each action chooses for itself.

A transition's actions are one ragged row: its decisions, action by action, actor by actor, each a pair of the action's
number and the choice. Log-probabilities and entropies are numbers per decision [D], in the same order.

What a row draws depends on its own number of that tick and on action, actor and choice alone, by a hash: neither on
other rows nor on how many decisions they have. So it does not matter how rows are cut into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.common.columns import RaggedTensor, row_order
from policies.networks.distributions import Categorical

Integers = NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64: Steele, Lea and Flood 2014, doi 10.1145/2714064.2660195
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_UNIFORM_BITS = 52  # so that (bits + 1/2) / 2^52 is neither 0 nor 1


class Offered(NamedTuple):
    """What the actors of one action choose from."""

    actors: RaggedTensor  # [B]
    logits: Tensor  # [D, n]; where there are fewer than n choices, the others are forbidden


class Decisions:
    """All decisions of a batch.

    Args:
        offered: by action.

    Attributes:
        offered: of the actions in which anything is decided.
        lengths: int64 [B] decisions of each row.
        total: D.
    """

    def __init__(self, offered: Sequence[Offered]) -> None:
        counts = np.stack([one.actors.lengths for one in offered])  # [actions, B]
        self.lengths: Integers = counts.sum(0)
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

    def log_prob(self, actions: RaggedTensor) -> Tensor:
        """Log-probabilities [D] of decisions [D, 2]."""
        chosen = actions.values[:, 1]
        if len(self._choices) == 1:
            return self._choices[0].log_prob(chosen)
        parts = (
            torch.empty_like(chosen)
            .index_copy_(0, self._order, chosen)
            .split([len(one.logits) for one in self.offered])  # type: ignore[no-untyped-call]
        )
        pairs = zip(self._choices, parts, strict=True)
        return self._in_rows([choice.log_prob(part) for choice, part in pairs])

    def entropy(self) -> Tensor:
        """Entropies [D] in nats."""
        return self._in_rows([choice.entropy() for choice in self._choices])

    @cached_property
    def _order(self) -> Tensor:
        """[D] the index that brings all decisions from the order of actions to the order of rows."""
        return torch.from_numpy(row_order(self._counts)).to(self.offered[0].logits.device)

    def _in_rows(self, parts: Sequence[Tensor]) -> Tensor:
        """Numbers of decisions, given by action, in the order of rows."""
        return parts[0] if len(parts) == 1 else torch.cat(list(parts)).index_select(0, self._order)

    def _paired(self, chosen: Sequence[Tensor]) -> RaggedTensor:
        numbered = zip(self._actions, chosen, strict=True)
        pairs = [torch.stack([torch.full_like(part, action), part], 1) for action, part in numbered]
        return RaggedTensor(self._in_rows(pairs), self.lengths)


def hashed_gumbel(seeds: NDArray[np.uint64], action: int, actors: RaggedTensor, choices: int) -> NDArray[np.float32]:
    """Standard Gumbel noise [D, choices] of the actors of an action, from a number [B] of each row."""
    places = np.arange(len(actors.values)) - np.repeat(actors.offsets, actors.lengths)
    places += (action << 32) + 1
    own = _mixed(np.repeat(seeds, actors.lengths) + places.astype(np.uint64) * _GOLDEN)
    mixed = _mixed(own[:, None] + np.arange(1, choices + 1, dtype=np.uint64) * _GOLDEN)
    uniform = ((mixed >> np.uint64(64 - _UNIFORM_BITS)).astype(np.float64) + 0.5) * 2.0**-_UNIFORM_BITS
    return -np.log(-np.log(uniform)).astype(np.float32)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _FACTORS[0]
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _FACTORS[1]
    return numbers ^ (numbers >> np.uint64(31))
