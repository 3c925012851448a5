"""Links whose two ends see the same memory, within a process or a node; one memory for the links of a block of lanes.

    counters   two int64 per seat: messages posted by the seat, messages posted to it
    row 0      the two buffers of seat 0: its requests, its replies
    row 1      ...

A role that waits compares one number, and the seat that posts last wakes the environment once for all seats.

Counters and rows begin on pages of their own, so the process of a seat maps the counters and its own row alone. The
environment makes the memory. A role of its own process gets it directly, a role in another process of the node gets a
message that says where it is. All other roles have links over MPI; so have all roles of other processes if there is
not enough shared memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.transport.endpoint import Bytes, Endpoint, Link, LinkSet, LinkSize, RemoteTransport, Side, Tag, link_tags
from arena.transport.pickling import expect, pack
from arena.transport.shared_memory import MOST_BYTES, LocalHeap, SharedHeap, SharedMemory, fence, whole_pages

NEVER_AGAIN = 2**62
"""The count of a seat that posts no more, or whose link goes over MPI: the environment does not wait for it here."""

Heap: TypeAlias = LocalHeap | SharedHeap
_CACHE_LINE = 64
_log = logging.getLogger(__name__)


class SharedCounters(NamedTuple):
    """How many messages each seat has posted, and how many were posted to it: int64 in shared memory."""

    requests: memoryview  # [S]
    replies: memoryview  # [S]

    @classmethod
    def on(cls, memory: NDArray[np.uint8], seats: int) -> SharedCounters:
        """The counters at the beginning of some memory."""
        counters = memory[: 16 * seats].data.cast("q")
        return cls(counters[:seats], counters[seats:])


class SharedLink:
    """One end of two buffers that both ends see; `post` counts the message and wakes the other end.

    `part` says which of the two roles' links it is, `seat` its index in the counters. `heaps` are the heap that this
    end writes and the one that it reads, if messages have parts of any length.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        peer: int,
        side: Side,
        part: int,
        seat: int,
        counters: SharedCounters,
        outbox: NDArray[np.uint8],
        inbox: NDArray[np.uint8],
        wake: Callable[[], Any],
        heaps: tuple[Heap, Heap] | None = None,
    ) -> None:
        self.outbox, self.inbox = outbox, inbox
        self._endpoint, self._peer, self._seat, self._wake, self._heaps = endpoint, peer, seat, wake, heaps
        self._out, self._back = counters if side is Side.SEAT else counters[::-1]
        self._posted = self._received = 0
        back, self._out_extra, self._back_extra = link_tags(side, part)
        self._awaited = (endpoint.address, back, peer)

    def post(self, nbytes: int) -> None:
        self._posted += 1
        fence()
        self._out[self._seat] = self._posted
        self._wake()

    def wait(self) -> None:
        self._received += 1
        while self._back[self._seat] < self._received:
            self._endpoint.sleep(self._awaited)
        fence()

    def post_extra(self, data: Bytes) -> None:
        self._endpoint.send(self._peer, self._out_extra, data)

    def wait_extra(self) -> Bytes:
        return self._endpoint.receive(self._peer, self._back_extra)[1]

    def reserve_heap(self, nbytes: int) -> NDArray[np.uint8]:
        assert self._heaps is not None, "the link was opened without heaps"
        return self._heaps[0].reserve(nbytes)

    def post_heap(self) -> None:
        """Nothing to do: the other end reads it after it has seen the message's count."""

    def sent_heap(self, nbytes: int) -> NDArray[np.uint8]:
        assert self._heaps is not None, "the link was opened without heaps"
        return self._heaps[0].view(nbytes)

    def wait_heap(self, nbytes: int) -> NDArray[np.uint8]:
        assert self._heaps is not None, "the link was opened without heaps"
        return self._heaps[1].view(nbytes)

    def close(self) -> None:
        """Nothing to do: the memory lives as long as any view of it."""


class SharedEnvironmentLink(SharedLink):
    """The environment's end. It waits for the seats one after the other, but the last seat that posts wakes it.

    Attributes:
        peers: the addresses of all seats, by their index in the counters.
    """

    peers: Sequence[int] = ()

    def wait(self) -> None:
        self._received += 1
        while self._back[self._seat] < self._received:
            self._endpoint.sleep(self._awaited, awaited_role=self._awaited_role)
        fence()

    def _awaited_role(self) -> int:
        """The first seat that has not posted: the seat of this link may have, without waking the environment."""
        missing = (peer for seat, peer in enumerate(self.peers) if self._back[seat] < self._received)
        return next(missing, self._peer)


