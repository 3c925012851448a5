"""Columns: tensors with one row per sample, which are taken, split, joined, moved and stored together.

An observation has a column for each leaf of its space (see `arena.game.spaces`); that of a ragged leaf is a
`RaggedTensor`. How a leaf is kept, and how many of them are handled at once, is defined in this module alone. All
memory is allocated by torch, which aligns it alike in every process: the same numbers at another alignment may give
other last bits in a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import msgspec
import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from arena.game.ragged import Ragged
from arena.game.spaces import Leaf, flatten, leaves_of

Integers = NDArray[np.int64]


class RaggedTensor:
    """Rows of unequal length: the items of all rows [M, ...], and the int64 lengths of the rows [B], which add up to M.

    The torch counterpart of `arena.game.ragged.Ragged`; nothing of it changes in place. The lengths are on the host,
    whatever device the items are on: all index arithmetic is NumPy's, which takes a third of torch's time for so few
    numbers.
    """

    __slots__ = ("_offsets", "lengths", "values")

    def __init__(self, values: Tensor, lengths: Integers) -> None:
        self.values, self.lengths = values, lengths
        self._offsets: Integers | None = None

    @classmethod
    def of(cls, ragged: Ragged) -> RaggedTensor:
        """A copy in memory that torch has allocated, see above."""
        values = torch.from_numpy(np.empty(0, ragged.dtype)).new_empty(ragged.values.shape)
        values.numpy()[...] = ragged.values
        return cls(values, ragged.lengths)

    @classmethod
    def cat(cls, parts: Sequence[RaggedTensor]) -> RaggedTensor:
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
        return Ragged(self.values.numpy(), self.lengths)

    def with_values(self, values: Tensor) -> RaggedTensor:
        return RaggedTensor(values, self.lengths)

    def index_select(self, dim: int, index: Tensor) -> RaggedTensor:
        """As of a tensor, with `dim` 0."""
        return self._take(index.cpu().numpy())

    def __getitem__(self, index: slice | NDArray[Any]) -> RaggedTensor:
        """The rows of a slice or of an index, in its order."""
        if isinstance(index, slice):
            first, stop, _ = index.indices(len(self))
            return self._run(first, stop)
        return self._take(np.flatnonzero(index) if index.dtype == np.bool_ else index)

    def split(self, sizes: Sequence[int]) -> list[RaggedTensor]:
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

    `counts`, int64 [kinds, B], are the items of each kind in each row.
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


def to_leaves(space: Space[Any], observations: Any, *, double: bool = False) -> list[Any]:
    """A batch of observations as columns of N rows, one per leaf; see `kept_leaves`."""
    return stored_leaves(kept_leaves(space, double=double), flatten(space, observations))


def stored_leaves(layout: Sequence[Leaf], arrays: Sequence[Any]) -> list[Any]:
    """As `to_leaves`, for callers that know the leaves of the space. They are copies."""
    columns: list[Any] = []
    for leaf, array in zip(layout, arrays, strict=True):
        if leaf.ragged:
            columns.append(RaggedTensor.of(array))
            continue
        stored = torch.empty(array.shape, dtype=storage_dtype(leaf.dtype))
        same = stored.numpy()
        if array.dtype == same.dtype:
            same[...] = array  # takes half the time of torch
        else:  # torch converts numbers that are too large silently, NumPy warns
            stored = torch.tensor(array).to(stored.dtype)
        columns.append(stored)
    return columns


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
        """The columns that a function makes of these, each leaf by itself; nothing of missing ones."""

        def mapped(column: Any) -> Any:
            if isinstance(column, tuple):
                return tuple(map(function, column))
            return None if column is None else function(column)

        return type(self)(*map(mapped, msgspec.structs.astuple(self)))

    def tensors(self) -> list[Any]:
        """All columns that there are, each leaf by itself."""
        found: list[Any] = []
        self.map(found.append)
        return found

    def take(self, index: Tensor) -> Self:
        """The rows at an int64 index, in its order."""
        return self.map(lambda column: column.index_select(0, index.to(column.device)))

    def to(self, device: torch.device) -> Self:
        """The same columns on a device; they may be on several."""
        if device.type == "cpu" and self.observations[0].device == device:
            return self
        return self.map(lambda column: column.to(device))

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
        sizes = [part.size for part in parts]

        def joined(columns: Sequence[Any]) -> Any:
            known = next((column for column in columns if column is not None), None)
            if isinstance(known, tuple):
                return tuple(map(cat, zip(*columns, strict=True)))
            if known is None:
                return None
            pairs = zip(columns, sizes, strict=True)  # only masks can be missing
            return cat([known.new_ones(size, *known.shape[1:]) if one is None else one for one, size in pairs])

        return cls(*map(joined, zip(*map(msgspec.structs.astuple, parts), strict=True)))

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


def to_plain(column: Any, ticks: int | None = None) -> Any:
    """A column as an array; a ragged one as a dict of two. The inverse is `from_plain`.

    Of storage that is an array or a `RaggedStorage`: a copy of the first ticks.
    """
    if isinstance(column, RaggedStorage):
        return to_plain(column.flat(ticks or 0))
    if isinstance(column, np.ndarray):
        return column[:ticks].copy()
    if isinstance(column, RaggedTensor):
        return {"values": column.values.cpu().numpy(), "lengths": column.lengths}
    return column.cpu().numpy()


def from_plain(plain: Any) -> Any:
    """A copy as a column."""
    if isinstance(plain, Mapping):
        return RaggedTensor.of(Ragged(plain["values"], np.array(plain["lengths"])))
    return torch.from_numpy(np.array(plain))


def per_transition(actions: Column, numbers: Tensor, weights: Tensor | None) -> Tensor:
    """Numbers of choices [K, N] unchanged; for ragged actions [K, D] their weighted sums per transition, [K, N].

    If all weights [N] are 1 / (mean number of choices), the means of the result are means over choices.
    """
    if not isinstance(actions, RaggedTensor):
        return numbers
    sums = actions.sums(numbers)
    return sums if weights is None else sums * weights


# -------------------------------------------------------------------------------------------------------------- storage


class RaggedStorage:
    """A ragged leaf of T ticks of B rows, written tick by tick, as a whole or in runs of rows."""

    def __init__(self, ticks: int, rows: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._rows = rows
        none = RaggedTensor.of(Ragged.empty(rows, dtype, shape))
        self._runs: list[dict[int, RaggedTensor]] = [{0: none} for _ in range(ticks)]  # by the first row of each

    def __setitem__(self, places: tuple[int, slice] | slice | int, written: Any) -> None:
        """Writes rows of a tick `storage[t, rows] = ragged`, a tick, or the ticks of `plain`, `storage[:t] = plain`."""
        if isinstance(places, int):
            self._runs[places] = {0: written}
            return
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
        runs = self._runs[tick]
        if len(runs) == 1:
            return next(iter(runs.values()))
        return RaggedTensor.cat([runs[first] for first in sorted(runs)])

    def flat(self, ticks: int) -> RaggedTensor:
        """The first `ticks` ticks, [ticks * B] rows."""
        return RaggedTensor.cat([self[tick] for tick in range(ticks)])


class RaggedPlaces:
    """A ragged column of N places, written and read at any of them; each row is an array of its own."""

    device = torch.device("cpu")

    def __init__(self, places: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._rows = np.full(places, None, object)
        self._dtype, self._shape = dtype, shape

    def __len__(self) -> int:
        return len(self._rows)

    def __setitem__(self, places: Any, written: Ragged) -> None:
        self._rows[places] = written.separate()

    def __getitem__(self, places: Any) -> RaggedTensor:
        return RaggedTensor.of(Ragged.of(self._rows[places], self._dtype, self._shape))

    def index_select(self, dim: int, index: Tensor) -> RaggedTensor:
        """The rows at an int64 index, in its order; `dim` is 0."""
        return self[index.numpy()]

    def numpy(self) -> RaggedPlaces:
        return self


class Storage:
    """Observations and masks in memory that is written place by place; that of fixed leaves is allocated once.

    NumPy writes the few rows of a tick into torch's memory in half the time that torch takes. `layout` is that of one
    observation; `axes` are those of the places: ticks and rows, or one axis.

    Attributes:
        leaves: [*axes, ...], of ragged ones a `RaggedStorage`, with one axis `RaggedPlaces`.
        masks: bool [*axes, mask_size]; None until the first mask is written.
    """

    def __init__(self, layout: Sequence[Leaf], mask_size: int, *axes: int) -> None:
        ragged: Any = RaggedStorage if len(axes) > 1 else RaggedPlaces
        self.leaves: tuple[Any, ...] = tuple(
            ragged(*axes, leaf.dtype, leaf.shape)
            if leaf.ragged
            else torch.empty(*axes, *leaf.shape, dtype=storage_dtype(leaf.dtype))
            for leaf in layout
        )
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
        """Copies of the rows at an index of the only axis."""
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
            if column is not None:
                column[0] = column[-1]

    def pin(self) -> None:
        """Moves fixed leaves to memory that a GPU reads by itself, while the CPU goes on."""
        self.leaves = tuple(leaf if isinstance(leaf, RaggedStorage) else leaf.pin_memory() for leaf in self.leaves)
        self._arrays = [leaf if isinstance(leaf, RaggedStorage) else leaf.numpy() for leaf in self.leaves]
        self._ticks = []

    def state_dict(self, ticks: int) -> dict[str, Any]:
        """Copies of the first `ticks` ticks, as arrays."""
        masks = None if self.masks is None else self.masks[:ticks].numpy().copy()
        return {"leaves": [to_plain(one, ticks) for one in self._arrays], "masks": masks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        ticks = next((len(stored) for stored in state["leaves"] if not isinstance(stored, Mapping)), 0)
        self.write(slice(ticks), state["leaves"], state["masks"])
