"""From ticks to transitions: what the rows of a vector environment see and do, as n-step transitions between points.

A *point* is an observation at which a row may act, or the last observation of an episode that was cut; points are
numbered in the order in which they were seen. A *transition* begins at a point where the row acts and is complete at
the row's n-th point after it, or where the episode ends (see `policies.common.rollout`): it has
the rewards between, discounted per transition, and the numbers of the point where it begins and of the one that
follows. So no observation is kept twice, and a row that does not act costs nothing.

    points          7          9         12        13
    actions           a          b          c          episode ends
    n_step = 2        |----------a--------->|
                                 |----------b------->| 13 where it was cut; nothing follows where it terminated
                                            |---c--->|
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.game.infos import StepFields, fields_of
from arena.game.ragged import Ragged
from arena.game.spaces import Leaf, flatten
from policies.common.columns import (
    Columns,
    RaggedPlaces,
    RaggedTensor,
    Storage,
    from_plain,
    kept_leaves,
    last_leaves,
    stored_leaves,
    to_mask,
    to_plain,
)
from policies.common.tensors import to_arrays, to_tensors

NO_DECISION = -1  # no point


class SequenceLayout(NamedTuple):
    """How the transitions of an episode are cut into sequences (Kapturowski et al. 2019, openreview r1lyTjAqYX).

        points       0 . . . . . . . 8 . . . . . . . 16            length = 8, burn_in = 3
        learned      |------1------||------2------||-----
        burned in                |---|          |---|              2 begins with the memory at 5, 3 with that at 13

    Each transition is learned from in one sequence. All but the first of an episode begin with `burn_in` points of the
    one before, from which the current weights make a memory.
    """

    length: int  # transitions of a sequence that are learned from, at most
    burn_in: int  # points before them, less than `length`
    n_step: int  # of the transitions
    memory_size: int  # numbers that a row remembers


class SequencePoints(NamedTuple):
    """How the points of a fragment are chained to sequences, of which `Q` begin."""

    previous: Tensor  # [K] int64: the point of the same row and episode before each; `NO_DECISION`: there is none
    firsts: Tensor  # [Q] int64: where the first transition begins that is learned from
    origins: Tensor  # [Q] int64: the first point of the burn-in; without one, `firsts`
    memories: Tensor  # [Q, memory_size] float32: what the row remembered before it saw the origin


class NStepBatch(NamedTuple):
    """Points that follow each other, `K` of them, and the transitions that became complete meanwhile, `C` of them."""

    first: int  # number of the first point
    points: Columns  # [K]
    starts: Tensor  # [C] int64: numbers of the points where transitions begin, here or before
    actions: Any  # [C, *action_shape], as learned from; of units a ragged row of decisions [C]
    rewards: Tensor  # [C, *reward_shape] float32: the sum of gamma^i r_i
    discounts: Tensor  # [C, *reward_shape] float32: gamma^k after k actions; 0 where the episode terminated
    followings: Tensor  # [C] int64: numbers of the points that follow; the start itself if there is none
    sequences: SequencePoints | None = None  # of rows with memory

    @property
    def transitions(self) -> tuple[Any, ...]:
        """The columns [C] of the transitions."""
        return self[2:7]

    def to_samples(self) -> dict[str, Any]:
        """The same as the dict of arrays that a group gathers and a checkpoint keeps."""
        first, points, *_, sequences = self
        sample = {"first": first, "observations": [*map(to_plain, points.observations)], "masks": points.masks}
        more = {} if sequences is None else {"sequences": sequences._asdict()}
        columns = zip(self._fields[2:7], map(to_plain, self.transitions), strict=True)
        return to_arrays({**sample, **dict(columns), **more})  # type: ignore[no-any-return]

    @classmethod
    def from_samples(cls, samples: Mapping[str, Any]) -> NStepBatch:
        """The inverse of `to_samples`."""
        fields = {name: from_plain(samples[name]) for name in cls._fields[2:7]}
        if "sequences" in samples:
            fields["sequences"] = SequencePoints(**to_tensors(samples["sequences"]))
        points = Columns(tuple(map(from_plain, samples["observations"])), to_tensors(samples["masks"]))
        return cls(int(samples["first"]), points, **fields)


class RowLayout(NamedTuple):
    """What one row sees, does and earns."""

    space: Space[Any]  # of its observations
    action_shape: tuple[int, ...]  # of one action as learned from; likewise its dtype
    action_dtype: torch.dtype
    mask_size: int  # length of an action mask; 0: there are none
    reward_shape: tuple[int, ...] = ()  # of the reward of one action, and of its discount
    double: bool = False  # whether numbers of float64 are kept as such
    decides: bool = False  # whether an action is a ragged row of decisions, int64 of that shape

    def action_column(self, size: int) -> Any:
        """Storage of actions [size, ...], on the CPU."""
        if self.decides:
            return RaggedPlaces(size, np.dtype(np.int64), self.action_shape)
        return torch.empty(size, *self.action_shape, dtype=self.action_dtype)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves of observations as they are kept."""
        return kept_leaves(self.space, double=self.double)


