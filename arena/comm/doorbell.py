"""Waking a process on the same node: one pipe per process, into which others write what has come for it.

A reader that sleeps in `read` costs nothing and is awake within microseconds; MPI itself can only be polled. A ring is
twelve bytes (to, tag, from), less than a pipe writes at once, so rings of several writers never mix. The pipe and the
memory of links have no names in a file system: others open them through `/proc/<pid>/fd`, and nothing is left behind
whatever happens to their owner.
"""

from __future__ import annotations

import logging
import mmap
import os
import select
import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.errors import RunStopped

RING = struct.Struct("<iii")
_READ_BYTES = RING.size * 4096
_log = logging.getLogger(__name__)


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

    def reaches(self, rank: int) -> bool:
        return rank in self._others

    def ring(self, rank: int, to: int, tag: int, source: int) -> None:
        """Tells another process that something has come for one of its roles.

        Raises:
            RunStopped: the process has gone; the launcher is ending us as well.
        """
        try:
            os.write(self._others[rank], RING.pack(to, tag, source))
        except BrokenPipeError as error:
            raise RunStopped(f"rank {rank} has gone") from error

    def wait(self) -> Iterator[tuple[int, int, int]]:
        """Sleeps until somebody rings; all rings that have come."""
        return RING.iter_unpack(os.read(self._read, _READ_BYTES))

    def poll(self, seconds: float = 0.0) -> Iterator[tuple[int, int, int]]:
        """The rings that have come, or come within so many seconds; perhaps none."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        return self.wait() if ready else iter(())


def _open_of(pid: int, descriptor: int, flags: int) -> int:
    return os.open(f"/proc/{pid}/fd/{descriptor}", flags | os.O_CLOEXEC)


class SharedMemory(NamedTuple):
    """Anonymous memory that other processes of the node can map."""

    pid: int
    descriptor: int
    nbytes: int

    @classmethod
    def make(cls, nbytes: int) -> SharedMemory:
        """New memory, filled with zeros.

        Raises:
            OSError: there is not so much.
        """
        descriptor = os.memfd_create("arena-link", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, nbytes)
        except OSError:
            os.close(descriptor)
            raise
        return cls(os.getpid(), descriptor, nbytes)

    def map(self) -> NDArray[np.uint8]:
        """The memory as an array, from its owner's process or another one."""
        own = self.pid == os.getpid()
        descriptor = self.descriptor if own else _open_of(self.pid, self.descriptor, os.O_RDWR)
        try:
            return np.frombuffer(mmap.mmap(descriptor, self.nbytes), np.uint8)
        finally:
            if not own:
                os.close(descriptor)
