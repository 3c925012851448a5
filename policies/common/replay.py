"""Replay: a buffer of transitions, drawn uniformly or by priority (arXiv 1511.05952).

    fragment of a worker --extend--> ring of points, one per worker, each with the transition that begins there
                                     --sample--> minibatch --td errors--> priorities

The columns are allocated once. A point is stored once, although it ends one transition and begins the next: a
transition says where its next point lies (see `policies.common.nstep`). The oldest points are overwritten first; the
point that follows another is always younger. torch allocates the columns and takes minibatches from them; NumPy writes
the few new items into the same memory in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from policies.common.columns import Columns, Storage
from policies.common.nstep import NStepBatch, RowLayout
from policies.networks.actor_critic import Encoder

_WIDTH = 64
_TOP = 4096  # numbers whose running sum takes no longer than one more level would

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class SumTree:
    """`n` numbers, all 0 in the beginning, that are drawn in proportion to their size and may change at any time.

        leaves   x_0 ... x_{n-1}, at the bottom
        nodes    the sum, and the least that is not 0, of the 64 numbers below each; up to a level of a few thousand
        top      that level, which is searched from end to end

    Wide nodes make a low tree: NumPy handles all requested nodes of a level in one operation, and a hundred thousand
    numbers need one such level and the top. A node is always summed from the numbers below it, never corrected by
    differences: nothing drifts, and the tree depends on its leaves alone.
    """

    def __init__(self, capacity: int) -> None:
        sizes = [capacity]
        while sizes[-1] > _TOP:
            sizes[-1] = -(-sizes[-1] // _WIDTH) * _WIDTH  # the next multiple of the width
            sizes.append(sizes[-1] // _WIDTH)
        self.capacity = capacity
        self._sums = [np.zeros(size) for size in sizes]  # from the leaves up
        self._least = [np.full(size, np.inf) for size in sizes]
        self._changed: list[Indices] = []  # leaves that the nodes above do not include yet

    @property
    def leaves(self) -> Floats:
        """The numbers [n]."""
        return self._sums[0][: self.capacity]

    @property
    def total(self) -> float:
        """The sum of all."""
        self._rise()
        return float(self._sums[-1].cumsum()[-1])

    @property
    def least(self) -> float:
        """The least that is not 0; infinity where all are."""
        self._rise()
        return float(self._least[-1].min())

    def set(self, indices: Indices, values: Floats | float) -> None:
        """Changes numbers; where an index stands several times, the last value holds. No value is below 0."""
        if len(indices) == 0:
            return
        self._sums[0][indices] = values
        written = self._sums[0][indices]
        self._least[0][indices] = np.where(written > 0.0, written, np.inf)
        self._changed.append(indices)

    def find(self, shares: Floats) -> Indices:
        """The numbers on which shares [m] of the total, from 0 to 1, fall if all are laid end to end.

        No share falls on a 0.

        Raises:
            ValueError: all numbers are 0.
        """
        self._rise()
        ends = self._sums[-1].cumsum()
        if not ends[-1] > 0.0:
            raise ValueError("nothing can be drawn from a sum tree whose numbers are all 0")
        rest = np.minimum(shares * ends[-1], np.nextafter(ends[-1], 0.0))
        nodes: Indices = ends.searchsorted(rest, side="right")
        rest -= np.where(nodes > 0, ends[nodes - 1], 0.0)
        for sums in self._sums[-2::-1]:
            numbers = sums.reshape(-1, _WIDTH)[nodes]  # [m, 64] below them
            ends = numbers.cumsum(1)
            rest = np.minimum(rest, np.nextafter(ends[:, -1], 0.0))  # rounding may have passed it
            places = (ends <= rest[:, None]).sum(1)
            before = ends[np.arange(len(ends)), places - 1]
            nodes, rest = nodes * _WIDTH + places, rest - np.where(places > 0, before, 0.0)
        return nodes

    def _rise(self) -> None:
        """Updates the nodes above changed leaves."""
        if not self._changed:
            return
        nodes = np.concatenate(self._changed)
        self._changed.clear()
        for level in range(1, len(self._sums)):
            nodes = nodes // _WIDTH
            self._sums[level][nodes] = self._sums[level - 1].reshape(-1, _WIDTH)[nodes].sum(1)
            self._least[level][nodes] = self._least[level - 1].reshape(-1, _WIDTH)[nodes].min(1)


class ReplayRatio:
    """Counts of transitions, the same at every worker, as all are sums over the group.

    What is replayed never exceeds what is due, and falls short of it by less than one minibatch:

        replayed <= rate * (collected - waited) < replayed + minibatch

    `waited` are the first transitions that were collected, up to `starts`, before the replay is used; for these, no
    replays are due. The counts are whole numbers, so that nothing is lost or won by rounding, however long the run is.
    `waited` and `replayed` restart where the rate has changed since the counts were stored, see `load_state_dict`.
    """

    def __init__(self, rate: float, *, starts: int) -> None:
        self._rate = Fraction(str(rate)).as_integer_ratio()  # as it was written: 0.1 is a tenth
        self._starts = starts
        self.collected = self.waited = self.replayed = 0

    @property
    def has_started(self) -> bool:
        """Whether the group has collected enough to learn; until then it acts at random."""
        return self.collected >= self._starts

    def due_steps(self, collected: int, *, added: int, minibatch: int) -> int:
        """The number of gradient steps that are due after a block of ticks; they are counted as made.

        Args:
            collected: transitions of the block.
            added: transitions that the group's replay was given so far, these included. A run that continues with other
                seats may start with an empty one, and waits again.
            minibatch: transitions of one gradient step, of all workers together; 0: no worker has any.
        """
        self.collected += collected
        if added < self._starts:
            self.waited += collected
            return 0
        if minibatch == 0:
            return 0
        numerator, denominator = self._rate  # multiplied out: a `Fraction` would look for common divisors each time
        due = numerator * (self.collected - self.waited)
        steps = max(0, (due - self.replayed * denominator) // (minibatch * denominator))
        self.replayed += steps * minibatch
        return steps

    def state_dict(self) -> dict[str, Any]:
        counts = {"collected": self.collected, "waited": self.waited, "replayed": self.replayed}
        return {**counts, "rate": list(self._rate)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from stored counts; a rate that differs from theirs holds for what is collected from now on.

        Otherwise a higher rate would cause many steps at once, and a lower one none for a while.
        """
        self.collected, self.waited, self.replayed = (int(state[name]) for name in ("collected", "waited", "replayed"))
        if tuple(state.get("rate", self._rate)) != self._rate:  # older states do not have it
            self.waited, self.replayed = self.collected, 0