class NStepBuilder:
    """The transitions of one worker's rows.

    experience.begin(*env.reset())
    while ...:
        experience.given                                   rows that have acted already; None: none
        experience.leaves, experience.mask                 what the rows see, before they act
        experience.add(actions, *env.step(...))
    experience.cut()                                       what is new since the last cut

    A transition sums the rewards of `n_step` actions at most; `gamma` is the discount per action. With `sequences`
    transitions are chained: set `memory` [worker_rows, ...], what rows remember, before `begin` and each `add`.
    """

    def __init__(
        self, layout: RowLayout, *, rows: int, n_step: int, gamma: float, sequences: SequenceLayout | None = None
    ) -> None:
        self.layout, self.rows, self.sequences = layout, rows, sequences
        self.worker_rows = rows  # of this worker's environment
        self._leaves, reward_shape = layout.leaves, layout.reward_shape
        self._powers = np.power(gamma, np.arange(n_step + 1), dtype=np.float64)
        self._weights = self._powers[:-1].reshape(-1, *(1 for _ in reward_shape))  # of rewards in columns
        # What is under way: column j is the row's transition that has seen j + 1 actions.
        self._starts = np.full((rows, n_step), NO_DECISION)
        self._rewards = np.zeros((rows, n_step, *reward_shape))
        self._actions: NDArray[Any] = (  # of units objects: int64 [n, 2]
            np.full((rows, n_step), None, object)
            if layout.decides
            else torch.zeros(rows, n_step, *layout.action_shape, dtype=layout.action_dtype).numpy()
        )
        self.memory = np.zeros((rows, 0), np.float32)
        self._count = 0  # points so far, in all fragments
        self._all_rows = np.arange(rows)
        self.given: NDArray[np.bool_] | None = None
        self.given_actions: NDArray[Any] | None = None
        self._ages = np.zeros(rows, np.int64)  # of each row's newest point in its chain: 0 is the first
        self._origins = np.full(rows, NO_DECISION)  # where the burn-in of the row's next sequence begins,
        self._memories = np.zeros((rows, sequences.memory_size if sequences else 0), np.float32)  # and the memory there
        self._no_points = Storage(self._leaves, layout.mask_size, 0).take(torch.zeros(0, dtype=torch.int64))
        numbers, sums = np.zeros(0, np.int64), np.zeros((0, *reward_shape), np.float32)
        self._nothing_done = numbers, self._actions[:0, 0].copy(), sums, sums, numbers  # in a fragment's dtypes
        self._clear()

    def begin(self, observations: Any, infos: Mapping[str, Any] | StepFields) -> None:
        """Takes what `env.reset` gave; what was under way is forgotten."""
        self._starts[:] = NO_DECISION
        self._see(observations, fields_of(infos))

    def add(self, actions: Any, *step: Any) -> None:
        """Takes one tick: actions [B, ...] as learned from, and what `env.step` gave."""
        observations, rewards, terminated, truncated, infos = step
        actions = actions.separate() if isinstance(actions, Ragged) else actions
        self._actions[self._acting, 0] = actions[self._acting]
        self._rewards += self._weights * np.asarray(rewards)[:, None]
        fields = fields_of(infos)
        # Rows whose transition that this tick completes is void: only external games have any. A joint transition is
        # learned from as a whole, so it is void where that of any entity is.
        if fields.void is not None and len(void := np.flatnonzero(fields.void.reshape(self.rows, -1).any(1))):
            # Forgets the newest action; transitions before it end at the observation at which it was chosen.
            places, columns = np.nonzero(self._starts[void, 1:] != NO_DECISION)
            columns = columns + 1
            complete = void[places]
            self._rewards[complete, columns] -= self._weights[columns] * self._rewards[complete, 0]
            self._complete(complete, columns, self._discounts(complete, columns), self._starts[complete, 0])
            self._starts[void] = NO_DECISION
        ended = terminated | truncated
        if np.count_nonzero(ended):
            self._end(ended, terminated, fields)
        self._see(observations, fields)

    def cut(self) -> NStepBatch:
        """The points and the complete transitions since the last cut."""
        fragment = self._fragment()
        self._clear()
        return fragment

    def state_dict(self) -> dict[str, Any]:
        """The points and complete transitions since the last cut, as arrays; transitions under way end with a leg."""
        return self._fragment().to_samples()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what was kept, with the numbers of its points."""
        fragment = NStepBatch.from_samples(state)
        self._count = fragment.first
        self._clear()
        self._points.append(fragment.points)
        self._count += fragment.points.size
        columns = (column.numpy() for column in fragment.transitions)
        self._done.append(tuple(one.separate() if isinstance(one, Ragged) else one for one in columns))
        if self.sequences is not None and fragment.sequences is not None:
            previous, firsts, origins, memories = fragment.sequences
            self._previous.append(previous.numpy())
            self._begun.append((firsts.numpy(), origins.numpy(), memories.numpy()))

    def _clear(self) -> None:
        self._first = self._count
        self._points = [self._no_points]
        self._done: list[tuple[NDArray[Any], ...]] = []  # `transitions` of a fragment, [C_i, ...] each
        none = self._starts[:0, 0]
        self._previous, self._begun = [none], [(none, none, self._memories[:0])]  # columns of `SequencePoints`

    def _fragment(self) -> NStepBatch:
        columns = zip(self._nothing_done, *self._done, strict=True)
        with np.errstate(over="ignore"):  # what float32 does not hold is infinite: refused later
            joined = [np.concatenate(parts, dtype=parts[0].dtype, casting="same_kind") for parts in columns]
        if self.layout.decides:
            numbers = np.dtype(np.int64)
            taken: Any = RaggedTensor.of(Ragged.of(list(joined.pop(1)), numbers, self.layout.action_shape))
        else:
            taken = torch.from_numpy(joined.pop(1))
        starts, rewards, discounts, followings = map(torch.from_numpy, joined)
        fragment = NStepBatch(self._first, Columns.cat(self._points), starts, taken, rewards, discounts, followings)
        if self.sequences is None:
            return fragment
        chained = self._previous, *zip(*self._begun, strict=True)
        points = (torch.from_numpy(np.concatenate(parts)) for parts in chained)
        return fragment._replace(sequences=SequencePoints(*points))

    def _see(self, observations: Any, fields: StepFields) -> None:
        """Each row that acts next begins a transition, and completes its oldest one if that has n actions."""
        self.given, self.given_actions = fields.given, fields.given_action
        acting, points = self._look(observations, fields)
        self._acting: Any = acting
        numbers = self._keep(points if isinstance(acting, slice) else points.take(torch.from_numpy(acting)), acting)
        if self.sequences is not None:
            self._begin_sequences(self.sequences, self._all_rows[acting], numbers)
        full = self._starts[acting, -1] != NO_DECISION
        if np.count_nonzero(full):
            complete, last = self._all_rows[acting][full], self._starts.shape[1] - 1
            self._complete(complete, last, self._discounts(complete, last + 1), numbers[full])
        for storage in (self._starts, self._rewards, self._actions):
            storage[acting, 1:] = storage[acting, :-1]  # NumPy copies overlapping memory first
        self._starts[acting, 0] = numbers
        self._rewards[acting, 0] = 0.0

    def _look(self, observations: Any, fields: StepFields) -> tuple[Any, Columns]:
        """The rows that act next, as of `who_acts`; what all rows see, [B]."""
        self.leaves = stored_leaves(self._leaves, flatten(self.layout.space, observations))
        self.mask = to_mask(fields.action_mask, self.layout.mask_size)
        return who_acts(fields.active), Columns(tuple(self.leaves), self.mask)

    def _begin_sequences(self, layout: SequenceLayout, rows: NDArray[np.intp], numbers: NDArray[np.int64]) -> None:
        """Notes at which of the new points of rows a sequence begins, and at which its burn-in."""
        ages = self._ages[rows] = np.where(self._starts[rows, 0] == NO_DECISION, 0, self._ages[rows] + 1)
        origin = (ages == 0) | ((ages + layout.burn_in) % layout.length == 0)
        self._origins[rows[origin]] = numbers[origin]
        self._memories[rows[origin]] = self.memory.reshape(self.rows, -1)[rows[origin]]
        if len(first := np.flatnonzero(ages % layout.length == 0)):
            self._begun.append((numbers[first], self._origins[rows[first]], self._memories[rows[first]]))

    def _discounts(self, rows: NDArray[np.intp], actions: Any) -> Any:
        """Discounts [K, *reward_shape] after so many actions of rows [K]; a number: of all alike."""
        return self._powers[np.broadcast_to(actions, len(rows))]

    def _end(self, ended: NDArray[np.bool_], terminated: NDArray[np.bool_], fields: StepFields) -> None:
        """Completes what is under way where an episode has ended; one that was only cut has a last point."""
        rows, columns = np.nonzero((self._starts != NO_DECISION) & ended[:, None])
        cut = np.unique(rows[~terminated[rows]])
        following = np.full(self.rows, NO_DECISION)
        if len(cut):
            mask = to_mask(fields.final_mask, self.layout.mask_size)  # without one everything is allowed
            leaves = last_leaves(self.layout.space, fields.final_obs, cut, double=self.layout.double)
            points = Columns(tuple(leaves), None if mask is None else mask[torch.from_numpy(cut)])
            following[cut] = self._keep(points, cut)
        is_over = terminated[rows]
        discounts = np.where(is_over, 0.0, self._powers[columns + 1])
        self._complete(rows, columns, discounts, np.where(is_over, self._starts[rows, columns], following[rows]))
        self._starts[ended] = NO_DECISION

    def _keep(self, points: Columns, rows: Any) -> NDArray[np.int64]:
        """Takes new points of rows; returns their numbers."""
        self._points.append(points)
        self._count += points.size
        if self.sequences is not None:
            self._previous.append(self._starts[rows, 0].copy())
        return np.arange(self._count - points.size, self._count)

    def _complete(
        self, rows: NDArray[np.intp], columns: Any, discounts: NDArray[np.float64], followings: NDArray[np.int64]
    ) -> None:
        starts = self._starts[rows, columns]
        self._done.append((starts, self._actions[rows, columns], self._rewards[rows, columns], discounts, followings))


def who_acts(active: Any) -> Any:
    """The rows that act next: all as a slice, else their indices."""
    if active is None or np.count_nonzero(active) == len(active):
        return slice(None)
    return np.flatnonzero(active)
