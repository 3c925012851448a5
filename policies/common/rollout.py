"""What was seen: preallocated storage of one rollout, and the batch of transitions that it becomes.

All storage is allocated by torch, which aligns it alike in every process: the same numbers at another alignment may
give other last bits in a matrix product.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.game.spaces import Leaf, flatten, leaves_of
from policies.common.gae import Flags, Trajectories
from policies.common.tensors import storage_dtype, to_stored
from policies.networks.heads import ActionHead

if TYPE_CHECKING:
    from arena.group.group import Moments


def to_leaves(space: Space[Any], observations: Any) -> list[Tensor]:
    """A batch of observations as tensors [N, ...], one per leaf, in the dtypes that networks take."""
    return stored_leaves(leaves_of(space), flatten(space, observations))


def stored_leaves(layout: Sequence[Leaf], arrays: Sequence[NDArray[Any]]) -> list[Tensor]:
    """The same, for who has asked the space for its leaves already."""
    return [to_stored(array, leaf.dtype) for leaf, array in zip(layout, arrays, strict=True)]


def to_mask(infos: Mapping[str, Any], mask_size: int) -> Tensor | None:
    """The action mask in a vector environment's infos as bool [N, mask_size]; None where there is none."""
    mask = infos.get("action_mask") if mask_size else None
    return None if mask is None else torch.tensor(np.asarray(mask, np.bool_))


def last_leaves(space: Space[Any], infos: Mapping[str, Any], rows: NDArray[np.intp]) -> list[Tensor]:
    """The last observations of rows [K] whose episodes have ended, as tensors [K, ...], one per leaf; K > 0."""
    samples = [flatten(space, infos["final_obs"][row]) for row in rows]
    return stored_leaves(leaves_of(space), [np.stack(column) for column in zip(*samples, strict=True)])


_ALL = slice(None)


