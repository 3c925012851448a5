"""Ragged arrays: rows of unequal length, stored as all items one after the other, and the length of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Array = NDArray[Any]
Integers = NDArray[np.int64]


class Ragged:
    """Rows of unequal length, never changed in place; the arrays that it is created from are not copied.

        Ragged(np.array([1, 2, 3]), [2, 0, 1]).tolist()      [[1, 2], [], [3]]

    Attributes:
        values: [M, *shape] the items of all rows, one after the other.
        lengths: int64 [B] the number of items of each row.

    Raises:
        ValueError: a length is negative, or the lengths do not add up to M.
    """

    __slots__ = ("_offsets", "lengths", "values")  # no properties: messages read both many times per tick
    values: Array
    lengths: Integers
    __array_ufunc__ = None  # `array + ragged` raises TypeError; NumPy would take each row for an item
    __hash__ = None  # type: ignore[assignment]  # equal by value, as arrays are

    def __init__(self, values: ArrayLike, lengths: ArrayLike) -> None:
        self.values = np.asarray(values)
        self.lengths = np.asarray(lengths, np.int64)
        self._offsets: Integers | None = None
        if self.values.ndim == 0 or self.lengths.ndim != 1:
            raise ValueError(
                f"values [M, ...] and lengths [B] are needed, got the shapes {self.values.shape} and "
                f"{self.lengths.shape}"
            )
        if len(self.lengths) and (least := int(self.lengths.min())) < 0:
            raise ValueError(f"lengths cannot be negative, got {least}")
        if (total := int(self.lengths.sum())) != len(self.values):
            raise ValueError(f"the lengths add up to {total}, but there are {len(self.values)} values")

    @classmethod
    def unchecked(cls, values: Array, lengths: Integers) -> Ragged:
        """As the constructor, from arrays that fit: on the step path, checks take longer than the rest."""
        made = cls.__new__(cls)
        made.values, made.lengths, made._offsets = values, lengths, None
        return made

    @classmethod
    def of(cls, rows: Sequence[ArrayLike], dtype: DTypeLike, shape: tuple[int, ...] = ()) -> Ragged:
        """From one array or list per row, [n, *shape], cast; a row without items may have any shape.

        Raises:
            ValueError: a row has another shape.
        """
        arrays = []
        for index, row in enumerate(rows):
            array = np.asarray(row)
            if array.shape[:1] == (0,):
                array = np.zeros((0, *shape), dtype)
            if array.ndim == 0 or array.shape[1:] != shape:
                expected = ", ".join(map(str, ("n", *shape)))
                raise ValueError(f"row {index} must have the shape [{expected}], got {list(array.shape)}")
            arrays.append(array.astype(dtype, copy=False))
        if not arrays:
            return cls.empty(0, dtype, shape)
        return cls(np.concatenate(arrays), [len(array) for array in arrays])

    @classmethod
    def empty(cls, size: int, dtype: DTypeLike, shape: tuple[int, ...] = ()) -> Ragged:
        """`size` rows without items."""
        return cls(np.zeros((0, *shape), dtype), np.zeros(size, np.int64))

    @classmethod
    def concat(cls, parts: Sequence[Ragged]) -> Ragged:
        """The rows of all parts, in order; a copy."""
        return cls(np.concatenate([part.values for part in parts]), np.concatenate([part.lengths for part in parts]))

    @classmethod
    def side_by_side(cls, parts: Sequence[Ragged]) -> Ragged:
        """The same rows, each with the items of all parts in order; a copy."""
        if len({len(part) for part in parts}) != 1:
            raise ValueError(f"parts must have the same number of rows, got {[len(part) for part in parts]}")
        lengths = np.sum([part.lengths for part in parts], axis=0)
        dtype = np.result_type(*(part.dtype for part in parts))
        values = np.empty((int(lengths.sum()), *parts[0].shape), dtype)
        begin = np.cumsum(lengths) - lengths  # where the next part's items of each row begin
        for part in parts:
            values[np.repeat(begin - part.offsets, part.lengths) + np.arange(part.total)] = part.values
            begin = begin + part.lengths
        return cls(values, lengths)

    @property
    def offsets(self) -> Integers:
        """[B] where each row begins in `values`."""
        if self._offsets is None:
            self._offsets = np.cumsum(self.lengths) - self.lengths
        return self._offsets

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the items."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an item."""
        return self.values.shape[1:]

    @property
    def total(self) -> int:
        """M, the number of items of all rows."""
        return len(self.values)

    def rows(self) -> Integers:
        """[M] the row of each item."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def places(self) -> Integers:
        """[M] the place of each item in its row."""
        return np.arange(self.total) - np.repeat(self.offsets, self.lengths)

    def separate(self) -> NDArray[np.object_]:
        """[B] the rows as arrays [n, *shape] of their own; copies."""
        found = np.empty(len(self), object)
        for row, (begin, length) in enumerate(zip(self.offsets.tolist(), self.lengths.tolist(), strict=True)):
            found[row] = self.values[begin : begin + length].copy()
        return found

    def kept(self, rows: NDArray[np.bool_]) -> Ragged:
        """The same number of rows, without items where `rows` [B] is false."""
        if np.count_nonzero(rows) == len(rows):
            return self
        return Ragged.unchecked(self.values[np.repeat(rows, self.lengths)], np.where(rows, self.lengths, 0))

    def replaced(self, other: Ragged, rows: NDArray[np.bool_]) -> Ragged:
        """The rows of `other` where `rows` [B] is true, else these; a copy."""
        return Ragged.concat([self, other])[np.where(rows, len(self), 0) + np.arange(len(self))]

    def astype(self, dtype: DTypeLike) -> Ragged:
        """The same rows with items of another dtype; itself if they have it already."""
        values = self.values.astype(dtype, copy=False)
        return self if values is self.values else Ragged.unchecked(values, self.lengths)

    def copy(self) -> Ragged:
        """The same rows in arrays of their own."""
        return Ragged.unchecked(self.values.copy(), self.lengths.copy())

    def tolist(self) -> list[Any]:
        """Nested lists, one per row."""
        return [row.tolist() for row in self]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Array]:
        begin = 0
        for length in self.lengths.tolist():
            yield self.values[begin : begin + length]
            begin += length

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Array: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[Any]) -> Ragged: ...

    def __getitem__(self, index: Any) -> Array | Ragged:
        """A row as a view [n, *shape], or the rows of a slice, an integer array or a bool array [B], in that order."""
        if isinstance(index, (int, np.integer)):
            length, offset = int(self.lengths[index]), int(self.offsets[index])
            return self.values[offset : offset + length]
        if isinstance(index, slice) and index.step in (None, 1):
            first, stop, _ = index.indices(len(self))
            lengths = self.lengths[first:stop]
            if not len(lengths):
                return Ragged(self.values[:0], lengths)
            begin = int(self.offsets[first])
            return Ragged.unchecked(self.values[begin : begin + int(lengths.sum())], lengths)
        if not isinstance(index, (slice, np.ndarray)):
            index = np.asarray(index, None if len(index) else np.intp)
        lengths = self.lengths[index]
        shift = self.offsets[index] - (np.cumsum(lengths) - lengths)
        items = np.repeat(shift, lengths)
        items += np.arange(len(items))
        return Ragged.unchecked(self.values.take(items, axis=0), lengths)

    def __eq__(self, other: object) -> bool:
        """Whether dtype, shape of an item, lengths and values are equal."""
        if not isinstance(other, Ragged):
            return NotImplemented
        pairs = (self.lengths, other.lengths), (self.values, other.values)
        return self.dtype == other.dtype and all(np.array_equal(*pair) for pair in pairs)

    def __repr__(self) -> str:
        return f"Ragged({self.tolist()}, {self.dtype}, shape={self.shape})"
