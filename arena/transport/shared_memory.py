"""Anonymous memory that processes of one node share, and equal areas in it with one writer each.

counts     one int64 per area: how many messages its writer has put there
area 0     the newest message of its writer
area 1     ...
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from arena.transport.doorbell import open_descriptor
from arena.transport.endpoint import Bytes

_barrier = threading.Lock()
_barrier.acquire()


def fence() -> None:
    """Orders memory accesses: other processes see every access before it earlier than any access after it.

    Python has no other memory barrier; releasing a lock is one. The lock is never waited for, because the roles of a
    process take turns.
    """
    if _barrier.locked():  # false if a signal raised an exception between the two calls below
        _barrier.release()
    _barrier.acquire(False)


def whole_pages(nbytes: int) -> int:
    """`nbytes`, rounded up to whole pages, which can be mapped by themselves."""
    return -(-nbytes // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY


class SharedMemory(NamedTuple):
    """Anonymous memory that other processes of the node can map."""

    pid: int
    descriptor: int
    nbytes: int

    @classmethod
    def make(cls, nbytes: int) -> SharedMemory:
        """New memory, filled with zeros.

        Raises:
            OSError: there is not enough memory, or the system has no anonymous files (`memfd_create`).
        """
        return cls._allocated(nbytes, lambda descriptor: os.posix_fallocate(descriptor, 0, nbytes))

    @classmethod
    def reserve(cls, nbytes: int) -> SharedMemory:
        """Address space without memory, which must be allocated before it is written (`posix_fallocate`).

        Raises:
            OSError: the system has no anonymous files, or none of this size.
        """
        return cls._allocated(nbytes, lambda descriptor: os.ftruncate(descriptor, nbytes))

    @classmethod
    def _allocated(cls, nbytes: int, allocate: Callable[[int], None]) -> SharedMemory:
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no anonymous shared memory (memfd_create)")
        descriptor = os.memfd_create("arena-link", os.MFD_CLOEXEC)
        try:
            allocate(descriptor)
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
        own = self.pid == os.getpid()
        descriptor = self.descriptor if own else open_descriptor(self.pid, self.descriptor, os.O_RDWR)
        try:
            return np.frombuffer(mmap.mmap(descriptor, stop - start, offset=start), np.uint8)
        finally:
            if not own:
                os.close(descriptor)


_MADE: WeakValueDictionary[SharedMemory, NDArray[np.uint8]] = WeakValueDictionary()  # of this process
_TICKET = struct.Struct("<5q")  # process, descriptor, bytes of everything; areas, bytes of one


class SharedAreas:
    """Equal areas; `areas[i]` is a uint8 array [nbytes].

    An array of an area, or a view of it, keeps all areas in memory, also after the process that made them has ended.

    Args:
        memory: holds the counts and all areas.
        size: number of areas.
        nbytes: size of one area, whole pages.
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
        """New areas of at least `nbytes` bytes each, all counts 0.

        Raises:
            OSError: as `SharedMemory.make`.
        """
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
        """The areas that another role has made.

        Raises:
            OSError: its process has ended, or has closed them.
        """
        *memory, size, nbytes = _TICKET.unpack(ticket)
        return cls(SharedMemory(*memory), size, nbytes)

    @property
    def ticket(self) -> bytes:
        """Other roles of the node open the areas with it, until `close`."""
        return _TICKET.pack(*self._memory, self.size, self.nbytes)

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
