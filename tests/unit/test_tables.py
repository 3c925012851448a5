"""Tables: who is woken when, and what a seat's process sees of the memory."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.transport.doorbell import SharedMemory
from arena.transport.endpoint import Endpoint, LinkSet, LinkSize, Side, Tag
from arena.transport.links import SharedCounters, SharedLink, SharedSeatLink
from arena.transport.scheduler import RoleEndpoint, RoleScheduler
from arena.transport.tables import LinkMemory, Shape, TablePlace


class Woken(list[str]):
    """Who was woken, in order."""

    def by(self, name: str) -> Callable[[], None]:
        return lambda: self.append(name)


class Place:
    """The place of a role that must not have to wait."""

    address, size = 0, 9

    def sleep(self, awaited: Any) -> None:
        raise AssertionError(f"waits for {awaited}")


def seats_at(board: SharedCounters, woken: Woken) -> list[SharedSeatLink]:
    box = np.zeros(8, np.uint8)
    place: Any = Place()
    return [
        SharedSeatLink(place, 1, Side.SEAT, 0, seat, board, box, box, woken.by(f"by {seat}"))
        for seat in range(len(board.requests))
    ]


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_the_environment_is_woken_once_a_tick_by_whoever_speaks_last(first: list[int], second: list[int]) -> None:
    woken = Woken()
    seats = seats_at(SharedCounters.on(np.zeros(64, np.uint8), 4), woken)
    for order in (first, second):
        for seat in order:
            seats[seat].post(8)
    assert woken == [f"by {first[-1]}", f"by {second[-1]}"]


def test_who_has_closed_a_link_is_not_waited_for() -> None:
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


def test_a_message_that_has_come_is_not_waited_for_and_each_is_heard_once() -> None:
    woken = Woken()
    board = SharedCounters.on(np.zeros(64, np.uint8), 1)
    place, box = Place(), np.zeros(8, np.uint8)
    environment = SharedLink(place, 1, Side.ENVIRONMENT, 0, 0, board, box, box, woken.by("seat"))  # type: ignore[arg-type]
    (seat,) = seats_at(board, woken)
    environment.post(8)
    seat.wait()
    seat.post(8)
    environment.wait()
    assert woken == ["seat", "by 0"]
    with pytest.raises(AssertionError, match="REQUEST"):
        environment.wait()
    with pytest.raises(AssertionError, match="REPLY"):
        seat.wait()


@given(st.integers(1, 600), st.integers(0, 9000), st.integers(0, 9000))
def test_board_and_rows_lie_on_pages_of_their_own_and_rows_hold_both_buffers(s: int, request: int, reply: int) -> None:
    shape = Shape(s, request, reply)
    page = 4096
    places = [slice(0, shape.board_bytes), *(shape.row(seat) for seat in range(s))]
    assert all(place.start % page == 0 and place.stop % page == 0 for place in places)
    assert all(before.stop == after.start for before, after in itertools.pairwise(places))
    assert places[-1].stop == shape.nbytes and shape.board_bytes >= 16 * s
    row = np.arange(shape.row_bytes)
    requests, replies = shape.requests(row), shape.replies(row)  # type: ignore[arg-type]
    assert (len(requests), len(replies)) == (request, reply)
    assert not {*requests.tolist()} & {*replies.tolist()} and shape.reply_offset % 64 == 0


@pytest.mark.parametrize("memory", [SharedMemory(12, 3, 8192), None])
def test_a_letter_says_where_a_row_is(memory: SharedMemory | None) -> None:
    place = TablePlace(memory, Shape(3, 100, 200), 2)
    assert TablePlace.unpack(place.pack()) == place


class Neighbour:
    """An `RemoteTransport` whose other processes are in this one: letters are kept, memory is seen by both."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []
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


class At:
    """A role's place, of which letters are given to a neighbour."""

    size = 9

    def __init__(self, address: int, neighbour: Neighbour) -> None:
        self.address, self._neighbour = address, neighbour

    def send(self, to: int, tag: Tag, data: bytes) -> None:
        self._neighbour.letters.append(data)

    def waker(self, peer: int) -> Callable[[], None]:
        return self._neighbour.waker(peer)

    def receive(self, source: int, tag: Tag) -> tuple[int, bytes]:
        return source, self._neighbour.letters.pop(0)


