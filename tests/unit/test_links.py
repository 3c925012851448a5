"""Links in shared memory: which role is woken when, and what a seat's process sees of the memory."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.transport.doorbell import Doorbell
from arena.transport.endpoint import LinkSet, LinkSize, Side, Tag
from arena.transport.links import LinkLayout, LinkMemory, SharedCounters, SharedSeatLink
from arena.transport.shared_memory import SharedMemory


class Woken(list[str]):
    """The names of the woken roles, in order."""

    def by(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)


def seats_at(counters: SharedCounters, woken: Woken) -> list[SharedSeatLink]:
    box = np.zeros(8, np.uint8)
    endpoint: Any = SimpleNamespace(address=0, size=9)
    return [
        SharedSeatLink(endpoint, 1, Side.SEAT, 0, seat, counters, box, box, woken.by(f"by {seat}"))
        for seat in range(len(counters.requests))
    ]


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_seat_link_wakes_the_environment_after_the_last_post_of_a_tick(first: list[int], second: list[int]) -> None:
    woken = Woken()
    seats = seats_at(SharedCounters.on(np.zeros(64, np.uint8), 4), woken)
    for order in (first, second):
        for seat in order:
            seats[seat].post(8)
    assert woken == [f"by {first[-1]}", f"by {second[-1]}"]


def test_seat_link_that_is_closed_is_not_waited_for() -> None:
    woken = Woken()
    seats = seats_at(SharedCounters.on(np.zeros(64, np.uint8), 3), woken)
    seats[0].post(8)
    seats[0].close()
    seats[1].post(8)
    assert woken == []
    seats[2].post(8)
    seats[2].post(8)
    seats[1].post(8)
    assert woken == ["by 2", "by 1"]


@given(st.integers(1, 600), st.integers(0, 9000), st.integers(0, 9000))
def test_layout_puts_counters_and_rows_on_pages_of_their_own(s: int, request: int, reply: int) -> None:
    shape = LinkLayout(s, request, reply)
    page = 4096
    places = [slice(0, shape.counter_bytes), *(shape.row(seat) for seat in range(s))]
    assert all(place.start % page == 0 and place.stop % page == 0 for place in places)
    assert all(before.stop == after.start for before, after in itertools.pairwise(places))
    assert places[-1].stop == shape.nbytes and shape.counter_bytes >= 16 * s
    row = np.arange(shape.row_bytes)
    requests, replies = shape.requests(row), shape.replies(row)  # type: ignore[arg-type]
    assert (len(requests), len(replies)) == (request, reply)
    assert not {*requests.tolist()} & {*replies.tolist()} and shape.reply_offset % 64 == 0


class LocalTransport:
    """A `RemoteTransport` whose other processes are this one: messages are kept, memory is seen by both ends."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.woken: list[int] = []
        self.linked: list[int] = []
        self.near = {1, 2}

    def reaches(self, address: int) -> bool:
        return address in self.near

    def waker(self, address: int) -> Callable[[], None]:
        return lambda: self.woken.append(address)

    def link(self, endpoint: Any, peer: int, side: Side, part: int, outbox: Any, inbox: Any) -> Any:
        self.linked.append(peer)
        return peer


class FakeEndpoint:
    """A role's endpoint, which keeps messages in the transport."""

    size = 9

    def __init__(self, address: int, transport: LocalTransport) -> None:
        self.address, self._transport = address, transport

    def send(self, to: int, tag: Tag, data: bytes) -> None:
        self._transport.messages.append(data)

    def waker(self, peer: int) -> Callable[[], None]:
        return self._transport.waker(peer)

    def receive(self, source: int, tag: Tag) -> tuple[int, bytes]:
        return source, self._transport.messages.pop(0)


def opened(transport: LocalTransport, *, parts: int = 1, heaps: bool = False) -> LinkSet:
    """The links of environment 0's last part; it reaches two of its three seats. Heaps are of the second and third."""
    endpoint: Any = FakeEndpoint(0, transport)
    remote: Any = transport
    sizes = [LinkSize(8, 24), *[LinkSize(8, 24, heaps)] * 2]
    memory = LinkMemory({0}.__contains__, remote)
    return [memory.open_links(endpoint, [1, 2, 3], sizes, part) for part in range(parts)][-1]


def seat_of(address: int, transport: LocalTransport) -> Any:
    endpoint: Any = FakeEndpoint(address, transport)
    transport.near = {0} if address in (1, 2) else set()
    remote: Any = transport
    return LinkMemory({address}.__contains__, remote).open_seat_link(endpoint, 0, LinkSize(8, 24), 0)


