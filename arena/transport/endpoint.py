"""The interface of every transport: messages, links and orders for a role."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.diagnostics.remote_stacks import Process

Bytes: TypeAlias = bytes | bytearray | memoryview

ANY_SOURCE = -1
"""As source of `receive`: any role."""


class Tag(IntEnum):
    """The kind of a message; messages with the same tag between two roles keep their order."""

    TO_ROOT = 1  # any role to the root, see `arena.roles.protocol`
    FROM_ROOT = 2  # the root to any role
    WELCOME = 3  # environment to worker, once: the description of the seat
    GROUP = 4  # among the workers of one policy
    REQUEST = 5  # link, seat to environment: one per tick
    REPLY = 6  # link, environment to seat: one per tick
    REQUEST_EXTRA = 7  # link: parts of variable length after a request or a reply, if its header says so
    REPLY_EXTRA = 8
    LINK = 9  # environment to worker, once per link: where their shared memory is
    SECOND_REQUEST = 10  # the same on the second link of two roles
    SECOND_REPLY = 11
    SECOND_REQUEST_EXTRA = 12
    SECOND_REPLY_EXTRA = 13
    ORDER = 14  # to a process; the first byte is the `Order`
    GAMES = 15  # no message: what an environment waits for while no external game asks; see `Endpoint.bell`


class Order(IntEnum):
    """A message to a process. It is handled at delivery and wakes no role."""

    QUERY_STATUS = 1  # asks what the roles of the process do
    STATUS = 2  # the reply
    STOP = 3  # to an environment: end the leg at this tick, unless it is already played
    SAMPLES = 4  # to a group's root: samples to learn from
    WEIGHTS = 5  # from a group's root: new weights


OrderHandler: TypeAlias = Callable[[int, Bytes], None]
"""Handles an order; called with the sender's address and the bytes after the order's own byte."""

PARTS = 2
"""The most links between an environment and a worker: one per block of lanes (`pipeline`)."""

Channel: TypeAlias = tuple[int, Tag, int]
"""A mailbox: receiver, tag, sender (ANY_SOURCE for a mailbox shared by all senders)."""


class Side(IntEnum):
    """The two ends of a link."""

    ENVIRONMENT = 0
    SEAT = 1


class LinkSize(NamedTuple):
    """Bytes of a link's longest request and reply, without their heaps."""

    request: int
    reply: int
    heaps: bool = False  # whether messages have parts of any length


def link_tags(side: Side, part: int) -> tuple[Tag, Tag, Tag]:
    """Of one end of the `part`-th link of two roles: the tag of what it receives, and of extra parts out and back."""
    request, reply, request_extra, reply_extra = (
        (Tag.REQUEST, Tag.REPLY, Tag.REQUEST_EXTRA, Tag.REPLY_EXTRA),
        (Tag.SECOND_REQUEST, Tag.SECOND_REPLY, Tag.SECOND_REQUEST_EXTRA, Tag.SECOND_REPLY_EXTRA),
    )[part]
    if side is Side.ENVIRONMENT:
        return request, reply_extra, request_extra
    return reply, request_extra, reply_extra


class Link(Protocol):
    """Two fixed buffers between an environment and a seat.

    The two ends post in turn, so a buffer is never written while the other end still reads it. After its last `post`
    an end must not read any more.
    """

    outbox: NDArray[np.uint8]
    inbox: NDArray[np.uint8]

    def post(self, nbytes: int) -> None:
        """Hands the first `nbytes` of `outbox` to the other end, without waiting."""

    def wait(self) -> None:
        """Waits until the other end's next message is in `inbox`."""

    def post_extra(self, data: Bytes) -> None: ...

    def wait_extra(self) -> Bytes: ...

    def reserve_heap(self, nbytes: int) -> NDArray[np.uint8]:
        """A buffer [nbytes] for the parts of any length of the next message.

        Raises:
            OSError: there is not enough memory.
        """

    def post_heap(self) -> None:
        """Hands the reserved buffer to the other end; before `post`, and only if its length is not 0."""

    def sent_heap(self, nbytes: int) -> NDArray[np.uint8]:
        """The buffer [nbytes] that was reserved last, as it was filled."""

    def wait_heap(self, nbytes: int) -> NDArray[np.uint8]:
        """The heap [nbytes] of the message that `wait` has waited for; valid until this end posts."""

    def close(self) -> None:
        """Closes this end after its last `post`; further calls do nothing."""


class LinkSet(NamedTuple):
    """The environment's ends of all links of one block of lanes."""

    links: Sequence[Link]  # [S]
    outboxes: NDArray[np.uint8]  # [S, bytes of the longest reply]: the `outbox` of each link


