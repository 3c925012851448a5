"""Wakes processes of the same node: each process has one pipe, and others write into it what has come for it.

A reader that sleeps in `read` costs nothing and wakes within microseconds; MPI can only be polled. One ring is an
int32: the address of a role to wake, or `message_from(rank)` (negative). A pipe takes four bytes in one
piece, so rings of several writers never mix. The pipe has no name in a file system: other processes open it through
`/proc/<pid>/fd`, and nothing is left behind when its owner dies.
"""

from __future__ import annotations

import os
import select
import struct
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from arena.errors import PeerLost

_RING = struct.Struct("=i")
_READ_BYTES = _RING.size * 1024
_FIRST_NOT_SELECTABLE = 1024  # descriptor; `poll` takes all of them, but waits whole milliseconds


class DoorbellAddress(NamedTuple):
    """Where a process's doorbell is; processes with the same `node` can open each other's."""

    node: str
    pid: int
    descriptor: int


def this_node() -> str:
    """Identifies this node, and this container on it: machine, boot, process namespace and user."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{os.uname().nodename} {boot} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"


class Doorbell:
    """This process's doorbell, and those of the other processes on its node.

    Raises:
        OSError: the system has no such pipes or no `/proc`; then messages have to be polled for.
    """

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        self.address = DoorbellAddress(this_node(), os.getpid(), self._write)
        os.close(open_descriptor(self.address.pid, self._write, os.O_WRONLY))  # fails here if others could not open it
        self._others: dict[int, int] = {}  # rank -> descriptor of its pipe
        self._closed = False
        self._lock = threading.Lock()

    def connect(self, rank: int, other: DoorbellAddress) -> None:
        """Opens the doorbell of another process of this node."""
        self._others[rank] = open_descriptor(other.pid, other.descriptor, os.O_WRONLY)

    def close(self) -> None:
        """Closes all pipes; the doorbell cannot be used afterwards."""
        with self._lock:
            self._closed = True
        for descriptor in (self.descriptor, self._write, *self._others.values()):
            os.close(descriptor)
        self._others.clear()

    @property
    def neighbors(self) -> tuple[int, ...]:
        """The ranks whose doorbells were opened."""
        return tuple(self._others)

    def ringer(self, rank: int, ring: int) -> Callable[[], None]:
        """A function that rings for another process; it raises `PeerLost` when that process has ended."""
        descriptor, message, write = self._others[rank], _RING.pack(ring), os.write

        def write_ring() -> None:
            try:
                write(descriptor, message)
            except BrokenPipeError as error:
                raise PeerLost(f"rank {rank} has ended") from error

        return write_ring

    def local_ringer(self, address: int) -> Callable[[], None]:
        """A function that wakes a role of this process; any thread may call it, also after `close`."""
        message = _RING.pack(address)

        def ring() -> None:
            with self._lock:  # after `close` the descriptor may belong to another file
                if not self._closed:
                    os.write(self._write, message)

        return ring

    def wait(self) -> memoryview:
        """Sleeps until a ring comes; all rings that have come, int32."""
        return memoryview(os.read(self.descriptor, _READ_BYTES)).cast("i")

    def poll(self) -> Sequence[int] | memoryview:
        """The rings that have come; may be empty."""
        return self.wait() if self.select(0.0) else ()

    def select(self, seconds: float, others: Sequence[int] = ()) -> list[int]:
        """Sleeps until a ring comes or one of the `others`, descriptors, is readable; the readable ones of all.

        Returns after `seconds` at the latest.
        """
        descriptors = [self.descriptor, *others]
        if max(descriptors) < _FIRST_NOT_SELECTABLE:
            return select.select(descriptors, [], [], seconds)[0]
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        return [descriptor for descriptor, _ in poll.poll(1000 * seconds)]


def message_from(rank: int) -> int:
    """The ring that announces an MPI message from a rank; the function is its own inverse."""
    return -1 - rank


def open_descriptor(pid: int, descriptor: int, flags: int) -> int:
    """Opens a file that another process of this node has open."""
    return os.open(f"/proc/{pid}/fd/{descriptor}", flags | os.O_CLOEXEC)
