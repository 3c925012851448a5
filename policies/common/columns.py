"""Columns: tensors with one row per sample, which are taken, split, joined, moved and stored together.

An observation has a column for each leaf of its space (see `arena.game.spaces`); that of a ragged leaf is a
`RaggedTensor`. How a leaf is kept, and how many of them are handled at once, is defined in this module alone. All
memory is allocated by torch, which aligns it alike in every process: the same numbers at another alignment may give
other last bits in a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor

from arena.game.ragged import Ragged
from arena.game.spaces import Leaf, flatten, leaves_of

if TYPE_CHECKING:
    from typing_extensions import Self

Integers = NDArray[np.int64]


class RaggedTensor:
    """Rows of unequal length: all items as one tensor, and the lengths of the rows; nothing of it changes in place.

    The torch counterpart of `arena.game.ragged.Ragged`. The lengths are on the host, whatever device holds the items:
    all index arithmetic is NumPy's, which takes a third of torch's time for so few numbers.

    Args:
        values: [M, ...] the items of all rows, on any device.
        lengths: int64 [B] how many items each row has; they add up to M.
    """

    __slots__ = ("_offsets", "lengths", "values")

    def __init__(self, values: Tensor, lengths: Integers) -> None:
        self.values, self.lengths = values, lengths
        self._offsets: Integers | None = None

    @classmethod
    def of(cls, ragged: Ragged) -> RaggedTensor:
        """A copy in memory that torch has allocated, see `policies.common.columns`."""
        values = torch.from_numpy(np.empty(0, ragged.dtype)).new_empty(ragged.values.shape)
        values.numpy()[...] = ragged.values
        return cls(values, ragged.lengths)

    @classmethod
    def cat(cls, parts: Sequence[RaggedTensor]) -> RaggedTensor:
        """The rows of all parts, in order."""
        return cls(torch.cat([part.values for part in parts]), np.concatenate([part.lengths for part in parts]))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def offsets(self) -> Integers:
        """[B] where each row begins in `values`."""
        if self._offsets is None:
            self._offsets = np.cumsum(self.lengths) - self.lengths
        return self._offsets

    @property
    def rows(self) -> Integers:
        """[M] the row of each item."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def numpy(self) -> Ragged:
        """The same memory as arrays; of a tensor on the CPU."""
        return Ragged(self.values.numpy(), self.lengths)

    def with_values(self, values: Tensor) -> RaggedTensor:
        """Rows of the same lengths with other items."""
        return RaggedTensor(values, self.lengths)

    def index_select(self, dim: int, index: Tensor) -> RaggedTensor:
        """The rows at an int64 index, in its order; as of a tensor, with `dim` 0."""
        return self._take(index.cpu().numpy())

    def __getitem__(self, index: slice | NDArray[Any]) -> RaggedTensor:
        """The rows of a slice or of an index, in its order."""
        if isinstance(index, slice):
            first, stop, _ = index.indices(len(self))
            return self._run(first, stop)
        return self._take(np.flatnonzero(index) if index.dtype == np.bool_ else index)

    def split(self, sizes: Sequence[int]) -> list[RaggedTensor]:
        """Consecutive runs of these numbers of rows."""
        ends = np.cumsum(sizes).tolist()
        return [self._run(end - size, end) for size, end in zip(sizes, ends, strict=True)]

    def spread(self, numbers: Tensor) -> Tensor:
        """[M]: each row's number [B], given to its items."""
        return numbers.index_select(0, torch.from_numpy(self.rows).to(numbers.device))

    def sums(self, numbers: Tensor) -> Tensor:
        """[..., B]: numbers of items [..., M], added up in each row."""
        rows = torch.from_numpy(self.rows).to(numbers.device)
        return numbers.new_zeros(*numbers.shape[:-1], len(self)).index_add(-1, rows, numbers)

    def to(self, device: torch.device) -> RaggedTensor:
        return self.with_values(self.values.to(device))

    def cpu(self) -> RaggedTensor:
        return self.with_values(self.values.cpu())

    def _run(self, first: int, stop: int) -> RaggedTensor:
        lengths = self.lengths[first:stop]
        begin = int(self.offsets[first]) if len(lengths) else 0
        return RaggedTensor(self.values[begin : begin + int(lengths.sum())], lengths)

    def _take(self, index: NDArray[Any]) -> RaggedTensor:
        lengths = self.lengths[index]
        items = np.repeat(self.offsets[index] - (np.cumsum(lengths) - lengths), lengths)
        items += np.arange(len(items))
        return RaggedTensor(self.values.index_select(0, torch.from_numpy(items).to(self.device)), lengths)


