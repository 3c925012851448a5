"""Heaps: the parts of any length of a link's messages, beside the fixed part.

A heap has one writer. It reserves the bytes of its next message, fills them, and posts the message; the other end reads
them until it posts itself.

LocalHeap     of two ends in one process: an array, replaced by a longer one as needed
SharedHeap    address space of `MOST_BYTES` that both processes map. Memory is allocated for its beginning only; the
              writer allocates more before it writes there: writing to a page without memory would kill the process

Links over MPI send their heap as a message of its own.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from arena.transport.doorbell import open_descriptor
from arena.transport.shared_memory import SharedMemory, whole_pages

MOST_BYTES = 2**28
"""The most bytes of the heap of one message."""

_FIRST_BYTES = 2**16  # allocated at first
Buffer = NDArray[np.uint8]


class Heap(Protocol):
    """A buffer that one end of a link writes and the other one reads."""

    def reserve(self, nbytes: int) -> Buffer:
        """The writer's buffer [nbytes] for its next message.

        Raises:
            OSError: there is not enough memory.
        """
        ...

    def view(self, nbytes: int) -> Buffer:
        """The first bytes of the newest message."""
        ...


class LocalHeap:
    """A heap of two ends in one process."""

    def __init__(self) -> None:
        self._buffer: Buffer = np.empty(0, np.uint8)

    def reserve(self, nbytes: int) -> Buffer:
        if nbytes > len(self._buffer):
            self._buffer = np.empty(_enough_for(nbytes), np.uint8)
        return self._buffer[:nbytes]

    def view(self, nbytes: int) -> Buffer:
        return self._buffer[:nbytes]


class SharedHeap:
    """One of the heaps in a piece of reserved memory.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, memory: SharedMemory, index: int, *, writes: bool) -> None:
        self._start = index * MOST_BYTES
        self._buffer = memory.map(slice(self._start, self._start + MOST_BYTES))
        self._backed = 0  # bytes that this end has allocated
        if writes:
            self._descriptor = open_descriptor(memory.pid, memory.descriptor, os.O_RDWR)
            finalize(self, os.close, self._descriptor)

    def reserve(self, nbytes: int) -> Buffer:
        if nbytes > self._backed:
            backed = min(_enough_for(nbytes), MOST_BYTES)
            try:
                os.posix_fallocate(self._descriptor, self._start, backed)
            except OSError:  # there may still be memory for this message alone
                backed = whole_pages(nbytes)
                os.posix_fallocate(self._descriptor, self._start, backed)
            self._backed = backed
        return self._buffer[:nbytes]

    def view(self, nbytes: int) -> Buffer:
        return self._buffer[:nbytes]


def reserved(heaps: int) -> SharedMemory:
    """Address space for this many heaps, which other processes can map.

    Raises:
        OSError: the system has no anonymous files, or files of this size.
    """
    return SharedMemory.reserve(heaps * MOST_BYTES)


def _enough_for(nbytes: int) -> int:
    """The size of a heap for a message: doubled, so it seldom grows."""
    return max(_FIRST_BYTES, 1 << (nbytes - 1).bit_length())
