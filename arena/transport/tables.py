"""Tables: an environment and the seats of one block of its lanes, and the memory between them.

    board      two counters per seat: see `links`
    row 0      the buffers of seat 0: what it says, what it is told
    row 1      ...

Board and rows begin on pages of their own, so that the process of a seat maps the board and its own row alone. The
environment lays the table: roles in its own process get the memory, those in other processes of the node are told in
a letter where it is, all others (or all of other processes, where memory is short) have links over MPI.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from arena.transport.doorbell import SharedMemory, whole_pages
from arena.transport.endpoint import Endpoint, Link, LinkSet, LinkSize, RemoteTransport, Side, Tag
from arena.transport.links import NEVER_AGAIN, SharedCounters, SharedLink, SharedSeatLink

_CACHE_LINE = 64
_log = logging.getLogger(__name__)
_PLACE = struct.Struct("<7q")  # process, descriptor (-1: no memory), bytes; seats, request and reply bytes; seat


class Shape(NamedTuple):
    """What lies where in the memory of a table."""

    seats: int
    request_bytes: int  # of the seat with most
    reply_bytes: int

    @property
    def reply_offset(self) -> int:
        """Where in a row the reply begins."""
        return -(-self.request_bytes // _CACHE_LINE) * _CACHE_LINE

    @property
    def row_bytes(self) -> int:
        return whole_pages(self.reply_offset + self.reply_bytes)

    @property
    def board_bytes(self) -> int:
        return whole_pages(16 * self.seats)

    @property
    def nbytes(self) -> int:
        return self.board_bytes + self.seats * self.row_bytes

    def row(self, seat: int) -> slice:
        """Where a seat's row is in the memory of the whole table."""
        start = self.board_bytes + seat * self.row_bytes
        return slice(start, start + self.row_bytes)

    def requests(self, row: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The request's part of a row, or of several rows [S, row_bytes]."""
        return row[..., : self.request_bytes]

    def replies(self, row: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The reply's part of a row, or of several rows [S, row_bytes]."""
        return row[..., self.reply_offset : self.reply_offset + self.reply_bytes]


class TablePlace(NamedTuple):
    """Where a seat's process finds its row; what the letter of a table says."""

    memory: SharedMemory | None
    shape: Shape
    seat: int

    def pack(self) -> bytes:
        """The letter."""
        return _PLACE.pack(*(self.memory or (-1, -1, 0)), *self.shape, self.seat)

    @classmethod
    def unpack(cls, letter: Any) -> TablePlace:
        """The letter's content."""
        pid, descriptor, nbytes, *shape, seat = _PLACE.unpack(letter)
        return cls(SharedMemory(pid, descriptor, nbytes) if descriptor >= 0 else None, Shape(*shape), seat)


class Here(Protocol):
    """What the tables of a process need of it."""

    def hosts(self, address: int) -> bool:
        """Whether a role is in this process."""
        ...


class LinkMemory:
    """The tables that roles of one process lay or sit at.

    Args:
        here: the process.
        outside: the way to other processes; None where there are none.
    """

    def __init__(self, here: Here, outside: RemoteTransport | None) -> None:
        self._here = here
        self._outside = outside
        self._told = False  # that there is no memory; there will be no more for the next table
        self._laid: dict[tuple[int, int], tuple[Shape, NDArray[np.uint8], Sequence[int]]] = {}  # (environment, part)
        self._open: dict[tuple[int, int], SharedMemory] = {}  # of those that others look for by a letter

    def lay(self, endpoint: Endpoint, peers: Sequence[int], sizes: Sequence[LinkSize], part: int) -> LinkSet:
        """The environment's end; see `Endpoint.table`. It takes the place of the one that the same roles had before."""
        shape = Shape(len(peers), max(size.request for size in sizes), max(size.reply for size in sizes))
        near = [self._near(peer) for peer in peers]
        self._clear(endpoint.address, part)
        shared = self._shared(shape.nbytes) if any(near) else None
        memory = np.zeros(shape.nbytes, np.uint8) if shared is None else shared.map()
        self._laid[endpoint.address, part] = shape, memory, peers
        if shared is not None:
            self._open[endpoint.address, part] = shared
        for seat, peer in enumerate(peers):
            if near[seat]:
                endpoint.send(peer, Tag.LINK, TablePlace(shared, shape, seat).pack())
        board = SharedCounters.on(memory, shape.seats)
        links: list[Link] = []
        for seat, peer in enumerate(peers):
            row = memory[shape.row(seat)]
            outbox, inbox = shape.replies(row), shape.requests(row)
            if self._here.hosts(peer) or (near[seat] and shared is not None):
                wake = _waker(endpoint, peer)
                links.append(SharedLink(endpoint, peer, Side.ENVIRONMENT, part, seat, board, outbox, inbox, wake))
            else:
                board.requests[seat] = NEVER_AGAIN
                links.append(self._elsewhere.link(endpoint, peer, Side.ENVIRONMENT, part, outbox, inbox))
        rows = memory[shape.board_bytes :].reshape(shape.seats, shape.row_bytes)
        return LinkSet(links, shape.replies(rows))

    def close(self) -> None:
        """Forgets all tables; for a process whose roles end or are made anew."""
        for environment, part in list(self._laid):
            self._clear(environment, part)

    def _clear(self, environment: int, part: int) -> None:
        """Forgets a table of an earlier leg. Whoever sat there has its memory, or needs it no more."""
        self._laid.pop((environment, part), None)
        before = self._open.pop((environment, part), None)
        if before is not None:
            before.close()

    def take_seat(self, endpoint: Endpoint, environment: int, size: LinkSize, part: int) -> Link:
        """The seat's end; see `Endpoint.link`."""
        if self._here.hosts(environment):
            shape, memory, peers = self._laid[environment, part]
            seat = peers.index(endpoint.address)
            board, row = memory, memory[shape.row(seat)]
        else:
            place = self._place(endpoint, environment)
            if place is None or place.memory is None:
                outbox, inbox = (np.zeros(nbytes, np.uint8) for nbytes in size)
                return self._elsewhere.link(endpoint, environment, Side.SEAT, part, outbox, inbox)
            shape, seat = place.shape, place.seat
            board, row = (place.memory.map(pages) for pages in (slice(0, shape.board_bytes), shape.row(seat)))
        wake = _waker(endpoint, environment)
        outbox, inbox = shape.requests(row), shape.replies(row)
        counters = SharedCounters.on(board, shape.seats)
        return SharedSeatLink(endpoint, environment, Side.SEAT, part, seat, counters, outbox, inbox, wake)

    @property
    def _elsewhere(self) -> RemoteTransport:
        assert self._outside is not None, "this process is alone: every role must be in it"
        return self._outside

    def _near(self, address: int) -> bool:
        """Whether a role is in another process that can see the same memory as this one."""
        return not self._here.hosts(address) and self._elsewhere.reaches(address)

    def _shared(self, nbytes: int) -> SharedMemory | None:
        try:
            return SharedMemory.make(nbytes)
        except OSError as error:
            if not self._told:
                self._told = True
                _log.warning("no shared memory for the links of a match (%s): they go over MPI", error)
            return None

    def _place(self, endpoint: Endpoint, environment: int) -> TablePlace | None:
        """Where the environment says that the seat's row is; None when it is on another node."""
        if not self._near(environment):
            return None
        return TablePlace.unpack(endpoint.receive(environment, Tag.LINK)[1])


def _waker(endpoint: Endpoint, peer: int) -> Callable[[], None]:
    wake = endpoint.waker(peer)
    assert wake is not None, f"role {peer} shares memory, so it can be woken"
    return wake