Column: TypeAlias = Tensor | RaggedTensor
"""A tensor or ragged tensor with one row per sample."""


def cat(parts: Sequence[Any]) -> Any:
    """The rows of all parts of a column, in order."""
    return RaggedTensor.cat(parts) if isinstance(parts[0], RaggedTensor) else torch.cat(list(parts))


def row_order(counts: Integers) -> Integers:
    """[M] the order that turns items sorted by kind, then row, into items sorted by row, then kind.

    Args:
        counts: int64 [kinds, B] items of each kind in each row.
    """
    flat, runs = counts.ravel(), counts.T.ravel()
    starts = (np.cumsum(flat) - flat).reshape(counts.shape).T.ravel()
    order: Integers = np.repeat(starts - (np.cumsum(runs) - runs), runs)
    order += np.arange(len(order))
    return order


# ---------------------------------------------------------------------------------------- from the environment's arrays


@cache
def storage_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """How a leaf of an observation is kept: flags and bytes as bytes, other integers int64, float64, others float32."""
    if dtype == np.bool_ or dtype == np.uint8:
        return torch.uint8
    if dtype == np.float64:
        return torch.float64
    return torch.int64 if np.issubdtype(dtype, np.integer) else torch.float32


def kept_leaves(space: Space[Any], *, double: bool = False) -> tuple[Leaf, ...]:
    """The leaves of a space as they are kept: numbers in double precision only where they will be normalized.

    Far from zero float32 loses the differences that normalization is for; networks take float32.
    """
    leaves = leaves_of(space, ragged=True)
    single = np.dtype(np.float32)
    return tuple(
        leaf if double or leaf.ragged or leaf.dtype != np.float64 else leaf._replace(dtype=single) for leaf in leaves
    )


def to_stored(array: NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
    """A copy of a leaf of observations, whose space has this dtype, as it is kept; torch allocates and aligns it."""
    stored = torch.empty(array.shape, dtype=storage_dtype(dtype))
    held = stored.numpy()
    if array.dtype != held.dtype:  # torch converts numbers that are too large silently, NumPy warns
        return torch.tensor(array).to(stored.dtype)
    held[...] = array  # takes half the time of torch
    return stored


def to_leaves(space: Space[Any], observations: Any, *, double: bool = False) -> list[Any]:
    """A batch of observations as columns of N rows, one per leaf; see `kept_leaves`."""
    return stored_leaves(kept_leaves(space, double=double), flatten(space, observations))


def stored_leaves(layout: Sequence[Leaf], arrays: Sequence[Any]) -> list[Any]:
    """As `to_leaves`, for callers that know the leaves of the space."""
    return [
        RaggedTensor.of(array) if leaf.ragged else to_stored(array, leaf.dtype)
        for leaf, array in zip(layout, arrays, strict=True)
    ]


def to_mask(mask: Any, mask_size: int) -> Tensor | None:
    """An action mask as bool [N, mask_size]; None where there is none."""
    return None if mask is None or not mask_size else torch.tensor(np.asarray(mask, np.bool_))


def last_leaves(space: Space[Any], final_obs: Any, rows: NDArray[np.intp], *, double: bool = False) -> list[Any]:
    """The last observations of rows [K] whose episodes have ended, as columns of K rows, one per leaf; K > 0."""
    layout = kept_leaves(space, double=double)
    columns = zip(*(flatten(space, final_obs[row]) for row in rows), strict=True)
    arrays = [
        Ragged.of(column, leaf.dtype, leaf.shape) if leaf.ragged else np.stack(column)
        for leaf, column in zip(layout, columns, strict=True)
    ]
    return stored_leaves(layout, arrays)


# -------------------------------------------------------------------------------------------------------------- batches


class Columns(msgspec.Struct, frozen=True, eq=False):
    """Columns of `N` rows; subclasses add fields.

    A field is a column of N rows, a tuple of them for the leaves of an observation, or None where a column is missing.
    """

    observations: tuple[Any, ...]  # leaves [N, ...], in the dtypes that networks take
    masks: Tensor | None  # bool [N, mask_size] the allowed choices; None: all

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.observations[0])

    def replace(self, **columns: Any) -> Self:
        """A copy with other tensors in some fields."""
        return msgspec.structs.replace(self, **columns)

    def map(self, function: Callable[[Any], Any]) -> Self:
        """The columns that a function makes of these, each by itself."""
        return type(self)(*(_each(function, column) for column in msgspec.structs.astuple(self)))

    def take(self, index: Tensor) -> Self:
        """The rows at an int64 index, in its order."""
        return self.map(lambda column: column.index_select(0, index))

    def to(self, device: torch.device) -> Self:
        """The same columns on a device."""
        return self if self.observations[0].device == device else self.map(lambda column: column.to(device))

    def split(self, sizes: list[int]) -> list[Self]:
        """Consecutive parts of these sizes."""
        missing = [None] * len(sizes)
        columns: list[Iterable[Any]] = []
        for column in msgspec.structs.astuple(self):
            if isinstance(column, tuple):
                columns.append(zip(*(leaf.split(sizes) for leaf in column), strict=True))
            else:
                columns.append(missing if column is None else column.split(sizes))
        return [type(self)(*part) for part in zip(*columns, strict=True)]

    @classmethod
    def cat(cls, parts: Sequence[Self]) -> Self:
        """The rows of all parts, in order; where only some have masks, the others allow everything."""
        return cls(*(_joined(column, parts) for column in zip(*map(msgspec.structs.astuple, parts), strict=True)))

    def to_samples(self) -> dict[str, Any]:
        """The nested dict of arrays that a group gathers; the inverse is `from_samples`."""
        leaves, *columns = self.__struct_fields__
        samples = {name: to_plain(column) for name in columns if (column := getattr(self, name)) is not None}
        return {**samples, leaves: {str(number): to_plain(leaf) for number, leaf in enumerate(self.observations)}}

    @classmethod
    def from_samples(cls, samples: Mapping[str, Any]) -> Self:
        """Copies, as the arrays of a message are read-only."""
        leaves, *names = cls.__struct_fields__
        columns = (from_plain(samples[name]) if name in samples else None for name in names)
        return cls(tuple(map(from_plain, samples[leaves].values())), *columns)


