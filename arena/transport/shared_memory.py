"""Anonymous memory that processes of one node share: areas of groups, and heaps of links.

`SharedAreas` are equal areas with one writer each:

    counts     one int64 per area: how many messages its writer has put there
    area 0     the newest message of its writer
    area 1     ...

A heap has the parts of any length of a link's messages. Its writer reserves the bytes of its next
message, fills them, and posts the message; the other end reads them until it posts itself. Links over MPI send their
heap as a message of its own.

    LocalHeap     of two ends in one process: an array, replaced by a longer one as needed
    SharedHeap    address space of `MOST_BYTES` that both processes map. Memory is allocated for its beginning only; the
                  writer allocates more before it writes there: writing to a page without memory would kill the process
"""

from __future__ import annotations

import mmap
import os
import threading
from typing import NamedTuple
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from arena.transport.doorbell import open_descriptor
from arena.transport.endpoint import Bytes
from arena.transport.pickling import pack, unpack

MOST_BYTES = 2**28
"""The most bytes of the heap of one message."""

_FIRST_BYTES = 2**16  # of a heap, allocated at first
Buffer = NDArray[np.uint8]

_barrier = threading.Lock()


def fence() -> None:
    """Orders memory accesses: other processes see every access before it earlier than any access after it.

    Python has no other memory barrier; releasing a lock is one. The lock is never waited for, because the roles of a
    process take turns.
    """
    _barrier.acquire(False)  # it is held already if a signal raised an exception between these two calls
    _barrier.release()


def whole_pages(nbytes: int) -> int:
    """`nbytes`, rounded up to whole pages, which can be mapped by themselves."""
    return -(-nbytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


class SharedMemory(NamedTuple):
    """Anonymous memory that other processes of the node can map."""

    pid: int
    descriptor: int
    nbytes: int

    @classmethod
    def make(cls, nbytes: int, *, reserve: bool = False) -> SharedMemory:
        """New memory, filled with zeros; `reserve`: address space only, which must be allocated before it is written.

        Raises:
            OSError: there is not enough memory, or the system has no anonymous files (`memfd_create`).
        """
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no anonymous shared memory (memfd_create)")
        descriptor = os.memfd_create("arena-link", os.MFD_CLOEXEC)
        try:
            if reserve:
                os.ftruncate(descriptor, nbytes)
            else:
                os.posix_fallocate(descriptor, 0, nbytes)
        except OSError:
            os.close(descriptor)
            raise
        return cls(os.getpid(), descriptor, nbytes)

    def close(self) -> None:
        """Called by the owner: it can no longer be mapped; existing mappings stay valid."""
        os.close(self.descriptor)

    def map(self, part: slice | None = None) -> NDArray[np.uint8]:
        """The memory, or a part of it that begins and ends on a page boundary; any process of the node may call it."""
        start, stop = (0, self.nbytes) if part is None else (part.start, part.stop)
        is_here = self.pid == os.getpid()
        descriptor = self.descriptor if is_here else open_descriptor(self.pid, self.descriptor, os.O_RDWR)
        try:
            return np.frombuffer(mmap.mmap(descriptor, stop - start, offset=start), np.uint8)
        finally:
            if not is_here:
                os.close(descriptor)


_MADE: WeakValueDictionary[SharedMemory, NDArray[np.uint8]] = WeakValueDictionary()  # of this process


class SharedAreas:
    """Equal areas of whole pages in some memory; `areas[i]` is a uint8 array [nbytes].

    An array of an area, or a view of it, keeps all areas in memory, also after the process that made them has ended.
    """

    def __init__(self, memory: SharedMemory, size: int, nbytes: int) -> None:
        self.size = size
        self.nbytes = nbytes
        self._memory = memory
        self._open = memory.pid == os.getpid()
        # One mapping serves all roles of the process that made it: each further one would hold a descriptor.
        everything = _MADE.get(memory) if self._open else None
        if everything is None:
            everything = memory.map()
        self._areas = everything[-size * nbytes :].reshape(size, nbytes)
        self.counts = everything[: 8 * size].data.cast("q")  # [size]

    @classmethod
    def make(cls, size: int, nbytes: int) -> SharedAreas:
        """New areas of at least `nbytes` bytes each, all counts 0; raises OSError as `SharedMemory.make`."""
        nbytes = whole_pages(nbytes)
        memory = SharedMemory.make(whole_pages(8 * size) + size * nbytes)
        try:
            everything = memory.map()
        except OSError:
            os.close(memory.descriptor)
            raise
        _MADE[memory] = everything
        return cls(memory, size, nbytes)

    @classmethod
    def open(cls, ticket: Bytes) -> SharedAreas:
        """The areas that another role has made; raises OSError if its process has ended, or has closed them."""
        return cls(*unpack(ticket))

    @property
    def ticket(self) -> bytes:
        """Other roles of the node open the areas with it, until `close`."""
        return pack((self._memory, self.size, self.nbytes))

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        area: NDArray[np.uint8] = self._areas[index]
        return area

    def post(self, index: int, count: int) -> None:
        """Sets the count of an area. A role that reads the new count also sees what was written to the area before.

        If two roles post at the same moment and then read both counts, at least one of them sees both new values.
        """
        fence()
        self.counts[index] = count
        fence()

    def close(self) -> None:
        """Makes the ticket invalid, after all its receivers have opened the areas. Further calls do nothing."""
        if self._open:
            self._open = False
            os.close(self._memory.descriptor)


class LocalHeap:
    """A heap of two ends in one process."""

    def __init__(self) -> None:
        self._buffer: Buffer = np.empty(0, np.uint8)

    def reserve(self, nbytes: int) -> Buffer:
        """The writer's buffer [nbytes] for its next message."""
        if nbytes > len(self._buffer):
            self._buffer = np.empty(_enough_for(nbytes), np.uint8)
        return self._buffer[:nbytes]

    def view(self, nbytes: int) -> Buffer:
        """The first bytes of the newest message."""
        return self._buffer[:nbytes]


class SharedHeap:
    """One of the heaps in a piece of reserved memory; methods as of `LocalHeap`.

    Raises:
        OSError: it cannot be mapped; from `reserve`: there is not enough memory.
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


def _enough_for(nbytes: int) -> int:
    """The size of a heap for a message: doubled, so it seldom grows."""
    return max(_FIRST_BYTES, 1 << (nbytes - 1).bit_length())
