"""The ragged leaves of a message: their lengths stand in its fixed part, their values in the link's heap.

A heap begins with the number of items of each leaf, int64; values of all rows follow one after the other, leaf by
leaf, each leaf on a multiple of 8 bytes. Since rows move when one of them grows, nothing is written in place: an end
keeps its rows as `Ragged` and packs them when it posts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ProtocolError
from arena.game.ragged import Ragged
from arena.game.spaces import Leaf, leaves_of

_ALIGNMENT = 8
Buffer = NDArray[np.uint8]


class _Part(NamedTuple):
    """One ragged leaf: `column[number]` is its current `Ragged`."""

    block: int
    leaf: Leaf
    item_bytes: int
    lengths: NDArray[np.int64]  # [rows] in the fixed part
    column: list[Any]
    number: int


class RaggedParts:
    """The ragged leaves of some columns.

    Args:
        spaces: of each block.
        columns: per block and leaf the arrays [rows, ...] of the fixed part; those of ragged leaves hold lengths, and
            are replaced by a `Ragged` without items.
    """

    def __init__(self, spaces: Sequence[Space[Any]], columns: Sequence[list[Any]]) -> None:
        self._parts: list[_Part] = []
        for block, (space, column) in enumerate(zip(spaces, columns, strict=True)):
            for number, leaf in enumerate(leaves_of(space, ragged=True)):
                if leaf.ragged:
                    self._parts.append(_Part(block, leaf, leaf.nbytes, column[number], column, number))
                    column[number] = Ragged.empty(len(column[number]), leaf.dtype, leaf.shape)

    @property
    def size(self) -> int:
        """The number of ragged leaves."""
        return len(self._parts)

    def keep(self, acting: Sequence[NDArray[np.bool_]], *, all_leaves: bool) -> None:
        """Removes the items of rows that do not act: of all leaves, or of those that say what actors may do.

        Args:
            acting: per block, [rows].
            all_leaves: whether of all.
        """
        for block, leaf, _, _, column, number in self._parts:
            if all_leaves or leaf.of_actors:
                column[number] = column[number].kept(acting[block])

    def write_lengths(self, values: list[NDArray[Any]]) -> None:
        """Writes all lengths into the fixed part, and adds the values to a list, leaf by leaf."""
        for _, _, _, lengths, column, number in self._parts:
            ragged: Ragged = column[number]
            lengths[: len(ragged)] = ragged.lengths
            values.append(ragged.values)

    def read(self, heap: Buffer, totals: Iterator[int], at: int, counts: Sequence[int] | None = None) -> int:
        """Reads all leaves from a heap, as views of it.

        Args:
            heap: of the message, this end's own copy of it.
            totals: the items of each leaf.
            at: where the values of the first leaf begin.
            counts: per block the rows that were sent; None: all.

        Returns:
            where the last leaf ends.

        Raises:
            ProtocolError: the leaves ask for more than there is.
        """
        size = len(heap)
        for block, leaf, item_bytes, fixed, column, number in self._parts:
            lengths = (fixed if counts is None else fixed[: counts[block]]).copy()
            total = next(totals)
            end = at + total * item_bytes
            if end > size or total < 0:
                raise ProtocolError(f"a heap of {size} bytes, but its leaves ask for {end} bytes or more")
            shape = (total, *leaf.shape)
            values = np.ndarray(shape, leaf.dtype, heap, at) if end > at else np.empty(shape, leaf.dtype)
            column[number] = Ragged.unchecked(values, lengths)
            at = -(-end // _ALIGNMENT) * _ALIGNMENT
        return at


def heap_bytes(values: Sequence[NDArray[Any]]) -> int:
    """The length of a heap with these values; 0 if there are none."""
    nbytes = sum([-(-one.nbytes // _ALIGNMENT) * _ALIGNMENT for one in values])
    return 8 * len(values) + nbytes if nbytes or any(map(len, values)) else 0


def write_heap(heap: Buffer, values: Sequence[NDArray[Any]]) -> None:
    """Writes the numbers of items and all values, one after the other."""
    target: Any = heap.data
    at = 8 * len(values)
    target[:at].cast("q")[:] = array("q", map(len, values))
    for one in values:
        if size := one.nbytes:
            target[at : at + size] = np.ascontiguousarray(one).data.cast("B")
            at += -(-size // _ALIGNMENT) * _ALIGNMENT


def read_heap(heap: Buffer, parts: Sequence[tuple[RaggedParts, Sequence[int] | None]]) -> None:
    """Reads a whole heap, of one or several `RaggedParts` with their `counts`.

    Raises:
        ProtocolError: the leaves ask for another length than it has.
    """
    number = sum(part.size for part, _ in parts)
    numbers: Any = heap.data
    totals = iter(numbers[: 8 * number].cast("q").tolist()) if len(heap) else repeat(0)
    at = 8 * number if len(heap) else 0
    for part, counts in parts:
        at = part.read(heap, totals, at, counts)
    if at != len(heap):
        raise ProtocolError(f"a heap of {len(heap)} bytes, but its leaves ask for {at}")