Slots = NDArray[np.int64]
"""Places of points in the replay, [N]."""


class Transitions(Columns, frozen=True):
    """A minibatch of `N` n-step transitions, drawn with replacement; N is 0 where there is none yet.

    The target of all algorithms is `rewards + discounts * V(next observation)`: the discount is gamma^k, where k <= n
    rewards were summed, and 0 where the episode terminated. Of an episode that was truncated the next observation is
    its last one.
    """

    actions: Any  # [N, *action_shape], as learned from; of units a ragged row of decisions [N]
    rewards: Tensor  # [N, *reward_shape] float32: the sum of gamma^i r_i
    next_observations: tuple[Tensor, ...]  # leaves [N, ...]
    next_masks: Tensor | None  # bool [N, mask_size]
    discounts: Tensor  # [N, *reward_shape] float32
    weights: Tensor  # [N] float32: of importance sampling; ones where replay is uniform
    indices: Tensor  # [N] int64: where they lie, for `update_priorities`

    def observed(self, function: Callable[[list[Tensor]], list[Tensor]]) -> Self:
        """A copy whose observations are what a function makes of their leaves."""
        now, later = (tuple(function(list(leaves))) for leaves in (self.observations, self.next_observations))
        return self.replace(observations=now, next_observations=later)

    def features(self, encoder: Encoder) -> Tensor:
        """What an encoder finds in the observations, [N, features]."""
        return encoder(self.observations)  # type: ignore[no-any-return]

    @torch.no_grad()
    def next_features(self, encoder: Encoder) -> Tensor:
        """The same of the next observations, without gradient."""
        return encoder(self.next_observations)  # type: ignore[no-any-return]

    def all_features(self, encoder: Encoder) -> tuple[Tensor, Tensor]:
        """`features` and `next_features`."""
        return self.features(encoder), self.next_features(encoder)


