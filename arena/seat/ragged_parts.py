"""The ragged leaves of a message: their lengths stand in its fixed part, their values in the link's heap.

Values of all rows stand one after the other, leaf by leaf, each leaf on a multiple of 8 bytes. Since rows move when
one of them grows, nothing is written in place: an end keeps its rows as `Ragged` and packs them when it posts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
                    lengths = column[number]
                    self._parts.append(_Part(block, leaf, lengths, column, number))
                    column[number] = Ragged.empty(len(lengths), leaf.dtype, leaf.shape)

    def keep(self, acting: Sequence[NDArray[np.bool_]], *, all_leaves: bool) -> None:
        """Removes the items of rows that do not act: of all leaves, or of those that say what actors may do.

        Args:
            acting: per block, [rows].
            all_leaves: whether of all.
        """
        for block, leaf, _, column, number in self._parts:
            if (all_leaves or leaf.of_actors) and not acting[block].all():
                column[number] = column[number].kept(acting[block])

    def write_lengths(self) -> Iterator[NDArray[Any]]:
        """Writes all lengths into the fixed part; the values, leaf by leaf."""
        for _, _, lengths, column, number in self._parts:
            ragged: Ragged = column[number]
            lengths[: len(ragged)] = ragged.lengths
            yield ragged.values

    def read(self, heap: Buffer, at: int, counts: Sequence[int] | None = None) -> int:
        """Reads all leaves from a heap, as views of it.

        Args:
            heap: of the message, this end's own copy of it.
            at: where the first leaf begins.
            counts: per block the rows that were sent; None: all.

        Returns:
            where the last leaf ends.

        Raises:
            ProtocolError: the lengths ask for more than there is.
        """
        for block, leaf, fixed, column, number in self._parts:
            lengths = (fixed if counts is None else fixed[: counts[block]]).copy()
            total = int(lengths.sum())
            end = at + total * leaf.nbytes
            if end > len(heap) or total < 0:
                raise ProtocolError(f"a heap of {len(heap)} bytes, but its lengths ask for {end} bytes or more")
            values: NDArray[Any] = np.ndarray((total, *leaf.shape), leaf.dtype, heap, at) if total else _none_of(leaf)
            column[number] = Ragged.unchecked(values, lengths)
            at = aligned(end)
        return at


def aligned(offset: int) -> int:
    """The first place for a leaf's values from an offset on."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def heap_bytes(values: Sequence[NDArray[Any]]) -> int:
    """The length of a heap with these values."""
    return sum(aligned(one.nbytes) for one in values)


def write_heap(heap: Buffer, values: Sequence[NDArray[Any]]) -> None:
    """Writes all values, one after the other."""
    at = 0
    for one in values:
        if one.nbytes:
            np.ndarray(one.shape, one.dtype, heap, at)[...] = one
            at = aligned(at + one.nbytes)


def _none_of(leaf: Leaf) -> NDArray[Any]:
    return np.zeros((0, *leaf.shape), leaf.dtype)