class Batch(NamedTuple):
    """Complete transitions of one worker or of many; `N` of them.

    Those of a recurrent policy come in sequences, one after the other, which are taken and split as wholes.
    """

    observations: tuple[Tensor, ...]  # leaves [N, ...]
    masks: Tensor | None  # bool [N, mask_size]
    actions: Tensor  # [N, ...]
    log_probs: Tensor  # [N] of the policy that acted
    values: Tensor  # [N] when it acted
    advantages: Tensor  # [N]
    returns: Tensor  # [N]
    decisions: Tensor | None = None  # [N, 5] of a manager that picks options, see `policies.hppo`
    lengths: Tensor | None = None  # [S], int64, of the sequences; None: every transition for itself

    @property
    def size(self) -> int:
        """How many transitions."""
        return len(self.actions)

    def standardizable(self) -> dict[str, Tensor]:
        """The numbers [N] whose mean and deviation over all transitions of an update are needed, by name."""
        numbers = {"advantages": self.advantages, "returns": self.returns}
        if self.decisions is not None:
            numbers["option_advantages"] = self.decisions[self.decisions[:, 0] > 0, 3]
        return numbers

    def standardized(self, moments: Mapping[str, Moments]) -> Batch:
        """The batch with advantages of mean 0 and deviation 1; `moments` are those of `standardizable`."""
        errors = moments["advantages"]
        batch = self._replace(advantages=(self.advantages - errors.mean) / (errors.std + 1e-8))
        if self.decisions is None or not (picks := moments["option_advantages"]).count:
            return batch
        decisions = self.decisions.clone()
        decisions[:, 3] = (decisions[:, 3] - picks.mean) / (picks.std + 1e-8)
        return batch._replace(decisions=decisions)

    def minibatches(self, parts: int, *, epochs: int, generator: torch.Generator) -> Iterator[Batch]:
        """Passes over the batch, each cut into `parts` minibatches in a new random order."""
        for _ in range(epochs):
            order = torch.randperm(self.pieces, generator=generator)
            yield from self.take(order.to(self.actions.device)).split(parts)

    @property
    def pieces(self) -> int:
        """How many there are of what is taken and split as a whole: transitions, or sequences."""
        return self.size if self.lengths is None else len(self.lengths)

    def take(self, index: Tensor) -> Batch:
        """The transitions, or sequences, at an int64 index, in its order."""
        if self.lengths is None:
            return self._map(lambda tensor: tensor.index_select(0, index))
        lengths = self.lengths[index]
        begins = (self.lengths.cumsum(0) - self.lengths)[index]
        shift = begins - (lengths.cumsum(0) - lengths)  # from where a transition goes to where it is
        rows = torch.arange(int(lengths.sum()), device=index.device) + shift.repeat_interleave(lengths)
        return self._replace(lengths=None).take(rows)._replace(lengths=lengths)

    def to(self, device: torch.device) -> Batch:
        """The same transitions on a device."""
        return self._map(lambda tensor: tensor.to(device))

    def split(self, parts: int) -> list[Batch]:
        """Cuts into `parts` runs that differ by one piece at most; some are empty where there is too little."""
        ends = [self.pieces * part // parts for part in range(parts + 1)]
        counts = sizes = [end - begin for begin, end in itertools.pairwise(ends)]
        if self.lengths is not None:
            sizes = [int(part.sum()) for part in torch.split(self.lengths, counts)]
        leaves = zip(*(torch.split(leaf, sizes) for leaf in self.observations), strict=True)
        fields = [[None] * parts if field is None else torch.split(field, sizes) for field in self[1:-1]]
        lengths = [None] * parts if self.lengths is None else torch.split(self.lengths, counts)
        return [Batch(*part) for part in zip(leaves, *fields, lengths, strict=True)]

    def _map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        fields: list[Any] = [None if field is None else function(field) for field in self[1:]]
        return Batch(tuple(function(leaf) for leaf in self.observations), *fields)


class Evaluation(NamedTuple):
    """What the transitions of a rollout are worth: one row of `batch` for every tick and row, tick by tick."""

    batch: Batch  # [T * B]
    valid: Flags  # [T, B] a complete transition began here
    ended: Flags  # [T, B] the row's episode ended on this tick

    def complete(self, sequence_length: int | None) -> Batch:
        """The complete transitions alone; in sequences of at most `sequence_length`, if it is given."""
        if sequence_length is not None:
            return to_sequences(self.batch, self.valid, self.ended, sequence_length)
        return self.batch if self.valid.all() else self.batch.take(torch.from_numpy(np.flatnonzero(self.valid)))


def to_sequences(batch: Batch, valid: Flags, ended: Flags, length: int) -> Batch:
    """The complete transitions of a rollout as sequences: row by row, in the order of time.

    Args:
        batch: all ticks' rows [T * B, ...], tick by tick.
        valid: [T, B] a complete transition began here.
        ended: [T, B] the row's episode ended on this tick.
        length: of a sequence, at most.
    """
    rows = valid.shape[1]
    row, tick = np.nonzero(valid.T)
    episode: NDArray[np.int64] = np.cumsum(ended, axis=0)[tick, row] - ended[tick, row]  # of the row, counted from 0
    runs = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(episode, prepend=-1))  # where one begins
    within = np.arange(len(row)) - np.repeat(runs, np.diff(runs, append=len(row)))
    begins = np.flatnonzero(within % length == 0)
    lengths = np.diff(begins, append=len(row))
    return batch.take(torch.from_numpy(tick * rows + row))._replace(lengths=torch.from_numpy(lengths))


def to_samples(batch: Batch) -> dict[str, Any]:
    """A batch as the nested dict of arrays that a group gathers; the inverse is `from_samples`."""
    fields = zip(Batch._fields[1:], batch[1:], strict=True)
    samples: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in fields if tensor is not None}
    samples["observations"] = {str(index): leaf.cpu().numpy() for index, leaf in enumerate(batch.observations)}
    return samples


def from_samples(parts: Sequence[Mapping[str, Any]]) -> Batch:
    """One batch of all that a group has gathered, in the order of the workers; some may have seen no masks."""
    parts = _masked_alike(parts)

    def joined(arrays: list[NDArray[Any]]) -> Tensor:
        return torch.cat([torch.from_numpy(np.array(array)) for array in arrays])

    leaves = parts[0]["observations"]
    observations = tuple(joined([part["observations"][name] for part in parts]) for name in leaves)
    fields = {name: joined([part[name] for part in parts]) if name in parts[0] else None for name in Batch._fields[1:]}
    return Batch(observations, **fields)  # type: ignore[arg-type]