def to_plain(column: Column) -> Any:
    """A column as an array; a ragged one as a dict of two. The inverse is `from_plain`."""
    if isinstance(column, RaggedTensor):
        return {"values": column.values.cpu().numpy(), "lengths": column.lengths}
    return column.cpu().numpy()


def from_plain(plain: Any) -> Any:
    """A copy as a column."""
    if isinstance(plain, Mapping):
        return RaggedTensor.of(Ragged(plain["values"], np.array(plain["lengths"])))
    return torch.from_numpy(np.array(plain))


def per_choice(actions: Column, numbers: Tensor) -> Tensor:
    """Numbers [N] of transitions for each of their choices: unchanged, or repeated to [D] for ragged actions."""
    return actions.spread(numbers) if isinstance(actions, RaggedTensor) else numbers


def per_transition(actions: Column, numbers: Tensor, weights: Tensor | None) -> Tensor:
    """Numbers of choices [K, N] unchanged; for ragged actions [K, D] their weighted sums per transition, [K, N].

    If all weights [N] are 1 / (mean number of choices), the means of the result are means over choices.
    """
    if not isinstance(actions, RaggedTensor):
        return numbers
    sums = actions.sums(numbers)
    return sums if weights is None else sums * weights


def _each(function: Callable[[Any], Any], column: Any) -> Any:
    """The result of a function for a column: for each leaf of an observation, and nothing for a missing one."""
    if isinstance(column, tuple):
        return tuple(map(function, column))
    return None if column is None else function(column)


def _joined(columns: Sequence[Any], parts: Sequence[Columns]) -> Any:
    """The same column of several parts, joined; a part without it (only masks can be missing) gets ones."""
    known = next((column for column in columns if column is not None), None)
    if isinstance(known, tuple):
        return tuple(map(cat, zip(*columns, strict=True)))
    if known is None:
        return None
    pairs = zip(columns, parts, strict=True)
    return cat([known.new_ones(part.size, *known.shape[1:]) if one is None else one for one, part in pairs])


# -------------------------------------------------------------------------------------------------------------- storage


