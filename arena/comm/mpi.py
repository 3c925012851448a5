"""The way to other processes over MPI. The only module that knows mpi4py.

Letters travel as MPI messages with an envelope in front. Links use memory that both ends see when they are on one
node, else persistent MPI requests on fixed buffers. On a node a doorbell says what has come, so that a waiting process
sleeps; where some process can't be reached by a bell (another node, or no bells on this system), MPI is polled with
growing pauses.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import mpi4py

mpi4py.rc.thread_level = "serialized"  # the roles of a process take turns; more would cost locks

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from arena.comm.doorbell import BellAddress, Doorbell, SharedMemory
from arena.comm.interface import PARTS, Bytes, Channel, Deliver, Endpoint, Link, Side, Tag, link_tags
from arena.comm.links import SharedLink
from arena.comm.waiting import Backoff, wait_until

_ENVELOPE = struct.Struct("<iii4x")  # to, tag, from; 16 bytes keep what follows aligned
_LETTER = 1  # MPI tag of letters; a link's messages have tags of their own
_FIRST_LINK_TAG = 1000
_MEMORY = struct.Struct("<qqq")  # process, descriptor, bytes; a descriptor of -1: no shared memory
_CACHE_LINE = 64
_log = logging.getLogger(__name__)


class MpiOutside:
    """This process's way to all others.

    Args:
        communicator: used by the arena alone (a duplicate), so that no user's message is ever mistaken for ours.
        ranks: for every address the rank that hosts it.
        shared_memory: whether links and bells of one node may use it (`transport: auto`) or not (`transport: mpi`).
    """

    def __init__(self, communicator: MPI.Comm, ranks: Sequence[int], *, shared_memory: bool) -> None:
        self._comm = communicator
        self._rank = communicator.Get_rank()
        self._ranks = ranks
        self._bell = _meet_neighbours(communicator) if shared_memory else None
        others = set(range(communicator.Get_size())) - {self._rank}
        self._all_ring = self._bell is not None and all(map(self._bell.reaches, others))
        self._owed: Counter[int] = Counter()  # rank -> letters that its rings have announced and MPI has not given yet
        self.receives: dict[Channel, MPI.Prequest] = {}  # posted, of links over MPI

    def _reaches(self, rank: int) -> bool:
        return self._bell is not None and self._bell.reaches(rank)

    def send(self, to: int, tag: Tag, source: int, data: Bytes, deliver: Deliver) -> None:
        rank = self._ranks[to]
        letter = bytearray(_ENVELOPE.size + len(data))
        _ENVELOPE.pack_into(letter, 0, to, tag, source)
        letter[_ENVELOPE.size :] = data
        request = self._comm.Isend([letter, MPI.BYTE], dest=rank, tag=_LETTER)
        if self._reaches(rank):
            assert self._bell is not None
            self._bell.ring(rank, -1, _LETTER, self._rank)
        backoff = Backoff()
        while not request.Test():  # a large letter moves only while both ends work at it, and so may the other's
            self.poll(deliver)
            backoff.pause()

    def ring(self, to: int, tag: Tag, source: int) -> None:
        """Says that the other end's buffer of a shared link is full."""
        assert self._bell is not None
        self._bell.ring(self._ranks[to], to, tag, source)

    def wait(self, deliver: Deliver) -> None:
        if self._all_ring:
            assert self._bell is not None
            self._answer(self._bell.wait(), deliver)
            return
        backoff = Backoff()
        while not self._look(deliver):
            if self._bell is None or not backoff.patient:
                backoff.pause()
            elif self._answer(self._bell.poll(backoff.next_pause()), deliver):
                return

    def poll(self, deliver: Deliver) -> None:
        if self._bell is not None:
            self._answer(self._bell.poll(), deliver)
        if not self._all_ring:
            self._look(deliver)

    def _answer(self, rings: Iterable[tuple[int, int, int]], deliver: Deliver) -> bool:
        """Takes what the rings announce; whether there was any."""
        heard = False
        for to, tag, source in rings:
            heard = True
            if to >= 0:
                deliver(to, Tag(tag), source, b"")
                continue
            self._owed[source] += 1  # or a look has found the letter before its bell was heard: then nothing is owed
            backoff = Backoff()
            while self._owed[source] > 0 and not self._take_letter(source, deliver):
                backoff.pause()
        return heard

    def _look(self, deliver: Deliver) -> bool:
        """Takes what MPI has; whether there was anything."""
        found = False
        while self._take_letter(MPI.ANY_SOURCE, deliver):
            found = True
        for channel, request in list(self.receives.items()):
            if request.Test():
                del self.receives[channel]
                deliver(*channel, b"")
                found = True
        return found

    def _take_letter(self, rank: int, deliver: Deliver) -> bool:
        status = MPI.Status()
        message = self._comm.Improbe(rank, _LETTER, status)
        if message is None:
            return False
        letter = bytearray(status.Get_count(MPI.BYTE))
        wait_until(message.Irecv([letter, MPI.BYTE]).Test)
        if self._reaches(status.Get_source()):
            self._owed[status.Get_source()] -= 1
        to, tag, source = _ENVELOPE.unpack_from(letter)
        deliver(to, Tag(tag), source, memoryview(letter)[_ENVELOPE.size :])
        return True

    def link(self, endpoint: Endpoint, peer: int, side: Side, part: int, request_bytes: int, reply_bytes: int) -> Link:
        replies_at = -(-request_bytes // _CACHE_LINE) * _CACHE_LINE
        memory = self._common_memory(endpoint, peer, side, replies_at + reply_bytes)
        if memory is None:
            self._all_ring = False  # nobody rings for what comes over this link
            return MpiLink(self._comm, self, endpoint, peer, self._ranks[peer], side, part, request_bytes, reply_bytes)
        return SharedLink(
            endpoint,
            peer,
            side,
            part,
            memory[:request_bytes],
            memory[replies_at:],
            ring=lambda tag: self.ring(peer, tag, endpoint.address),
        )

    def _common_memory(self, endpoint: Endpoint, peer: int, side: Side, nbytes: int) -> NDArray[np.uint8] | None:
        """Memory that both ends of a link see; the environment makes it and tells the worker. None: there is none."""
        if not self._reaches(self._ranks[peer]):
            return None
        if side is Side.SEAT:
            shared = SharedMemory(*_MEMORY.unpack(endpoint.receive(peer, Tag.LINK)[1]))
            return shared.map() if shared.descriptor >= 0 else None
        try:
            shared = SharedMemory.make(nbytes)
        except OSError as error:
            _log.warning("no shared memory for a link (%s): it goes over MPI", error)
            endpoint.send(peer, Tag.LINK, _MEMORY.pack(-1, -1, 0))
            return None
        endpoint.send(peer, Tag.LINK, _MEMORY.pack(*shared))
        return shared.map()


class MpiLink:
    """Point-to-point on fixed buffers; the receive for the answer is posted before the question is sent."""

    def __init__(
        self,
        comm: MPI.Comm,
        outside: MpiOutside,
        endpoint: Endpoint,
        peer: int,
        rank: int,
        side: Side,
        part: int,
        request_bytes: int,
        reply_bytes: int,
    ) -> None:
        environment = side is Side.ENVIRONMENT
        self.outbox = np.zeros(reply_bytes if environment else request_bytes, np.uint8)
        self.inbox = np.zeros(request_bytes if environment else reply_bytes, np.uint8)
        self._comm, self._outside, self._endpoint, self._peer, self._rank = comm, outside, endpoint, peer, rank
        _, self._back, self._out_extra, self._back_extra = link_tags(side, part)
        worker = peer if environment else endpoint.address  # it has links with one environment alone
        self._tag = _FIRST_LINK_TAG + PARTS * worker + part
        self._receive = comm.Recv_init([self.inbox, MPI.BYTE], source=rank, tag=self._tag)
        self._channel = (endpoint.address, self._back, peer)
        self._sending: MPI.Request = MPI.REQUEST_NULL
        self._closed = False
        if side is Side.SEAT:  # the environment speaks first
            self._listen()

    def _listen(self) -> None:
        if self._channel not in self._outside.receives:
            self._receive.Start()
            self._outside.receives[self._channel] = self._receive

    def post(self, nbytes: int) -> None:
        self._listen()
        wait_until(self._sending.Test)
        self._sending = self._comm.Isend([self.outbox, nbytes, MPI.BYTE], dest=self._rank, tag=self._tag)

    def wait(self) -> None:
        self._endpoint.receive(self._peer, self._back)
        # The peer has answered, so our message has arrived: this completes at once and frees the outbox.
        wait_until(self._sending.Test)

    def post_extra(self, data: Bytes) -> None:
        self._endpoint.send(self._peer, self._out_extra, data)

    def wait_extra(self) -> Bytes:
        return self._endpoint.receive(self._peer, self._back_extra)[1]

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        wait_until(self._sending.Test)
        if self._outside.receives.pop(self._channel, None) is not None:  # no answer comes to the last word
            self._receive.Cancel()
            self._receive.Wait()
        self._receive.Free()


def _meet_neighbours(communicator: MPI.Comm) -> Doorbell | None:
    """Opens the bells of all processes of this node; None if this is not possible for each of them. A collective."""
    try:
        bell = Doorbell()
    except OSError as error:
        _log.warning("no doorbell (%s): messages are polled for", error)
        bell = None
    addresses = communicator.allgather(bell.address if bell is not None else None)
    opened = bell is not None and _open_all(bell, addresses, communicator.Get_rank())
    outcomes = communicator.allgather((addresses[communicator.Get_rank()], opened))
    # One that cannot open a neighbour's bell does without; so must its neighbours, or it would not hear them.
    node = bell.address.node if bell is not None else ""
    agreed = all(ok for address, ok in outcomes if address is not None and address.node == node)
    if bell is not None and not (opened and agreed):
        bell.close()
        return None
    return bell


def _open_all(bell: Doorbell, addresses: Sequence[BellAddress | None], own: int) -> bool:
    try:
        for rank, address in enumerate(addresses):
            if rank != own and address is not None and address.node == bell.address.node:
                bell.meet(rank, address)
    except OSError as error:
        _log.warning("a neighbour's doorbell cannot be opened (%s): messages are polled for", error)
        return False
    return True


def world() -> Any:
    """`MPI.COMM_WORLD`; starts MPI."""
    return MPI.COMM_WORLD


def group_communicator(communicator: MPI.Comm, color: int | None) -> MPI.Comm | None:
    """A communicator of all ranks with this color; None for those without one. A collective."""
    split = communicator.Split(MPI.UNDEFINED if color is None else color, communicator.Get_rank())
    return None if split == MPI.COMM_NULL else split