class RingBuffer:
    """The slots of one worker's points, by their numbers: from `base` on, the last `length` of them."""

    def __init__(self, base: int, length: int) -> None:
        self.base, self.length = base, length
        self.begin(0)

    def begin(self, first: int) -> None:
        """Empties it; the next point has the number `first`."""
        self._first = self.end = first

    @property
    def oldest(self) -> int:
        """The number of the oldest point that is kept."""
        return max(self._first, self.end - self.length)

    @property
    def filled(self) -> int:
        return self.end - self.oldest

    def slots(self, numbers: NDArray[np.int64]) -> Slots:
        return self.base + numbers % self.length


class Replay:
    """A ring of points for each of some workers.

    With priorities, P(i) = p_i^alpha / sum of p^alpha is how likely transition i is drawn (Schaul et al. 2016, eq.
    1). p_i is its last temporal-difference error, as a distance, plus epsilon (section 3.3, proportional); a new one
    gets the largest so far.

    Args:
        layout: of a row whose transitions it keeps.
        capacity: points that are kept at most, an equal part for each worker, rounded up.
        workers: whose fragments it takes.
        alpha, epsilon: see above; alpha None: all transitions are equally likely.

    Attributes:
        size: transitions that may be drawn.
        added: transitions that it was ever given.
    """

    def __init__(
        self, layout: RowLayout, *, capacity: int, workers: int = 1, alpha: float | None = None, epsilon: float = 1e-6
    ) -> None:
        self.size = self.added = 0
        length = -(-capacity // workers)  # of each ring
        slots = length * workers
        self._rings = [RingBuffer(base, length) for base in range(0, slots, length)]
        self._points = Storage(layout.leaves, layout.mask_size, slots)
        self._columns = (  # of the transition that begins in a slot
            layout.action_column(slots),
            torch.empty(slots, *layout.reward_shape),
            torch.empty(slots, *layout.reward_shape),  # discounts
            torch.empty(slots, dtype=torch.int64),  # slot of the point that follows
        )
        self._arrays = [column.numpy() for column in self._columns]
        self._complete = np.zeros(slots, np.bool_)  # whether a transition begins there
        self._tree = None if alpha is None else SumTree(slots)  # of p^alpha; 0 in slots without a transition
        self._alpha, self._epsilon = alpha or 0.0, epsilon
        self.largest = 1.0  # p

    def extend(self, fragment: NStepBatch, worker: int = 0) -> int:
        """Takes what a worker has seen since its last fragment; returns the number of transitions.

        A fragment that does not continue the last one comes from a restarted worker: its ring is emptied first. An
        empty fragment changes nothing.
        """
        count = fragment.points.size
        if count == 0 and len(fragment.starts) == 0:
            return 0
        ring = self._rings[worker]
        if fragment.first != ring.end:
            self._forget(np.arange(ring.base, ring.base + ring.length))
            ring.begin(fragment.first)
        ring.end += count
        slots = ring.slots(np.arange(max(fragment.first, ring.oldest), ring.end))
        self._forget(slots)
        points = fragment.points.map(lambda column: column[count - len(slots) :])  # a long fragment does not fit
        masks = None if points.masks is None else points.masks.numpy()
        self._points.write(slots, [leaf.numpy() for leaf in points.observations], masks)
        starts, *columns, followings = (column.numpy() for column in fragment.transitions)
        alive = starts >= ring.oldest  # the point of a row that waited for long may be overwritten
        slots = ring.slots(starts[alive])
        for array, column in zip(self._arrays, (*columns, ring.slots(followings)), strict=True):
            array[slots] = column[alive]
        self._complete[slots] = True
        self.size += len(slots)
        if self._tree is not None:
            self._tree.set(slots, self.largest**self._alpha)
        self.added += len(fragment.starts)
        return len(fragment.starts)

    def _forget(self, slots: Slots) -> None:
        """Removes the transitions that begin in these slots."""
        old = slots[self._complete[slots]]
        if not len(old):
            return
        self._complete[old] = False
        self.size -= len(old)
        if self._tree is not None:
            self._tree.set(old, 0.0)

    # ------------------------------------------------------------------------------------------------ what it gives

    def sample(self, n: int, generator: torch.Generator, *, beta: float = 1.0) -> Transitions:
        """A minibatch of `n` transitions on the CPU; an empty one while the replay is empty.

        `beta` says how far the weights correct for priorities: 0 not at all, 1 fully.
        """
        if self.size == 0:
            return self._at(torch.zeros(0, dtype=torch.int64), torch.zeros(0))
        if self._tree is None:
            return self._at(torch.from_numpy(self._draw(n, generator)), torch.ones(n))
        # One from each n-th part of the sum (appendix B.2.1).
        places = np.arange(n) + torch.rand(n, generator=generator, dtype=torch.float64).numpy()
        slots = self._tree.find(places / n)
        # (size * P(i))^-beta over the largest that any transition has (section 3.4): size and sum cancel out.
        weights = (self._tree.least / self._tree.leaves[slots]) ** beta
        return self._at(torch.from_numpy(slots), torch.from_numpy(weights).float())

    def update_priorities(self, indices: Tensor, errors: Tensor) -> None:
        """Takes the temporal-difference errors [N] of transitions that were learned from; ignored by uniform replay."""
        if self._tree is not None:
            priorities = errors.abs().double().numpy() + self._epsilon
            self.largest = max(self.largest, float(priorities.max(initial=0.0)))
            self._tree.set(indices.numpy(), priorities**self._alpha)

    def _draw(self, n: int, generator: torch.Generator) -> Slots:
        """Slots [n] of transitions, all equally likely."""

        def below(end: int, count: int) -> NDArray[np.int64]:
            return torch.randint(end, (count,), generator=generator).numpy()

        points = sum(ring.filled for ring in self._rings)
        if 2 * self.size < points:  # in the very beginning
            complete = self._complete.nonzero()[0]
            return complete[below(len(complete), n)]
        slots = self._nth(below(points, n))
        while True:  # nearly all points begin a complete transition; the others are drawn again
            missed = (~self._complete[slots]).nonzero()[0]
            if not len(missed):
                return slots
            slots[missed] = self._nth(below(points, len(missed)))

    def _nth(self, places: NDArray[np.int64]) -> Slots:
        """The slots of the n-th points of all that are kept, ring after ring."""
        if len(self._rings) == 1:
            return self._rings[0].slots(places + self._rings[0].oldest)
        ends = np.cumsum([ring.filled for ring in self._rings])
        which = np.searchsorted(ends, places, side="right")
        slots = np.empty_like(places)
        for number, ring in enumerate(self._rings):
            mine = which == number
            slots[mine] = ring.slots(places[mine] - (ends[number] - ring.filled) + ring.oldest)
        return slots

    def _at(self, indices: Tensor, weights: Tensor) -> Transitions:
        actions, rewards, discounts, followings = (column.index_select(0, indices) for column in self._columns)
        now, later = ((part.observations, part.masks) for part in map(self._points.take, (indices, followings)))
        return Transitions(*now, actions, rewards, *later, discounts, weights, indices)

    # ------------------------------------------------------------------------------------------------- what it keeps

    def fragment(self, worker: int = 0) -> NStepBatch:
        """The experience of a worker, as a fragment for an empty replay."""
        ring = self._rings[worker]
        numbers = np.arange(ring.oldest, ring.end)
        slots = ring.slots(numbers)
        begun = self._complete[slots]
        starts, kept = torch.from_numpy(numbers[begun]), torch.from_numpy(slots[begun])
        actions, rewards, discounts, followings = (column.index_select(0, kept) for column in self._columns)
        points, followings = self._points.take(torch.from_numpy(slots)), starts + (followings - kept) % ring.length
        return NStepBatch(ring.oldest, points, starts, actions, rewards, discounts, followings)

    def state_dict(self) -> dict[str, Any]:
        """What is kept, and the priorities, as arrays."""
        fragments = [self.fragment(worker) for worker in range(len(self._rings))]
        state: dict[str, Any] = {"added": self.added, "rings": [fragment.to_samples() for fragment in fragments]}
        if self._tree is not None:
            kept = [ring.slots(part.starts.numpy()) for ring, part in zip(self._rings, fragments, strict=True)]
            state["priorities"] = [self._tree.leaves[slots] for slots in kept]
            state["largest"] = self.largest
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begins with what was kept, as far as there is room; with nothing if the number of workers differs."""
        if len(state["rings"]) != len(self._rings):
            return
        for worker, samples in enumerate(state["rings"]):
            self.extend(NStepBatch.from_samples(samples), worker)
        self.added = int(state["added"])
        if self._tree is None or "priorities" not in state:
            return
        self.largest = float(state["largest"])
        for ring, samples, values in zip(self._rings, state["rings"], state["priorities"], strict=True):
            alive = samples["starts"] >= ring.oldest
            self._tree.set(ring.slots(samples["starts"][alive]), values[alive])
