"""What every transport offers to a role."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.diagnostics.remote_stacks import Process

Bytes: TypeAlias = bytes | bytearray | memoryview

ANYONE = -1
"""The source of `receive` that stands for every other role."""


class Tag(IntEnum):
    """Which conversation a message belongs to; messages of one tag between two roles keep their order."""

    TO_ROOT = 1  # any role to the root: what `arena.roles.protocol` lists
    FROM_ROOT = 2  # the root to any role: go
    WELCOME = 3  # environment to worker, once: what the seat looks like
    GROUP = 4  # among the workers of one policy
    REQUEST = 5  # link, seat to environment: one per tick
    REPLY = 6  # link, environment to seat: one per tick
    REQUEST_EXTRA = 7  # link: a part of variable length that follows a request or a reply when it says so
    REPLY_EXTRA = 8
    LINK = 9  # environment to worker, once per link: where their common memory is
    SECOND_REQUEST = 10  # the same words on the second link of two roles
    SECOND_REPLY = 11
    SECOND_REQUEST_EXTRA = 12
    SECOND_REPLY_EXTRA = 13
    ORDER = 14  # to a process, whatever its roles do: the first byte says which `Order`


class Order(IntEnum):
    """What one process asks of another one; it is obeyed at delivery, so a process that sleeps need not wake a role."""

    WHERE = 1  # what do your roles do?
    HERE = 2  # the answer
    STOP = 3  # to an environment: end the leg at this tick, if you have not come so far
    FRAGMENT = 4  # to a group's root: learn from these samples
    WEIGHTS = 5  # from a group's root: play with these weights


Obey: TypeAlias = Callable[[int, Bytes], None]
"""Does what an order says: it gets the address that the order came from, and what follows the order's byte."""

PARTS = 2
"""How many links an environment and a worker can have: one for each part of the lanes that moves by itself."""

Channel: TypeAlias = tuple[int, Tag, int]
"""A mailbox: to whom, which conversation, from whom (ANYONE where everybody writes into one)."""


class Side(IntEnum):
    """The two ends of a link."""

    ENVIRONMENT = 0
    SEAT = 1


class LinkSize(NamedTuple):
    """Bytes of a link's longest messages."""

    request: int
    reply: int


class LinkTags(NamedTuple):
    """What one end of a link says and hears."""

    out: Tag
    back: Tag
    out_extra: Tag
    back_extra: Tag


def link_tags(side: Side, part: int) -> LinkTags:
    """The conversations of one end of the `part`-th link between an environment and a worker."""
    request, reply, request_extra, reply_extra = (
        (Tag.REQUEST, Tag.REPLY, Tag.REQUEST_EXTRA, Tag.REPLY_EXTRA),
        (Tag.SECOND_REQUEST, Tag.SECOND_REPLY, Tag.SECOND_REQUEST_EXTRA, Tag.SECOND_REPLY_EXTRA),
    )[part]
    if side is Side.ENVIRONMENT:
        return LinkTags(reply, request, reply_extra, request_extra)
    return LinkTags(request, reply, request_extra, reply_extra)


class Link(Protocol):
    """Two fixed buffers between an environment and a seat.

    The two ends speak in turn, so a buffer is never written while the other end still reads it. An end that has said
    its last word does not read any more.
    """

    outbox: NDArray[np.uint8]
    inbox: NDArray[np.uint8]

    def post(self, nbytes: int) -> None:
        """Hands the first `nbytes` of `outbox` to the other end; does not wait for it."""
        ...

    def wait(self) -> None:
        """Returns when the other end's next message lies in `inbox`."""
        ...

    def post_extra(self, data: Bytes) -> None: ...

    def wait_extra(self) -> Bytes: ...

    def close(self) -> None:
        """Ends the conversation on this side, after the last word was said; further calls do nothing."""
        ...


class LinkSet(NamedTuple):
    """The environment's ends of all links of one block of lanes."""

    links: Sequence[Link]  # [S]
    outboxes: NDArray[np.uint8]  # [S, bytes of the longest reply]: what the links call `outbox`, one row per seat


class Endpoint(Protocol):
    """The place of one role in the world. Addresses are 0 (the root) to `size - 1`."""

    address: int
    size: int

    def send(self, to: int, tag: Tag, data: Bytes) -> None:
        """Sends a message; `data` may be reused when the call returns."""
        ...

    def receive(self, source: int, tag: Tag) -> tuple[int, Bytes]:
        """The next message with this tag from `source` (or `ANYONE`) and the address that it came from."""
        ...

    def listen(self, source: int, tag: Tag, seconds: float) -> tuple[int, Bytes] | None:
        """As `receive`; None when nothing has come within so many seconds. For one role of a process alone."""
        ...

    def order(self, to: int, order: Order, data: Bytes) -> None:
        """Sends an order to the process that hosts a role."""
        ...

    def obey(self, order: Order, do: Obey) -> None:
        """From now on `do` is done when this role is given this order, in whatever role's turn that is."""
        ...

    def tally(self, count: Callable[[], Mapping[str, int]]) -> None:
        """From now on `count` says how often this role has done what; the root asks for it."""
        ...

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error only says that a process of the run has died."""
        ...

    def process(self, address: int) -> Process | None:
        """The process that hosts a role; None where nothing is known of it."""
        ...

    def sleep(self, awaited: Channel, seconds: float | None = None) -> None:
        """Waits until something has come for this role, perhaps not what it waits for, or the seconds are over.

        `awaited` is for messages. Only one role of a process may give a number of seconds.
        """
        ...

    def waker(self, peer: int) -> Callable[[], None] | None:
        """A function that wakes another role, which can see the same memory as this one; None if it cannot."""
        ...

    def table(self, seats: Sequence[int], sizes: Sequence[LinkSize], part: int = 0) -> LinkSet:
        """An environment's links with the roles at these addresses; each of them must ask for its own `link`."""
        ...

    def link(self, environment: int, size: LinkSize, part: int = 0) -> Link:
        """A seat's link with its environment, which must have begun to lay its `part`-th table."""
        ...


class Inbox(Protocol):
    """Takes what comes to a process from outside."""

    def deliver(self, to: int, tag: Tag, source: int, data: Bytes) -> None:
        """A letter."""
        ...

    def wake(self, address: int) -> None:
        """A word that something has come for a role over one of its links."""
        ...


class RemoteTransport(Protocol):
    """The way from one process's roles to those of other processes.

    Whatever comes in while one of these works is handed to `arrivals`.
    """

    def send(self, to: int, tag: Tag, source: int, data: Bytes, arrivals: Inbox) -> None:
        """Sends a letter; `data` may be reused when the call returns."""
        ...

    def wait(self, arrivals: Inbox, seconds: float | None = None) -> None:
        """Waits until something has come, or so many seconds are over."""
        ...

    def poll(self, arrivals: Inbox) -> None:
        """Takes what has come, without waiting."""
        ...

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error only says that a process of the run has died."""
        ...

    def process(self, address: int) -> Process | None:
        """The process that hosts a role; None where nothing is known of it."""
        ...

    def reaches(self, address: int) -> bool:
        """Whether a role's process can see the same memory as this one, and be woken."""
        ...

    def waker(self, address: int) -> Callable[[], None]:
        """A function that wakes a role of another process that is within reach."""
        ...

    def link(
        self, endpoint: Endpoint, peer: int, side: Side, part: int, outbox: NDArray[np.uint8], inbox: NDArray[np.uint8]
    ) -> Link:
        """One end of a link with a role that is out of reach, on these buffers."""
        ...
