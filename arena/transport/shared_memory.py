"""Areas of memory that several roles of a node see: each writes into its own, and counts what it has written there.

counts     one int64 per area: how many messages its owner has put there
area 0     whatever its owner says
area 1     ...
"""

from __future__ import annotations

import os
import struct
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from arena.transport.doorbell import SharedMemory, whole_pages
from arena.transport.endpoint import Bytes
from arena.transport.links import fence

_MADE: WeakValueDictionary[SharedMemory, NDArray[np.uint8]] = WeakValueDictionary()  # of this process
_TICKET = struct.Struct("<5q")  # process, descriptor, bytes of everything; areas, bytes of one


class SharedAreas:
    """Equal areas; `areas[i]` is a uint8 array [nbytes].

    Who holds an area's array, or one made of it, keeps all of them in memory, whatever becomes of their maker.

    Args:
        memory: of the counts and all areas.
        size: how many areas.
        nbytes: of one area, whole pages.
    """

    def __init__(self, memory: SharedMemory, size: int, nbytes: int) -> None:
        self.size = size
        self.nbytes = nbytes
        self._memory = memory
        self._open = memory.pid == os.getpid()
        # One mapping does for all roles of the maker's process: each further one would hold a descriptor.
        everything = _MADE.get(memory) if self._open else None
        if everything is None:
            everything = memory.map()
        self._areas = everything[-size * nbytes :].reshape(size, nbytes)
        self.counts = everything[: 8 * size].data.cast("q")  # [size]

    @classmethod
    def make(cls, size: int, nbytes: int) -> SharedAreas:
        """New areas of at least so many bytes each, all counts 0.

        Raises:
            OSError: there is not so much memory, or the system cannot share it without a name.
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
            OSError: its process has gone, or has closed them.
        """
        *memory, size, nbytes = _TICKET.unpack(ticket)
        return cls(SharedMemory(*memory), size, nbytes)

    @property
    def ticket(self) -> bytes:
        """With it others of the node open the areas, until they are closed."""
        return _TICKET.pack(*self._memory, self.size, self.nbytes)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        area: NDArray[np.uint8] = self._areas[index]
        return area

    def post(self, index: int, count: int) -> None:
        """Sets the count of an area. Who sees it also sees what was written before.

        Of two that post at the same moment and then look at each other's counts, at least one sees both.
        """
        fence()
        self.counts[index] = count
        fence()

    def close(self) -> None:
        """Ends the use of the ticket: everybody whom it was for has opened the areas. Further calls do nothing."""
        if self._open:
            self._open = False
            os.close(self._memory.descriptor)