def _masked_alike(parts: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The parts; where any has masks, one without gets some that allow everything."""
    widths = {part["masks"].shape[1] for part in parts if "masks" in part}
    if not widths:
        return parts
    (width,) = widths
    return [{"masks": np.ones((len(part["actions"]), width), np.bool_), **part} for part in parts]


class Rollout:
    """Storage of `T` ticks of `B` rows, used again for every rollout.

    rollout.begin(*env.reset())
    for t in range(T):
        rollout.leaves(t), rollout.mask(t)               what the rows see, before they act
        rollout.add(t, actions, *env.step(...))          or rows by rows, with `rows=` here and above
    rollout.trajectories(values, final_values), rollout.batch(...)
    rollout.go_on()                                      what was seen last is what the next rollout sees first

    Where rows remember something, their memory is the last leaf: `remember` what there is after tick `t` before `add`.
    """

    def __init__(self, space: Space[Any], head: ActionHead, *, ticks: int, rows: int, memory_size: int = 0) -> None:
        self.ticks, self.rows = ticks, rows
        self._space, self._mask_size = space, head.mask_size
        layout = leaves_of(space)
        self._leaves = [torch.zeros(ticks + 1, rows, *leaf.shape, dtype=storage_dtype(leaf.dtype)) for leaf in layout]
        self._seen = len(layout)  # leaves that the environment gives
        self._memory = torch.zeros(ticks + 1, rows, memory_size)
        if memory_size:
            self._leaves.append(self._memory)
        self._masks: Tensor | None = None  # allocated when the first mask is seen
        self._actions = torch.zeros(ticks, rows, *head.shape, dtype=head.dtype)
        self._leaf_arrays = [leaf.numpy() for leaf in self._leaves]
        self._on_tick = list(zip(*(leaf.unbind() for leaf in self._leaves), strict=True))  # the same storage
        self._action_array = self._actions.numpy()
        self._active = np.ones((ticks + 1, rows), np.bool_)
        self._rewards = np.zeros((ticks, rows), np.float64)
        self._terminated = np.zeros((ticks, rows), np.bool_)
        self._truncated = np.zeros((ticks, rows), np.bool_)
        self._columns: dict[str, NDArray[Any]] = {
            "actions": self._action_array,
            "active": self._active,
            "rewards": self._rewards,
            "terminated": self._terminated,
            "truncated": self._truncated,
        }
        self._cut: list[tuple[int, NDArray[np.intp], list[Tensor]]] = []  # tick, rows, their last leaves
        self.played = 0  # ticks that are complete; counted by `collect`

    def begin(self, observations: Any, infos: Mapping[str, Any]) -> None:
        """Takes what `env.reset` gave: what the rows see before the tick that comes next."""
        self._see(self.played, observations, infos)

    def advance(self) -> None:
        """Begins the next rollout where this one ended."""
        self.played = 0
        self._cut.clear()
        for storage in (*self._leaf_arrays, self._active):
            storage[0] = storage[-1]
        if self._masks is not None:
            self._masks[0] = self._masks[-1]

    def add(
        self,
        t: int,
        actions: NDArray[Any],
        observations: Any,
        rewards: NDArray[np.float64],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        infos: Mapping[str, Any],
        *,
        rows: slice = _ALL,
    ) -> None:
        """Takes tick `t` of some rows: actions [B, ...] as learned from, and what `env.step` gave."""
        self._action_array[t, rows] = actions
        self._rewards[t, rows] = rewards
        self._terminated[t, rows] = terminated
        self._truncated[t, rows] = truncated
        if truncated.any():
            self._keep_final(t, np.flatnonzero(truncated & ~terminated), infos, rows)
        if self._memory.shape[2]:
            self._memory[t + 1, rows][torch.from_numpy(terminated | truncated)] = 0.0
        self._see(t + 1, observations, infos, rows)

    def remember(self, t: int, memory: Tensor, rows: slice = _ALL) -> None:
        """Takes the memory [B, memory_size] of rows that have acted on tick `t`; the others' stays as it was."""
        active = torch.from_numpy(self._active[t, rows])
        self._memory[t + 1, rows] = torch.where(active[:, None], memory, self._memory[t, rows])

    def leaves(self, t: int, rows: slice = _ALL) -> list[Tensor]:
        """What the rows see before tick `t`, leaves [B, ...]; `t` = T is what they see in the end."""
        return list(self._on_tick[t]) if rows == _ALL else [leaf[rows] for leaf in self._on_tick[t]]

    def mask(self, t: int, rows: slice = _ALL) -> Tensor | None:
        """What the rows may do on tick `t`, bool [B, mask_size]."""
        return None if self._masks is None else self._masks[t, rows]

    def final_leaves(self) -> list[Tensor]:
        """The last observations of all episodes that were cut, leaves [K, ...]; empty where none was."""
        return [torch.cat(parts) for parts in zip(*(leaves for _, _, leaves in self._cut), strict=True)]

    def final_places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Where they were: ticks and rows [K] of `final_leaves`."""
        places = [(np.full(len(rows), tick), rows) for tick, rows, _ in self._cut]
        none = np.zeros(0, np.intp)
        ticks, rows = zip((none, none), *places, strict=True)
        return np.concatenate(ticks), np.concatenate(rows)

    def flat(self) -> tuple[list[Tensor], Tensor | None, Tensor]:
        """Leaves, masks and actions of all ticks [T*B, ...], tick by tick."""
        masks = None if self._masks is None else self._masks[:-1].flatten(0, 1)
        return [leaf[:-1].flatten(0, 1) for leaf in self._leaves], masks, self._actions.flatten(0, 1)

    @property
    def active(self) -> NDArray[np.bool_]:
        """Who acts on each tick, and after the last one [T+1, B]."""
        return self._active

    @property
    def rewards(self) -> NDArray[np.float64]:
        """As the environment gave them [T, B]."""
        return self._rewards

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Whose episode was over [T, B]."""
        return self._terminated | self._truncated

    def trajectories(self, values: NDArray[np.float32], final_values: NDArray[np.float32]) -> Trajectories:
        """All that advantages are made of, from V of what was seen [T+1, B] and V of `final_leaves` [K]."""
        finals = np.zeros_like(self._rewards)
        start = 0
        for t, rows, _ in self._cut:
            finals[t, rows] = final_values[start : start + len(rows)]
            start += len(rows)
        return Trajectories(
            rewards=self._rewards,
            values=values[:-1],
            terminated=self._terminated,
            truncated=self._truncated,
            final_values=finals,
            active=self._active[:-1],
            last_values=values[-1],
            last_active=self._active[-1],
        )

    def state_dict(self) -> dict[str, Any]:
        """The ticks that were played, as arrays [t, B, ...]; empty where there are none."""
        t = self.played
        if t == 0:
            return {}
        return {
            **{name: storage[:t].copy() for name, storage in self._columns.items()},
            "leaves": [leaf[:t].copy() for leaf in self._leaf_arrays],
            "masks": None if self._masks is None else self._masks[:t].numpy().copy(),
            "cut": [(tick, rows, [leaf.numpy() for leaf in leaves]) for tick, rows, leaves in self._cut],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begins with ticks that were played before; with none where they had other rows, or are too many."""
        t, rows = state["rewards"].shape
        if rows != self.rows or t > self.ticks:
            return
        self.played = t
        for storage, array in zip(self._leaf_arrays, state["leaves"], strict=True):
            storage[:t] = array
        if state["masks"] is not None:
            self._masks = self._all_allowed()
            self._masks[:t] = torch.from_numpy(state["masks"])
        for name, storage in self._columns.items():
            storage[:t] = state[name]
        self._cut = [(tick, rows, [torch.tensor(leaf) for leaf in leaves]) for tick, rows, leaves in state["cut"]]

    def _all_allowed(self) -> Tensor:
        return torch.ones(self.ticks + 1, self.rows, self._mask_size, dtype=torch.bool)

    def _see(self, t: int, observations: Any, infos: Mapping[str, Any], rows: slice = _ALL) -> None:
        for storage, array in zip(self._leaf_arrays[: self._seen], flatten(self._space, observations), strict=True):
            storage[t, rows] = array
        self._active[t, rows] = infos.get("active", True)  # other vector environments know no inactive rows
        mask = to_mask(infos, self._mask_size)
        if mask is None and self._masks is None:
            return
        if self._masks is None:
            self._masks = self._all_allowed()
        self._masks[t, rows] = True if mask is None else mask

    def _keep_final(self, t: int, cut: NDArray[np.intp], infos: Mapping[str, Any], rows: slice) -> None:
        if len(cut) == 0:
            return
        kept = last_leaves(self._space, infos, cut)
        if self._memory.shape[2]:
            kept.append(self._memory[t + 1, rows][torch.from_numpy(cut)])
        self._cut.append((t, (rows.start or 0) + cut, kept))