def test_open_links_shares_memory_within_a_node_and_uses_mpi_elsewhere() -> None:
    transport = LocalTransport()
    links = opened(transport)
    first, second, third = seat_of(1, transport), seat_of(2, transport), seat_of(3, transport)
    assert transport.linked == [3, 0] and third == 0
    links.outboxes[0] = 7
    links.outboxes[1] = 9
    assert first.inbox.tolist() == [7] * 24 and second.inbox.tolist() == [9] * 24
    first.outbox[:], second.outbox[:] = 1, 2
    assert [links.links[seat].inbox.tolist() for seat in (0, 1)] == [[1] * 8, [2] * 8]
    first.post(8)
    assert transport.woken == []  # the second seat has not posted; the third one is not counted here
    second.post(8)
    assert transport.woken == [0]


def test_heaps_are_seen_by_both_ends_of_their_own_seat_alone() -> None:
    transport = LocalTransport()
    links = opened(transport, heaps=True)
    first, second, third = seat_of(1, transport), seat_of(2, transport), seat_of(3, transport)
    assert third == 0 and transport.linked == [3, 0]
    environment = links.links[1]
    for size in (10, 100_000):  # more than is backed at first
        environment.reserve_heap(size)[:] = 5
        second.reserve_heap(size)[:] = 6
        assert environment.wait_heap(size).tolist() == [6] * size == second.sent_heap(size).tolist()
        assert second.wait_heap(size).tolist() == [5] * size == environment.sent_heap(size).tolist()
    for link in (first, links.links[0]):
        with pytest.raises(AssertionError, match="opened without heaps"):
            link.reserve_heap(1)


@pytest.mark.parametrize("missing", ["memory", "address space", "mapping"])
def test_open_links_uses_mpi_if_shared_memory_is_missing(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make = SharedMemory.make

    def make_some(nbytes: int, *, reserve: bool = False) -> SharedMemory:
        if missing == "memory" or reserve:
            raise OSError("out of memory")
        return make(nbytes)

    monkeypatch.setattr(SharedMemory, *(("map", cannot_map) if missing == "mapping" else ("make", make_some)))
    transport = LocalTransport()
    before = shared_memories()
    links = opened(transport, parts=2, heaps=missing == "address space")
    assert [seat_of(seat, transport) for seat in (1, 2, 3)] == [0, 0, 0]
    assert [*links.links] == [1, 2, 3] and transport.linked == [1, 2, 3, 1, 2, 3, 0, 0, 0]
    assert shared_memories() == before, "the memory is freed"
    assert caplog.messages == ["no shared memory for the links of a match (out of memory): they go over MPI"]


@pytest.mark.parametrize(("heaps", "nbytes"), [(False, 8192), (True, 8192 + 2 * 2**28)])
def test_unmappable_link_names_the_remedy(heaps: bool, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = LocalTransport()
    links = opened(transport, heaps=heaps)
    if heaps:
        transport.messages.pop(0)  # of seat 1, which has none
    monkeypatch.setattr(SharedMemory, "map", cannot_map)
    words = (
        rf"{nbytes} bytes of shared memory of a match cannot be mapped \(out of memory\); `transport: mpi` does without"
    )
    with pytest.raises(OSError, match=words):
        seat_of(2 if heaps else 1, transport)
    assert len(links.links) == 3


def cannot_map(memory: SharedMemory, part: slice | None = None) -> None:
    raise OSError("out of memory")


def descriptors() -> list[Path]:
    """The open files of this process, without the listing's own descriptor."""
    return [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


def shared_memories() -> int:
    """The number of descriptors of shared memory that are open, after what earlier tests have left is freed."""
    gc.collect()
    return sum("arena-link" in os.readlink(path) for path in descriptors())


# The doorbell of a process: rings, their receivers, and full pipes


@pytest.fixture
def bells() -> Iterator[tuple[Doorbell, Doorbell]]:
    """Two doorbells; the first is connected to the second, as rank 1."""
    ours, theirs = Doorbell(), Doorbell()
    ours.connect(1, theirs.address)
    yield ours, theirs
    for bell in (ours, theirs):
        bell.close()


def test_rings_are_heard_at_a_descriptor_of_any_number(bells: tuple[Doorbell, Doorbell]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard) if hard > 0 else 4096, hard))
    try:
        low = bells[0].descriptor
        bells[0].descriptor = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)  # `select` takes only those below
        os.close(low)
        assert bells[0].select(0.01) == []
        bells[0].local_ringer(3)()
        assert bells[0].select(5.0) == [bells[0].descriptor] and list(bells[0].poll()) == [3]
        ours, theirs = os.pipe()
        assert bells[0].select(0.01, [ours]) == []
        os.write(theirs, b"x")
        assert bells[0].select(5.0, [ours]) == [ours]
        for descriptor in (ours, theirs):
            os.close(descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
