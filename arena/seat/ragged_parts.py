"""The ragged leaves of a message, which are not in its fixed part: they are the link's heap.

    totals      int64 [leaves]: the number of items of each leaf
    per leaf    lengths, int64 [rows]; then the values of all rows, in row order

Each part begins on a multiple of 8 bytes. Since rows move when one of them grows, nothing is written in place: an end
keeps its rows as `Ragged` and packs them when it posts.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ProtocolError
from arena.game.ragged import Ragged
from arena.game.spaces import leaves_of
from arena.transport import Link
from arena.transport.shared_memory import MOST_BYTES

_ALIGNMENT = 8
_PADS = [b"", *(bytes(_ALIGNMENT - odd) for odd in range(1, _ALIGNMENT))]  # by bytes beyond a multiple
_LENGTH = np.dtype(np.int64)
Buffer = NDArray[np.uint8]


class _Part(NamedTuple):
    """One ragged leaf: `column[number]` is its current `Ragged`."""

    block: int
    column: list[Any]
    number: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of an item
    item_bytes: int
    of_actors: bool


class RaggedParts:
    """The `size` ragged leaves of some columns.

    Args:
        spaces: of each block.
        columns: per block and leaf its rows; of ragged leaves a `Ragged`, which is replaced with each message.
    """

    def __init__(self, spaces: Sequence[Space[Any]], columns: Sequence[list[Any]]) -> None:
        self._parts = [
            _Part(block, column, number, leaf.dtype, leaf.shape, leaf.nbytes, leaf.of_actors)
            for block, (space, column) in enumerate(zip(spaces, columns, strict=True))
            for number, leaf in enumerate(leaves_of(space, ragged=True))
            if leaf.ragged
        ]
        self.size = len(self._parts)

    def keep(self, acting: Sequence[NDArray[np.bool_]], *, all_leaves: bool) -> None:
        """Removes the items of rows that are not `acting`, per block [rows]; from all leaves or those of actors."""
        for block, column, number, _, _, _, of_actors in self._parts:
            if all_leaves or of_actors:
                column[number] = column[number].kept(acting[block])

    def current(self) -> list[Ragged]:
        """The rows of all leaves."""
        return [column[number] for _, column, number, *_ in self._parts]

    def read(self, heap: Buffer, totals: Iterator[int], at: int, rows: Sequence[int]) -> int:
        """Reads all leaves, from a byte on, as views of a heap, this end's copy of the message's; returns their end.

        `totals` are the number of items of each leaf, `rows` how many rows were sent of each block. Raises
        `ProtocolError` if the leaves need more bytes than the heap has.
        """
        size = len(heap)
        for block, column, number, dtype, shape, item_bytes, _ in self._parts:
            count, total = rows[block], next(totals)
            begin = at + 8 * count
            end = begin + total * item_bytes
            if end > size or total < 0:
                raise ProtocolError(f"a heap of {size} bytes, but its leaves ask for {end} bytes or more")
            lengths = np.ndarray((count,), _LENGTH, heap, at)
            column[number] = Ragged.unchecked(np.ndarray((total, *shape), dtype, heap, begin), lengths)
            at = end + -end % _ALIGNMENT
        return at


def send_heap(link: Link, heap: bytes) -> None:
    """Hands a heap to the other end, before the message; raises OSError if it is too long, or there is no memory."""
    if len(heap) > MOST_BYTES:
        raise OSError(f"a message can hold {MOST_BYTES:,} bytes")
    try:
        link.reserve_heap(len(heap)).data[:] = heap
    except MemoryError as error:
        raise OSError(str(error)) from error
    link.post_heap()


def packed(rows: Sequence[Ragged]) -> bytes:
    """The heap that holds these leaves."""
    totals = array("q")
    parts: list[Any] = [totals]
    for ragged in rows:
        values, lengths = ragged.values, ragged.lengths
        totals.append(len(values))
        parts.append(lengths if lengths.flags.c_contiguous else np.ascontiguousarray(lengths))
        if size := values.nbytes:
            parts.append(values if values.flags.c_contiguous else np.ascontiguousarray(values))
            if size % _ALIGNMENT:
                parts.append(_PADS[size % _ALIGNMENT])
    return b"".join(parts)  # a third of the time of one copy per leaf


def read_heap(heap: Buffer, parts: Sequence[tuple[RaggedParts, Sequence[int]]]) -> None:
    """Reads a whole heap, of one or several `RaggedParts` with the rows that were sent per block.

    Raises:
        ProtocolError: the leaves need another length than the heap has.
    """
    leaves = 0
    for part, _ in parts:
        leaves += part.size
    if len(heap) < 8 * leaves:
        raise ProtocolError(f"a heap of {len(heap)} bytes, but it has {leaves} leaves")
    totals = iter(struct.unpack_from(f"={leaves}q", heap.data))
    at = 8 * leaves
    for part, rows in parts:
        at = part.read(heap, totals, at, rows)
    if at != len(heap):
        raise ProtocolError(f"a heap of {len(heap)} bytes, but its leaves ask for {at}")