class SharedSeatLink(SharedLink):
    """The seat's end: the environment steps when all seats have posted, so only the last seat wakes it."""

    def post(self, nbytes: int) -> None:
        self._posted += 1
        fence()
        self._out[self._seat] = self._posted
        fence()  # of two seats that post at the same moment, at least one sees both counts
        if min(self._out) >= self._posted:
            self._wake()

    def close(self) -> None:
        """From now on the environment does not wait for this seat."""
        self._out[self._seat] = NEVER_AGAIN


class LinkLayout(NamedTuple):
    """Where everything lies in the memory of one block's links."""

    seats: int
    request_bytes: int  # of the seat with the longest messages
    reply_bytes: int

    @property
    def reply_offset(self) -> int:
        """Where the reply begins in a row."""
        return -(-self.request_bytes // _CACHE_LINE) * _CACHE_LINE

    @property
    def row_bytes(self) -> int:
        return whole_pages(self.reply_offset + self.reply_bytes)

    @property
    def counter_bytes(self) -> int:
        return whole_pages(16 * self.seats)

    @property
    def nbytes(self) -> int:
        return self.counter_bytes + self.seats * self.row_bytes

    def row(self, seat: int) -> slice:
        """Where a seat's row is in the whole memory."""
        start = self.counter_bytes + seat * self.row_bytes
        return slice(start, start + self.row_bytes)

    def requests(self, row: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The request's part of a row, or of several rows [S, row_bytes]."""
        return row[..., : self.request_bytes]

    def replies(self, row: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The reply's part of a row, or of several rows [S, row_bytes]."""
        return row[..., self.reply_offset : self.reply_offset + self.reply_bytes]


class LinkPlace(NamedTuple):
    """Where a seat's process finds its row; sent with `Tag.LINK`."""

    memory: SharedMemory | None
    layout: LinkLayout
    seat: int
    heaps: SharedMemory | None = None  # of all seats of the block, if any has heaps

    def heaps_of(self, side: Side) -> tuple[Heap, Heap] | None:
        """The heap that an end of the seat's link writes, and the heap that it reads; mapping them may fail."""
        if self.heaps is None:
            return None
        request, reply = (
            SharedHeap(self.heaps, 2 * self.seat + index, writes=index == (side is Side.ENVIRONMENT))
            for index in range(2)
        )
        return (reply, request) if side is Side.ENVIRONMENT else (request, reply)


class _Opened(NamedTuple):
    """The links of one block of lanes, for seats in the environment's process."""

    layout: LinkLayout
    memory: NDArray[np.uint8]
    peers: Sequence[int]
    heaps: dict[int, tuple[LocalHeap, LocalHeap]]  # by seat: of its replies, of its requests


class LinkMemory:
    """Opens the links of the roles of one process; `hosts` says whether the role at an address is one of them."""

    def __init__(self, hosts: Callable[[int], bool], remote: RemoteTransport | None) -> None:
        self._hosts, self._remote = hosts, remote
        self._warned = False  # whether lack of shared memory was logged, which is done once
        self._made: dict[tuple[int, int], _Opened] = {}  # by environment and part
        self._shared: dict[tuple[int, int], list[SharedMemory]] = {}  # what other processes map

    def open_links(self, endpoint: Endpoint, peers: Sequence[int], sizes: Sequence[LinkSize], part: int) -> LinkSet:
        """The environment's ends, see `Endpoint.open_links`; they replace those of an earlier call for this part."""
        layout = LinkLayout(len(peers), max(size.request for size in sizes), max(size.reply for size in sizes))
        near = [self._near(peer) for peer in peers]
        self._clear(endpoint.address, part)
        ragged = [seat for seat, size in enumerate(sizes) if size.heaps]
        shared: SharedMemory | None = None
        heaps: SharedMemory | None = None
        ends: dict[int, tuple[Heap, Heap] | None] = {}  # the heaps of each seat
        memory = np.zeros(0, np.uint8)
        if any(near):
            with ExitStack() as made:
                try:
                    shared = SharedMemory.make(layout.nbytes)
                    made.callback(shared.close)
                    ragged_near = [seat for seat in ragged if near[seat]]
                    if ragged_near:
                        heaps = SharedMemory.make(2 * layout.seats * MOST_BYTES, reserve=True)
                        made.callback(heaps.close)
                    for seat in ragged_near:
                        ends[seat] = LinkPlace(shared, layout, seat, heaps).heaps_of(Side.ENVIRONMENT)
                    memory = shared.map()
                    made.pop_all()
                except OSError as error:  # there is not enough
                    shared, ends = None, {}
                    if not self._warned:
                        self._warned = True
                        _log.warning("no shared memory for the links of a match (%s): they go over MPI", error)
        if shared is None:
            memory = np.zeros(layout.nbytes, np.uint8)
        else:
            self._shared[endpoint.address, part] = [shared] if heaps is None else [shared, heaps]
        local = {seat: (LocalHeap(), LocalHeap()) for seat in ragged if self._hosts(peers[seat])}
        ends.update(local)
        self._made[endpoint.address, part] = _Opened(layout, memory, peers, local)
        for seat, peer in enumerate(peers):
            if near[seat]:
                its_heaps = heaps if shared is not None and sizes[seat].heaps else None
                endpoint.send(peer, Tag.LINK, pack(LinkPlace(shared, layout, seat, its_heaps)))
        counters = SharedCounters.on(memory, layout.seats)
        links: list[Link] = []
        for seat, peer in enumerate(peers):
            row = memory[layout.row(seat)]
            outbox, inbox = layout.replies(row), layout.requests(row)
            if self._hosts(peer) or (near[seat] and shared is not None):
                wake, side = _waker(endpoint, peer), Side.ENVIRONMENT
                link = SharedEnvironmentLink(
                    endpoint, peer, side, part, seat, counters, outbox, inbox, wake, ends.get(seat)
                )
                link.peers = peers
                links.append(link)
            else:
                counters.requests[seat] = NEVER_AGAIN
                links.append(self._transport.link(endpoint, peer, Side.ENVIRONMENT, part, outbox, inbox))
        rows = memory[layout.counter_bytes :].reshape(layout.seats, layout.row_bytes)
        return LinkSet(links, layout.replies(rows))

    def close(self) -> None:
        """Releases the memory of all links, when the roles of the process end or are created again."""
        for environment, part in list(self._made):
            self._clear(environment, part)

    def _clear(self, environment: int, part: int) -> None:
        """Releases the memory of an earlier leg; seats that still use it have mapped it."""
        self._made.pop((environment, part), None)
        for before in self._shared.pop((environment, part), ()):
            before.close()

    def open_seat_link(self, endpoint: Endpoint, environment: int, size: LinkSize, part: int) -> Link:
        """The seat's end; see `Endpoint.link`."""
        heaps: tuple[Heap, Heap] | None
        if self._hosts(environment):
            layout, memory, peers, local = self._made[environment, part]
            seat = peers.index(endpoint.address)
            head, row = memory, memory[layout.row(seat)]
            heaps = local[seat][::-1] if seat in local else None
        else:
            place = None  # on another node
            if self._near(environment):
                place = expect(LinkPlace, endpoint.receive(environment, Tag.LINK))
            if place is None or place.memory is None:
                outbox, inbox = (np.zeros(nbytes, np.uint8) for nbytes in (size.request, size.reply))
                return self._transport.link(endpoint, environment, Side.SEAT, part, outbox, inbox)
            layout, seat = place.layout, place.seat
            try:
                head, row = (place.memory.map(pages) for pages in (slice(0, layout.counter_bytes), layout.row(seat)))
                heaps = place.heaps_of(Side.SEAT)
            except OSError as error:  # too late for MPI: the environment uses the shared memory already
                nbytes = layout.counter_bytes + layout.row_bytes + (0 if place.heaps is None else 2 * MOST_BYTES)
                text = f"{nbytes} bytes of shared memory of a match cannot be mapped"
                raise OSError(f"{text} ({error}); `transport: mpi` does without") from error
        wake = _waker(endpoint, environment)
        outbox, inbox = layout.requests(row), layout.replies(row)
        counters = SharedCounters.on(head, layout.seats)
        return SharedSeatLink(endpoint, environment, Side.SEAT, part, seat, counters, outbox, inbox, wake, heaps)

    @property
    def _transport(self) -> RemoteTransport:
        assert self._remote is not None, "without other processes every role must be in this one"
        return self._remote

    def _near(self, address: int) -> bool:
        """Whether a role is in another process that can map the same memory."""
        return not self._hosts(address) and self._transport.reaches(address)


def _waker(endpoint: Endpoint, peer: int) -> Callable[[], None]:
    wake = endpoint.waker(peer)
    assert wake is not None, f"role {peer} shares memory, so it can be woken"
    return wake