def laid(neighbour: Neighbour, *, tables: int = 1) -> LinkSet:
    """The last table of environment 0, each with two seats within reach and one out of it."""
    place: Any = At(0, neighbour)
    outside: Any = neighbour
    here = RoleScheduler({0: "environment"}, outside, size=4)
    sizes = [LinkSize(8, 24)] * 3
    laying = LinkMemory(here, outside)
    return [laying.lay(place, [1, 2, 3], sizes, part) for part in range(tables)][-1]


def seat_of(address: int, neighbour: Neighbour) -> Any:
    place: Any = At(address, neighbour)
    neighbour.near = {0} if address in (1, 2) else set()
    outside: Any = neighbour
    return LinkMemory(RoleScheduler({address: "worker"}, outside, size=4), outside).take_seat(
        place, 0, LinkSize(8, 24), 0
    )


def test_processes_of_a_node_see_the_same_memory_and_others_get_a_link_of_their_own() -> None:
    neighbour = Neighbour()
    table = laid(neighbour)
    first, second, third = seat_of(1, neighbour), seat_of(2, neighbour), seat_of(3, neighbour)
    assert neighbour.linked == [3, 0] and third == 0
    table.outboxes[0] = 7
    table.outboxes[1] = 9
    assert first.inbox.tolist() == [7] * 24 and second.inbox.tolist() == [9] * 24
    first.outbox[:], second.outbox[:] = 1, 2
    assert [table.links[seat].inbox.tolist() for seat in (0, 1)] == [[1] * 8, [2] * 8]
    first.post(8)
    assert neighbour.woken == []  # the second one has not spoken; the third one does not count here
    second.post(8)
    assert neighbour.woken == [0]


def test_without_shared_memory_everybody_gets_a_link_of_his_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(nbytes: int) -> SharedMemory:
        raise OSError("no space left on device")

    monkeypatch.setattr(SharedMemory, "make", full)
    neighbour = Neighbour()
    table = laid(neighbour, tables=2)
    assert [seat_of(seat, neighbour) for seat in (1, 2, 3)] == [0, 0, 0]
    assert [*table.links] == [1, 2, 3] and neighbour.linked == [1, 2, 3, 1, 2, 3, 0, 0, 0]
    assert caplog.messages == ["no shared memory for the links of a match (no space left on device): they go over MPI"]


def test_the_tables_of_many_legs_hold_no_more_descriptors_than_that_of_one() -> None:
    neighbour = Neighbour()
    place: Any = At(0, neighbour)
    outside: Any = neighbour
    laying = LinkMemory(RoleScheduler({0: "environment"}, outside, size=4), outside)
    held: list[int] = []
    for leg in range(5):
        neighbour.near = {1, 2}
        tables = [laying.lay(place, [1, 2], [LinkSize(8, 24)] * 2, part) for part in range(2)]
        seat = seat_of(1, neighbour)
        tables[0].outboxes[0] = leg
        assert seat.inbox.tolist() == [leg] * 24
        neighbour.letters.clear()
        held.append(sum("arena-link" in os.readlink(path) for path in descriptors()))
        del tables, seat
    assert held == held[:1] * 5


def descriptors() -> list[Path]:
    """This process's; the folder's own is gone when it has been read."""
    return [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


def test_roles_of_one_process_take_turns_without_anything_outside() -> None:
    heard: list[list[int]] = []

    def environment(endpoint: RoleEndpoint) -> None:
        table = endpoint.table([1, 2], [LinkSize(1, 1), LinkSize(2, 3)])
        for tick in range(3):
            table.outboxes[:] = tick
            for link in table.links:
                link.post(1)
            for link in table.links:
                link.wait()
            heard.append([int(link.inbox[0]) for link in table.links])

    def seat(endpoint: Endpoint) -> None:
        link = endpoint.link(0, LinkSize(1, 1))
        for _ in range(3):
            link.wait()
            link.outbox[0] = 10 * endpoint.address + link.inbox[0]
            link.post(1)

    RoleScheduler({0: "environment", 1: "a", 2: "b"}).run({0: environment, 1: seat, 2: seat})
    assert heard == [[10, 20], [11, 21], [12, 22]]
