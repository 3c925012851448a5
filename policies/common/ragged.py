"""Ragged tensors: rows of unequal length, as one tensor of all items and the lengths of the rows.

The torch counterpart of `arena.game.ragged.Ragged`. The lengths are on the host, whatever device holds the items: all
index arithmetic is NumPy's, which takes a third of torch's time for so few numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arena.game.ragged import Ragged

Integers = NDArray[np.int64]


class RaggedTensor:
    """Rows of unequal length; nothing of it changes in place.

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