class RaggedStorage:
    """A ragged leaf of T ticks of B rows, written tick by tick, as a whole or in runs of rows.

    Args:
        ticks: T.
        rows: B.
        dtype: of the items.
        shape: of an item.
    """

    def __init__(self, ticks: int, rows: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._rows = rows
        none = RaggedTensor.of(Ragged.empty(rows, dtype, shape))
        self._runs: list[dict[int, RaggedTensor]] = [{0: none} for _ in range(ticks)]  # by the first row of each

    def __setitem__(self, places: tuple[int, slice] | slice, written: Any) -> None:
        """Writes rows of a tick, `storage[t, rows] = ragged`; or all ticks that `plain` gave, `storage[:t] = plain`."""
        if isinstance(places, slice):
            stored: RaggedTensor = from_plain(written)
            ticks = stored.split([self._rows] * (len(stored) // self._rows))
            self._runs[: len(ticks)] = [{0: one} for one in ticks]
            return
        tick, rows = places
        if len(written) == self._rows:
            self._runs[tick] = {}
        self._runs[tick][rows.start or 0] = RaggedTensor.of(written)

    def __getitem__(self, tick: int) -> RaggedTensor:
        """The rows of a tick that have been written, in order."""
        runs = self._runs[tick]
        if len(runs) == 1:
            return next(iter(runs.values()))
        return RaggedTensor.cat([runs[first] for first in sorted(runs)])

    def flat(self, ticks: int) -> RaggedTensor:
        """The first `ticks` ticks, [ticks * B] rows."""
        return RaggedTensor.cat([self[tick] for tick in range(ticks)])

    def restart(self) -> None:
        """Copies the last tick to the first."""
        self._runs[0] = {0: self[-1]}


class Storage:
    """Observations and masks in memory that is written place by place; that of fixed leaves is allocated once.

    NumPy writes the few rows of a tick into torch's memory in half the time that torch takes.

    Args:
        layout: of one observation.
        mask_size: length of an action mask; 0: there are none.
        axes: of the places; of ragged leaves ticks and rows.

    Attributes:
        leaves: [*axes, ...], of ragged ones a `RaggedStorage`.
        masks: bool [*axes, mask_size]; None until the first mask is written.
    """

    def __init__(self, layout: Sequence[Leaf], mask_size: int, *axes: int) -> None:
        self.leaves = tuple(_allocated(leaf, axes) for leaf in layout)
        self.masks: Tensor | None = None
        self._arrays = [leaf if isinstance(leaf, RaggedStorage) else leaf.numpy() for leaf in self.leaves]
        self._ticks: list[Any] = []
        self._mask_shape = *axes, mask_size

    def write(self, places: Any, leaves: Iterable[Any], mask: NDArray[Any] | None) -> None:
        """Observations, of which the last leaves may be left out, and their mask; None: everything is allowed."""
        for array, leaf in zip(self._arrays, leaves, strict=False):
            array[places] = leaf
        if mask is not None and self.masks is None:
            self.masks = torch.ones(self._mask_shape, dtype=torch.bool)
        if self.masks is not None:
            self.masks.numpy()[places] = True if mask is None else mask

    def take(self, places: Tensor) -> Columns:
        """Copies of the rows at an int64 index of the first axis; only of fixed leaves."""
        return Columns(self.leaves, self.masks).take(places)

    def tick(self, tick: int) -> list[Any]:
        """The leaves at an index of the first axis; fixed ones in the same memory."""
        if not self._ticks:  # views of all ticks: making one takes longer than a look-up
            self._ticks = [leaf if isinstance(leaf, RaggedStorage) else leaf.unbind() for leaf in self.leaves]
        return [ticks[tick] for ticks in self._ticks]

    def flat(self, ticks: int) -> tuple[list[Any], Tensor | None]:
        """Leaves and masks of the first `ticks` ticks [ticks * rows, ...]; fixed ones in the same memory."""
        masks = None if self.masks is None else self.masks[:ticks].flatten(0, 1)
        return [
            leaf.flat(ticks) if isinstance(leaf, RaggedStorage) else leaf[:ticks].flatten(0, 1) for leaf in self.leaves
        ], masks

    def restart(self) -> None:
        """Copies the last tick to the first."""
        for column in (*self.leaves, self.masks):
            if isinstance(column, RaggedStorage):
                column.restart()
            elif column is not None:
                column[0] = column[-1]

    def state_dict(self, ticks: int) -> dict[str, Any]:
        """Copies of the first `ticks` ticks, as arrays."""
        masks = None if self.masks is None else self.masks[:ticks].numpy().copy()
        leaves = [
            to_plain(one.flat(ticks)) if isinstance(one, RaggedStorage) else one[:ticks].copy() for one in self._arrays
        ]
        return {"leaves": leaves, "masks": masks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Writes them back."""
        ticks = next((len(stored) for stored in state["leaves"] if not isinstance(stored, Mapping)), 0)
        self.write(slice(ticks), state["leaves"], state["masks"])


def _allocated(leaf: Leaf, axes: tuple[int, ...]) -> Any:
    if leaf.ragged:
        ticks, rows = axes
        return RaggedStorage(ticks, rows, leaf.dtype, leaf.shape)
    return torch.empty(*axes, *leaf.shape, dtype=storage_dtype(leaf.dtype))
