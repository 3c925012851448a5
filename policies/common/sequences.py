"""Replay of sequences, for policies with memory (R2D2: Kapturowski et al. 2019, openreview.net/forum?id=r1lyTjAqYX).

    stored memory --burn-in--> memory --|--> features of each transition    gradients go back to the bar
                  without gradient      |    (and of the points that follow)

The memory that was stored with a sequence is of old weights; the burn-in brings it up to date. An episode begins with
an empty memory, so its first sequence needs none. Each network does this with its own weights, a target network as well
(section 3 of the paper). How episodes are cut into sequences: `policies.common.nstep.SequenceLayout`.

A sequence may be drawn as soon as its first transition is complete, and grows while its episode goes on. Its priority
is eta times the largest temporal-difference error in it plus 1 - eta times the mean (section 2.3).

Other than in the paper, values are not rescaled (its function h), and the parts of sequences that are learned from do
not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from policies.common.nstep import NO_DECISION, NStepBatch, RowLayout, SequenceLayout, SequencePoints
from policies.common.replay import Replay, Slots, SumTree, Transitions
from policies.networks.actor_critic import Encoder

_ETA = 0.9  # of the paper
_NONE = -1  # no slot; as an index, the last item


class Sequences(Transitions, frozen=True):
    """A minibatch of `N` transitions of `S` sequences, whose points lie one after the other.

    `observations` are the leaves of their `P` points, those included that only follow; `next_observations` are empty.
    `indices` are those of each transition's sequence.
    """

    lengths: Tensor  # [S] int64: points of each sequence
    places: Tensor  # [N] int64: the point, of P, where each transition begins
    followings: Tensor  # [N] int64: the point that follows; any where none does
    memories: Tensor  # [S, memory_size] before the burn-in, where there is one
    burned: Tensor  # [R] int64: the sequences with a burn-in
    burn_in: tuple[Tensor, ...]  # leaves [R, ticks, ...]

    @property
    def size(self) -> int:
        """The number of transitions."""
        return len(self.rewards)

    def observed(self, function: Callable[[list[Tensor]], list[Tensor]]) -> Self:
        points, burn_in = (tuple(function(list(leaves))) for leaves in (self.observations, self.burn_in))
        return self.replace(observations=points, burn_in=burn_in)

    def features(self, encoder: Encoder) -> Tensor:
        return self.all_features(encoder)[0]

    @torch.no_grad()
    def next_features(self, encoder: Encoder) -> Tensor:
        return self.all_features(encoder)[1]

    def all_features(self, encoder: Encoder) -> tuple[Tensor, Tensor]:
        memories = self.memories
        if len(self.burned):
            with torch.no_grad():
                memory: Any = memories.index_select(0, self.burned)
                for tick in zip(*(leaf.unbind(1) for leaf in self.burn_in), strict=True):
                    memory = encoder.ticked([*tick, memory])[1]
                memories = memories.index_copy(0, self.burned, memory)
        leaves = [*self.observations, memories.repeat_interleave(self.lengths, 0)]
        found = encoder.unrolled(leaves, self.lengths)
        return found.index_select(0, self.places), found.detach().index_select(0, self.followings)


class SequenceReplay(Replay):
    """A replay from which sequences are drawn. Its arguments are those of `Replay`.

    A sequence is named by the slot of its origin, the oldest point that it needs, and forgotten with it.
    """

    def __init__(
        self, layout: RowLayout, sequences: SequenceLayout, *, alpha: float | None = None, **sizes: Any
    ) -> None:
        super().__init__(layout, **sizes)
        slots = len(self._complete)
        self._layout, self._alpha, self._prioritized = sequences, alpha or 0.0, alpha is not None
        self._sequences = SumTree(slots)  # p^alpha, or 1, of those that may be drawn, at their origins
        self._next = np.full(slots + 1, _NONE)  # slot of the next point of the row's episode; the last item stays none
        self._firsts = np.full(slots, _NONE)  # at origins, where the first transition begins that is learned from
        self._origins = np.full(slots, _NONE)  # the inverse
        self._memories: dict[int, NDArray[np.float32]] = {}  # [memory_size] by origin

    def extend(self, fragment: NStepBatch, worker: int = 0) -> int:
        count, ring = super().extend(fragment, worker), self._rings[worker]
        if fragment.sequences is None or fragment.first + fragment.points.size != ring.end:  # an empty one
            return count
        previous, firsts, origins, memories = (column.numpy() for column in fragment.sequences)
        known = np.flatnonzero(previous >= ring.oldest)
        self._next[ring.slots(previous[known])] = ring.slots(fragment.first + known)
        alive = origins >= ring.oldest
        here, there = ring.slots(origins[alive]), ring.slots(firsts[alive])
        self._firsts[here], self._origins[there] = there, here
        self._memories.update(zip(here.tolist(), memories[alive], strict=True))
        starts = fragment.starts.numpy()
        self._admit(np.concatenate([there, ring.slots(starts[starts >= ring.oldest])]))
        return count

    def _admit(self, firsts: Slots) -> None:
        """Lets those sequences be drawn whose first transition, of some that may be such, is complete."""
        origins = self._origins[firsts]
        ready = (origins != _NONE) & (self._firsts[origins] == firsts) & self._complete[firsts]
        self._sequences.set(origins[ready], self.largest**self._alpha)

    def _forget(self, slots: Slots) -> None:
        super()._forget(slots)
        origins = slots[self._firsts[slots] != _NONE]
        self._next[slots] = self._firsts[slots] = self._origins[slots] = _NONE
        self._sequences.set(origins, 0.0)
        for origin in origins.tolist():
            del self._memories[origin]

    # ------------------------------------------------------------------------------------------------ what it gives

    def sample(self, n: int, generator: torch.Generator, *, beta: float = 1.0) -> Sequences:
        """A minibatch of `n` transitions on the CPU, in as many sequences as hold them; some may be cut."""
        drawn, held = [np.zeros(0, np.int64)], 0
        while held < n and self._sequences.total > 0:
            count = -(-(n - held) // self._layout.length)
            places = np.arange(count) + torch.rand(count, generator=generator, dtype=torch.float64).numpy()
            drawn.append(self._sequences.find(places / count))
            held += int(self._learned(self._chains(self._firsts[drawn[-1]])).sum())
        origins = np.concatenate(drawn)
        # They are in the order of their slots: without another one, always the highest would be cut.
        origins = origins[torch.randperm(len(origins), generator=generator).numpy()]
        weights = (self._sequences.least / self._sequences.leaves[origins]) ** beta
        return self._sequences_at(origins, torch.from_numpy(weights).float(), n)

    def update_priorities(self, indices: Tensor, errors: Tensor) -> None:
        """Takes the temporal-difference errors [N] of transitions, by the indices of their sequences."""
        if not self._prioritized or not len(errors):
            return
        origins, which = np.unique(indices.numpy(), return_inverse=True)
        sizes, largest = errors.abs().double().numpy(), np.zeros(len(origins))
        np.maximum.at(largest, which, sizes)
        means = np.bincount(which, sizes) / np.bincount(which)
        priorities = _ETA * largest + (1 - _ETA) * means + self._epsilon
        self.largest = max(self.largest, float(priorities.max()))
        self._sequences.set(origins, priorities**self._alpha)

    def _chains(self, slots: Slots) -> Slots:
        """The points [T, S] that follow these [S], which come first, as far as their sequences can need them."""
        chains = np.empty((self._layout.length + self._layout.n_step, len(slots)), np.int64)
        chains[0] = slots
        for t in range(1, len(chains)):
            chains[t] = self._next[chains[t - 1]]
        return chains

    def _learned(self, chains: Slots) -> NDArray[np.bool_]:
        """Which of the points begin transitions that are learned from, [length, S]."""
        chains = chains[: self._layout.length]
        return self._complete[chains] & (chains != _NONE)  # type: ignore[no-any-return]

    def _sequences_at(self, origins: Slots, weights: Tensor, n: int) -> Sequences:
        """The first `n` transitions of sequences with these origins, and weights [S]."""
        chains = self._chains(self._firsts[origins])
        learned = self._learned(chains).sum(0)
        lengths = np.minimum((chains != _NONE).sum(0), learned + self._layout.n_step)
        points = torch.from_numpy(chains.T[np.arange(len(chains)) < lengths[:, None]])
        which = np.repeat(np.arange(len(origins)), learned)[:n]  # the sequence of each transition
        within = np.arange(len(which)) - np.repeat(np.cumsum(learned) - learned, learned)[:n]
        begins = (np.cumsum(lengths) - lengths)[which]
        followings = begins + np.minimum(within + self._layout.n_step, lengths[which] - 1)
        places, followings = torch.from_numpy(begins + within), torch.from_numpy(followings)
        burned = np.flatnonzero(self._firsts[origins] != origins)
        before = np.empty((len(burned), self._layout.burn_in), np.int64)
        for tick in range(self._layout.burn_in):
            before[:, tick] = self._next[before[:, tick - 1]] if tick else origins[burned]
        taken = self._points.take(torch.from_numpy(before.ravel()))
        burn_in = taken.map(lambda leaf: leaf.view(*before.shape, *leaf.shape[1:]))
        memories = [self._memories[origin] for origin in origins.tolist()] or np.zeros((0, self._layout.memory_size))
        seen = self._points.take(points)
        masks, next_masks = (None if seen.masks is None else seen.masks[one] for one in (places, followings))
        actions, rewards, discounts, _ = (column.index_select(0, points[places]) for column in self._columns)
        numbers = torch.from_numpy(which)
        return Sequences(
            seen.observations,
            masks,
            actions,
            rewards,
            (),
            next_masks,
            discounts,
            weights[numbers],
            torch.from_numpy(origins)[numbers],
            lengths=torch.from_numpy(lengths),
            places=places,
            followings=followings,
            memories=torch.from_numpy(np.array(memories, np.float32)),
            burned=torch.from_numpy(burned),
            burn_in=burn_in.observations,
        )

    # ------------------------------------------------------------------------------------------------- what it keeps

    def fragment(self, worker: int = 0) -> NStepBatch:
        ring = self._rings[worker]
        numbers = np.arange(ring.oldest, ring.end)
        slots = ring.slots(numbers)

        def number(places: Slots) -> NDArray[np.int64]:
            return ring.oldest + (places - ring.base - ring.oldest) % ring.length

        following = self._next[slots]
        previous = np.full(len(slots), NO_DECISION)
        chained = following != _NONE
        previous[number(following[chained]) - ring.oldest] = numbers[chained]
        origins = slots[self._firsts[slots] != _NONE]
        memories = [self._memories[origin] for origin in origins.tolist()] or np.zeros((0, self._layout.memory_size))
        columns = previous, number(self._firsts[origins]), number(origins), np.array(memories, np.float32)
        return super().fragment(worker)._replace(sequences=SequencePoints(*map(torch.from_numpy, columns)))

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self._prioritized:
            pairs = zip(self._rings, state["rings"], strict=True)
            origins = [ring.slots(samples["sequences"]["origins"]) for ring, samples in pairs]
            state |= {"sequence_priorities": [self._sequences.leaves[one] for one in origins], "largest": self.largest}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if not self._prioritized or "sequence_priorities" not in state or len(state["rings"]) != len(self._rings):
            return
        self.largest = float(state["largest"])
        for ring, samples, values in zip(self._rings, state["rings"], state["sequence_priorities"], strict=True):
            origins = samples["sequences"]["origins"]
            alive = origins >= ring.oldest
            self._sequences.set(ring.slots(origins[alive]), values[alive])