class Endpoint(Protocol):
    """One role's access to the transport. Addresses are 0 (the root) to `size - 1`."""

    address: int
    size: int

    def send(self, to: int, tag: Tag, data: Bytes) -> None:
        """Sends a message; `data` may be reused when the call returns."""

    def receive(self, source: int, tag: Tag) -> tuple[int, Bytes]:
        """Waits for the next message with this tag from `source` (or `ANY_SOURCE`); its sender and its bytes."""

    def listen(self, source: int, tag: Tag, seconds: float) -> tuple[int, Bytes] | None:
        """As `receive`, but None after `seconds` without a message."""

    def order(self, to: int, order: Order, data: Bytes) -> None:
        """Sends an order to the process that hosts a role."""

    def on_order(self, order: Order, do: OrderHandler) -> None:
        """Calls `do` whenever this order comes for this role, also while another role of the process has its turn."""

    def tally(self, count: Callable[[], Mapping[str, int]]) -> None:
        """Registers a function that returns counts of this role's calls; part of its reported status."""

    def cpu_time(self) -> float:
        """CPU seconds of this role since some moment: of its process, if that hosts no other role."""

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error was caused by the death of another process."""

    def process(self, address: int) -> Process | None:
        """The process that hosts a role; None if unknown."""

    def sleep(
        self, awaited: Channel, seconds: float | None = None, *, awaited_role: Callable[[], int] | None = None
    ) -> None:
        """Waits until anything has come for this role (not necessarily for `awaited`), or `seconds` are over.

        `awaited` is reported as what the role waits for; `awaited_role` returns the address of the role that it waits
        for at the moment, if that may change while it sleeps.
        """

    def in_dedicated_thread(self, body: Callable[[Endpoint], object]) -> None:
        """Calls a function of this role in a thread of its own, and waits for it; raises what it raises.

        It gets an endpoint of this role that all its threads may use, one at a time.
        """

    def together(self, key: Hashable, part: Any, work: Callable[[list[Any]], None]) -> None:
        """Calls `work(parts)` once for all roles of this process that have called this with an equal `key`.

        It is called when no other role of the process can run, by the first of them. Meanwhile it may call all that
        these roles could, for any of them, and the call returns to each of them when it has ended. Which roles come
        together depends on timing, and must make no difference.

        Raises:
            Exception: to the first role, what `work` raises; to the others `RunStopped`.
        """

    def bell(self) -> Callable[[], None]:
        """A function that wakes this role from `sleep`; any thread of the process may call it, at any time.

        A role that waits for `Tag.GAMES` is woken by it or by the end of its `seconds`: such a wait is no deadlock.
        """

    def waker(self, peer: int) -> Callable[[], None] | None:
        """A function that wakes another role; None if that role cannot see the same memory as this one."""

    def open_links(self, seats: Sequence[int], sizes: Sequence[LinkSize], part: int = 0) -> LinkSet:
        """An environment's links with the roles at these addresses; each of these roles must call `link`."""

    def link(self, environment: int, size: LinkSize, part: int = 0) -> Link:
        """A seat's link with its environment, which must have called `open_links` for this `part`."""


class Inbox(Protocol):
    """Receives what comes from other processes."""

    def deliver(self, to: int, tag: Tag, source: int, data: Bytes) -> None:
        """Takes a message for a role."""

    def wake(self, address: int) -> None:
        """Something has come for a role over one of its links."""


class RemoteTransport(Protocol):
    """Connects the roles of one process to those of other processes.

    What comes in during a call is handed to `arrivals`.
    """

    def send(self, to: int, tag: Tag, source: int, data: Bytes, arrivals: Inbox) -> None:
        """Sends a message; `data` may be reused when the call returns."""

    def wait(self, arrivals: Inbox, seconds: float | None = None) -> None:
        """Waits until something has come, or `seconds` are over."""

    def poll(self, arrivals: Inbox) -> None:
        """Takes what has come, without waiting."""

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error was caused by the death of another process."""

    def process(self, address: int) -> Process | None:
        """The process that hosts a role; None if unknown."""

    def bell(self, address: int) -> Callable[[], None]:
        """A function that any thread of this process may call: `wait` returns after it has woken this role."""

    def reaches(self, address: int) -> bool:
        """Whether a role's process can map the same memory as this one, and be woken."""

    def waker(self, address: int) -> Callable[[], None]:
        """A function that wakes a role for which `reaches` is true."""

    def link(
        self, endpoint: Endpoint, peer: int, side: Side, part: int, outbox: NDArray[np.uint8], inbox: NDArray[np.uint8]
    ) -> Link:
        """One end of a link, on these buffers, with a role for which `reaches` is false."""
