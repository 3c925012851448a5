"""The world over MPI. The only module that knows mpi4py.

Every wait is a test with back-off (see `waiting`), so it can be interrupted by a signal and costs nothing when long.
"""

from __future__ import annotations

from typing import Any

import mpi4py

mpi4py.rc.thread_level = "funneled"  # one thread of a process speaks MPI; more would cost locks

import numpy as np
from mpi4py import MPI

from arena.comm.interface import ANYONE, Bytes, Side, Tag
from arena.comm.waiting import wait_until

_ROOT_PAUSE = 5e-3  # seconds; the root only records, a little delay costs nobody anything


class MpiEndpoint:
    """This process's place in a communicator; an address is a rank of it.

    Args:
        communicator: used by the arena alone (a duplicate), so that no user's message is ever mistaken for ours.
    """

    def __init__(self, communicator: MPI.Comm) -> None:
        self._comm = communicator
        self.address = communicator.Get_rank()
        self.size = communicator.Get_size()

    def send(self, to: int, tag: Tag, data: Bytes) -> None:
        request = self._comm.Isend([data, MPI.BYTE], dest=to, tag=tag)
        wait_until(request.Test)

    def receive(self, source: int, tag: Tag) -> tuple[int, Bytes]:
        rank = MPI.ANY_SOURCE if source == ANYONE else source
        found: list[MPI.Message] = []
        status = MPI.Status()

        def arrived() -> bool:
            message = self._comm.Improbe(rank, tag, status)
            if message is not None:
                found.append(message)
            return message is not None

        wait_until(arrived, longest_pause=_ROOT_PAUSE if source == ANYONE else 1e-3)
        data = bytearray(status.Get_count(MPI.BYTE))
        wait_until(found[0].Irecv([data, MPI.BYTE]).Test)
        return status.Get_source(), data

    def link(self, peer: int, side: Side, *, request_bytes: int, reply_bytes: int) -> MpiLink:
        return MpiLink(self._comm, peer, side, request_bytes, reply_bytes)

    def group_communicator(self, color: int | None) -> MPI.Comm:
        return self._comm.Split(MPI.UNDEFINED if color is None else color, self.address)


class MpiLink:
    """Point-to-point on fixed buffers; the receive for the answer is posted before the question is sent."""

    def __init__(self, comm: MPI.Comm, peer: int, side: Side, request_bytes: int, reply_bytes: int) -> None:
        environment = side is Side.ENVIRONMENT
        self.outbox = np.zeros(reply_bytes if environment else request_bytes, np.uint8)
        self.inbox = np.zeros(request_bytes if environment else reply_bytes, np.uint8)
        self._comm = comm
        self._peer = peer
        self._out, back = (Tag.REPLY, Tag.REQUEST) if environment else (Tag.REQUEST, Tag.REPLY)
        self._out_extra, self._back_extra = Tag(self._out + 2), Tag(back + 2)
        self._receive = comm.Recv_init([self.inbox, MPI.BYTE], source=peer, tag=back)
        self._receive.Start()
        self._fresh = True  # a receive is posted already
        self._sending: MPI.Request = MPI.REQUEST_NULL

    def post(self, nbytes: int) -> None:
        if not self._fresh:
            self._receive.Start()
            self._fresh = True
        if not self._sending.Test():
            wait_until(self._sending.Test)
        self._sending = self._comm.Isend([self.outbox, nbytes, MPI.BYTE], dest=self._peer, tag=self._out)

    def wait(self) -> None:
        if not self._fresh:
            self._receive.Start()
        wait_until(self._receive.Test)
        self._fresh = False
        # The peer has answered, so our message has arrived: this completes at once and frees the outbox.
        wait_until(self._sending.Test)

    def post_extra(self, data: Bytes) -> None:
        wait_until(self._comm.Isend([data, MPI.BYTE], dest=self._peer, tag=self._out_extra).Test)

    def wait_extra(self) -> Bytes:
        status = MPI.Status()
        wait_until(lambda: self._comm.Iprobe(self._peer, self._back_extra, status))
        data = bytearray(status.Get_count(MPI.BYTE))
        wait_until(self._comm.Irecv([data, MPI.BYTE], source=self._peer, tag=self._back_extra).Test)
        return data

    def close(self) -> None:
        wait_until(self._sending.Test)
        if self._receive == MPI.REQUEST_NULL:
            return
        if self._fresh:  # no answer comes to the last word
            self._receive.Cancel()
            self._receive.Wait()
        self._receive.Free()


def world() -> Any:
    """`MPI.COMM_WORLD`; starts MPI."""
    return MPI.COMM_WORLD
