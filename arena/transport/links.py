"""Links whose two ends see the same memory: within a process, or within a node.

All links of a table (the seats of one block of lanes) count their messages on one *board*, two counters per seat. So
whoever waits looks at a number, and the seat that speaks last wakes the environment once for all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.transport.endpoint import Bytes, Endpoint, Side, link_tags

NEVER_AGAIN = 2**62
"""The count of a seat that will not speak any more, or that does not speak here: nobody waits for it."""

_barrier = threading.Lock()
_barrier.acquire()


def fence() -> None:
    """Other processes see everything before it before anything after it: giving a lock back orders memory.

    Python has no other way to say so. Nobody ever waits for this lock, as the roles of a process take turns.
    """
    if _barrier.locked():  # else an exception has come, from a signal, between the two calls below
        _barrier.release()
    _barrier.acquire(blocking=False)


class SharedCounters(NamedTuple):
    """How many messages each seat has posted, and been posted: int64 in memory that all of a table's roles see."""

    requests: memoryview  # [S]
    replies: memoryview  # [S]

    @classmethod
    def on(cls, memory: NDArray[np.uint8], seats: int) -> SharedCounters:
        """The board that stands at the beginning of some memory."""
        counters = memory[: 16 * seats].data.cast("q")
        return cls(counters[:seats], counters[seats:])


class SharedLink:
    """One end of two buffers which both ends use; to post is to count up and to wake the other end.

    Args:
        endpoint: the place of this end's role.
        peer: the address of the other end's.
        side: which end this is.
        part: which of the two roles' links.
        seat: its place on the board.
        board: where messages are counted.
        outbox: the buffer that this end writes.
        inbox: the buffer that this end reads.
        wake: wakes the role at the other end.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        peer: int,
        side: Side,
        part: int,
        seat: int,
        board: SharedCounters,
        outbox: NDArray[np.uint8],
        inbox: NDArray[np.uint8],
        wake: Callable[[], Any],
    ) -> None:
        self.outbox, self.inbox = outbox, inbox
        self._endpoint, self._peer = endpoint, peer
        self._seat, self._wake = seat, wake
        self._out, self._back = (
            (board.requests, board.replies) if side is Side.SEAT else (board.replies, board.requests)
        )
        self._posted = self._heard = 0
        tags = link_tags(side, part)
        self._out_extra, self._back_extra = tags.out_extra, tags.back_extra
        self._awaited = (endpoint.address, tags.back, peer)

    def post(self, nbytes: int) -> None:
        self._posted += 1
        fence()
        self._out[self._seat] = self._posted
        self._wake()

    def wait(self) -> None:
        self._heard += 1
        while self._back[self._seat] < self._heard:
            self._endpoint.sleep(self._awaited)
        fence()

    def post_extra(self, data: Bytes) -> None:
        self._endpoint.send(self._peer, self._out_extra, data)

    def wait_extra(self) -> Bytes:
        return self._endpoint.receive(self._peer, self._back_extra)[1]

    def close(self) -> None:
        """The memory lives as long as somebody holds its views."""


class SharedSeatLink(SharedLink):
    """The seat's end: the environment moves when all seats have spoken, so only the last one wakes it."""

    def post(self, nbytes: int) -> None:
        self._posted += 1
        fence()
        self._out[self._seat] = self._posted
        fence()  # of two seats that post at the same moment at least one sees both counts
        if min(self._out) >= self._posted:
            self._wake()

    def close(self) -> None:
        """From now on the others do not look whether this seat has spoken."""
        self._out[self._seat] = NEVER_AGAIN
