"""Waking a process on the same node: one pipe per process, into which others write what has come for it.

A reader that sleeps in `read` costs nothing and is awake within microseconds; MPI itself can only be polled. A ring is
four bytes: the address of a role to wake, `letter_from(rank)`, a negative number, or `LOST`. A pipe takes that much at
once, so rings of several writers never mix. The pipe and the memory of links have no names in a file system: others
open them through `/proc/<pid>/fd`, and nothing is left behind whatever happens to their owner.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.errors import PeerLost

_RING = struct.Struct("=i")
_READ_BYTES = _RING.size * 1024

LOST = -(2**31)
"""The word that says that a process of the run is missed."""


class BellAddress(NamedTuple):
    """Where a process's bell is; equal `node`s can reach each other's."""

    node: str
    pid: int
    descriptor: int


def this_node() -> str:
    """What tells one node, and one container's processes, from another: machine, boot, and process namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{os.uname().nodename} {boot} {os.readlink('/proc/self/ns/pid')} {os.getuid()}"


class Doorbell:
    """This process's bell, and those of the others on its node.

    Raises:
        OSError: the system has no such pipes or no `/proc`; then messages have to be polled for.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self.address = BellAddress(this_node(), os.getpid(), self._write)
        os.close(_open_of(self.address.pid, self._write, os.O_WRONLY))  # what others will have to be able to do
        self._others: dict[int, int] = {}  # rank -> descriptor of its pipe

    def meet(self, rank: int, other: BellAddress) -> None:
        """Opens the bell of another process of this node."""
        self._others[rank] = _open_of(other.pid, other.descriptor, os.O_WRONLY)

    def close(self) -> None:
        """Gives all pipes back; for a bell that nobody will use."""
        for descriptor in (self._read, self._write, *self._others.values()):
            os.close(descriptor)
        self._others.clear()

    def cry(self) -> None:
        """Tells everybody, this process included, that a process is missed; waits for nobody."""
        for descriptor in (self._write, *self._others.values()):
            with suppress(OSError):  # one that has gone does not listen
                if _takes_a_ring(descriptor):  # a full one wakes its reader as it is
                    os.write(descriptor, _RING.pack(LOST))

    @property
    def neighbors(self) -> tuple[int, ...]:
        """The ranks whose bells were opened."""
        return tuple(self._others)

    def ringer(self, rank: int, word: int) -> Callable[[], None]:
        """A function that rings for another process with always the same word.

        It raises `PeerLost` when that process has gone.
        """
        descriptor, message, write = self._others[rank], _RING.pack(word), os.write

        def ring() -> None:
            try:
                write(descriptor, message)
            except BrokenPipeError as error:
                raise PeerLost(f"rank {rank} has gone") from error

        return ring

    def wait(self) -> memoryview:
        """Sleeps until somebody rings; the words of all rings that have come, int32."""
        return memoryview(os.read(self._read, _READ_BYTES)).cast("i")

    def poll(self, seconds: float = 0.0) -> Sequence[int] | memoryview:
        """The words of the rings that have come, or come within so many seconds; perhaps none."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        return self.wait() if ready else ()


def letter_from(rank: int) -> int:
    """The word that announces a letter over MPI; its own inverse."""
    return -1 - rank


def _takes_a_ring(descriptor: int) -> bool:
    """Whether a pipe can be written to at once."""
    poll = select.poll()  # unlike `select`, for descriptors of any number
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))


def _open_of(pid: int, descriptor: int, flags: int) -> int:
    return os.open(f"/proc/{pid}/fd/{descriptor}", flags | os.O_CLOEXEC)


def whole_pages(nbytes: int) -> int:
    """So many bytes, rounded up to what can be mapped by itself."""
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
            OSError: there is not so much, or the system has no memory without a name.
        """
        if not hasattr(os, "memfd_create"):
            raise OSError("this system has no memory without a name")
        descriptor = os.memfd_create("arena-link", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
        except OSError:
            os.close(descriptor)
            raise
        return cls(os.getpid(), descriptor, nbytes)

    def close(self) -> None:
        """In its owner's process: nobody can map it any more; who has mapped it keeps it."""
        os.close(self.descriptor)

    def map(self, part: slice | None = None) -> NDArray[np.uint8]:
        """The memory, or a part of it that begins and ends with a page, from its owner's process or another one."""
        start, stop = (0, self.nbytes) if part is None else (part.start, part.stop)
        own = self.pid == os.getpid()
        descriptor = self.descriptor if own else _open_of(self.pid, self.descriptor, os.O_RDWR)
        try:
            return np.frombuffer(mmap.mmap(descriptor, stop - start, offset=start), np.uint8)
        finally:
            if not own:
                os.close(descriptor)
