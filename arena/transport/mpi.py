"""The transport to other processes over MPI. The only module that imports mpi4py.

A message of the arena travels as an MPI message with an envelope in front. A link whose ends have no memory in common
(see `links`) receives and sends with persistent MPI requests on fixed buffers. On a node a doorbell
announces what has come, so that a waiting process sleeps; so do the sockets over which MPI hears from other nodes, if
it uses TCP. If neither announces what may come, MPI is polled with growing pauses.
"""

from __future__ import annotations

import logging
import math
import os
import select
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import mpi4py

mpi4py.rc.thread_level = "serialized"  # the roles of a process take turns; more would cost locks

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from arena.diagnostics.remote_stacks import Process, this_process
from arena.errors import PeerLost
from arena.transport import doorbell
from arena.transport.doorbell import Doorbell, DoorbellAddress, message_from
from arena.transport.endpoint import PARTS, Bytes, Channel, Endpoint, Inbox, Link, Side, Tag, link_tags

_ENVELOPE = struct.Struct("<iii4x")  # to, tag, from; 16 bytes keep what follows aligned
_MESSAGE = 1  # MPI tag of messages; links have tags of their own
_FIRST_LINK_TAG = 1000
_YIELDS = 30
_FIRST_PAUSE = 20e-6  # seconds
_LONGEST_PAUSE = 5e-3
_GROWTH = 1.3
# Messages that descriptors may leave unannounced: at first, more after each announced one, at most. On busy cores a
# third come while MPI is asked, which gives the core to others.
_UNANNOUNCED, _PER_ANNOUNCED, _MOST_UNANNOUNCED = 3, 10, 30
_MOST_SENDS = 4  # persistent requests of a link
# A wait for other nodes begins awake if the one before was short: a process that sleeps is woken late, and the kernel
# moves it to the core of its waker; three processes on two hosts took turns on one of two cores.
_AWAKE_SECONDS = 50e-6
_SHORT_SECONDS = 200e-6
_LAST_PAUSE = 0.05  # the longest pause while waiting for all others
_log = logging.getLogger(__name__)


class Backoff:
    """The pauses of one wait that tests again and again: first `sched_yield`, then sleeps that grow.

    Blocking MPI calls spin: an idle process costs a whole core, and with more processes than cores it takes the core
    from the process that it waits for. Growing pauses cost nothing in a long wait and little in a short one, and
    signals are handled.

    Args:
        sockets: descriptors that end a sleep when they become readable.
    """

    def __init__(self, *, longest_pause: float = _LONGEST_PAUSE, sockets: Sequence[int] = ()) -> None:
        self._yields = _YIELDS
        self._pause = _FIRST_PAUSE
        self._longest = longest_pause
        self._sockets = sockets

    @property
    def patient(self) -> bool:
        """Whether the next pause is a sleep."""
        return self._yields == 0

    def next_pause(self) -> float:
        """Seconds of the next sleep."""
        pause, self._pause = self._pause, min(self._pause * _GROWTH, self._longest)
        return pause

    def pause(self) -> None:
        """Yields the processor or sleeps."""
        if self._yields:
            self._yields -= 1
            os.sched_yield()
        else:
            select.select(self._sockets, [], [], self.next_pause())


def wait_until(done: Callable[[], bool], *, longest_pause: float = _LONGEST_PAUSE, sockets: Sequence[int] = ()) -> None:
    """Calls `done()` with growing pauses until it is true; see `Backoff`."""
    if done():
        return
    backoff = Backoff(longest_pause=longest_pause, sockets=sockets)
    while not done():
        backoff.pause()


class World:
    """All processes of a run.

    When one of them dies, the launcher ends the others; until then their calls may raise errors for which
    `is_peer_failure` is true.

    Args:
        communicator: of all processes. Messages go over a `private` one, so that they never mix with a user's.
    """

    def __init__(self, communicator: MPI.Comm) -> None:
        self.comm = communicator
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        self.neighbors: dict[int, int] = {}  # rank -> process id, of the other processes of this node
        self.sockets = network_descriptors()  # of MPI: the process has not begun to serve anything itself

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error was caused by the death of another process, as far as this process can see."""
        return isinstance(error, (PeerLost, MPI.Exception)) or any(map(has_ended, self.neighbors.values()))

    def wait_for_all(self) -> None:
        """A barrier that sleeps instead of spinning."""
        wait_until(self.comm.Ibarrier().Test, longest_pause=_LAST_PAUSE)

    def abort(self, status: int) -> NoReturn:
        """Ends all processes."""
        try:
            MPI.COMM_WORLD.Abort(status)
        finally:  # MPICH's returns if the launcher is ending them already
            os._exit(status)

    def private(self) -> World:
        """The same processes over a communicator of their own. A collective."""
        world = World(self.comm.Dup())
        world.sockets = self.sockets
        return world

    def broadcast(self, data: bytes) -> bytes:
        """The `data` of rank 0. A collective."""
        received: bytes = self.comm.bcast(data, root=0)
        return received

    def collect(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order. A collective."""
        self.wait_for_all()  # MPI waits in a busy loop
        return self.comm.allgather(value)

    def split(self, color: int | None) -> MPI.Comm | None:
        """A communicator of all ranks with this color; None for those without one. A collective."""
        part = self.comm.Split(MPI.UNDEFINED if color is None else color, self.rank)
        return None if part == MPI.COMM_NULL else part


def has_ended(pid: int) -> bool:
    """Whether a process of this node has ended; the process that has started it may not have noticed yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True
    except OSError:  # without `/proc`
        return False


class MpiTransport:
    """Connects the roles of this process to those of all other processes."""

    def __init__(self, world: World, ranks: Sequence[int], *, shared_memory: bool) -> None:
        self._world = world
        self._comm, self._rank, self._ranks = world.comm, world.rank, ranks
        self._processes, self._bell = _exchange_processes(self._comm, bells=shared_memory)
        neighbors = self._bell.neighbors if self._bell is not None else ()
        this = self._processes[self._rank]
        world.neighbors = {
            rank: process.pid
            for rank, process in enumerate(self._processes)
            if process is not None and this is not None and process != this and process.node == this.node
        }
        self._all_ring = len(neighbors) == world.size - 1
        self._announce = {rank: self._ringer(rank, message_from(self._rank)) for rank in neighbors}
        # Descriptors that announce what comes from other nodes. Those of other networks than TCP (UCX, most of OFI,
        # MPICH's) announce connections alone; so these are left when they have announced too little.
        self._sockets = world.sockets if len(world.neighbors) < world.size - 1 else []
        self._unannounced = _UNANNOUNCED  # how many further messages they may leave unannounced
        self._was_short = True  # the last wait for other nodes
        self._owed: Counter[int] = Counter()  # rank -> messages that its rings announced and MPI has not delivered yet
        self._rung: deque[int] = deque()  # without a doorbell: the roles whose bells have been rung
        self._complete = self._comm.Recv_init([bytearray(1), MPI.BYTE], source=MPI.PROC_NULL)
        self.receives: dict[Channel, MPI.Prequest] = {}  # posted receives of links over MPI

    def is_peer_failure(self, error: BaseException) -> bool:
        return self._world.is_peer_failure(error)

    def close(self) -> None:
        """Closes the doorbell; the transport cannot be used afterwards."""
        self._complete.Free()
        if self._bell is not None:
            self._bell.close()

    def process(self, address: int) -> Process | None:
        return self._processes[self._ranks[address]]

    def reaches(self, address: int) -> bool:
        return self._ranks[address] in self._announce

    def bell(self, address: int) -> Callable[[], None]:
        if self._bell is not None:
            return self._bell.local_ringer(address)
        return lambda: self._rung.append(address)

    def waker(self, address: int) -> Callable[[], None]:
        return self._ringer(self._ranks[address], address)

    def _ringer(self, rank: int, ring: int) -> Callable[[], None]:
        assert self._bell is not None, "there is no doorbell"
        return self._bell.ringer(rank, ring)

    def send(self, to: int, tag: Tag, source: int, data: Bytes, arrivals: Inbox) -> None:
        rank = self._ranks[to]
        message = bytearray(_ENVELOPE.size + len(data))
        _ENVELOPE.pack_into(message, 0, to, tag, source)
        message[_ENVELOPE.size :] = data
        request = self._comm.Isend([message, MPI.BYTE], dest=rank, tag=_MESSAGE)
        if rank in self._announce:
            self._announce[rank]()
        backoff = Backoff(sockets=self._sockets)
        # A large message moves only while both ends make MPI calls, and the other end may be sending one too.
        while not request.Test():
            self.poll(arrivals)
            backoff.pause()

    def wait(self, arrivals: Inbox, seconds: float | None = None) -> None:
        if self._all_ring:
            assert self._bell is not None
            if seconds is None or self._bell.select(seconds):
                self._handle(self._bell.wait(), arrivals)
            return
        if self._look(arrivals):
            return
        backoff = Backoff(sockets=self._sockets)
        backoff.pause()
        begun = time.monotonic()
        # Without sockets it stays awake for some yields; see `Backoff`.
        awake_until = begun + (_AWAKE_SECONDS if self._was_short else 0.0) if self._sockets else math.inf
        end = math.inf if seconds is None else begun + seconds
        ready: list[int] | None = None
        look_twice = False  # a look that finds nothing may have received something, which the next one finds
        while not (self._look(arrivals) or (look_twice and self._look(arrivals))):
            now = time.monotonic()
            if (left := end - now) <= 0:
                return
            if self._bell is None or not (backoff.patient or now > awake_until):
                backoff.pause()
                continue
            # What comes over TCP is announced: few looks, as a call of MPI that finds nothing gives the core to others.
            pause = backoff.next_pause() if not self._sockets else _LONGEST_PAUSE
            ready = self._bell.select(min(pause, left), self._sockets)
            look_twice = bool(ready)
            if self._bell.descriptor in ready:
                self._handle(self._bell.wait(), arrivals)
                return
        self._was_short = time.monotonic() - begun < _SHORT_SECONDS
        if ready is not None:
            self._unannounced = min(self._unannounced + (_PER_ANNOUNCED if ready else -1), _MOST_UNANNOUNCED)
            if not self._unannounced:
                self._sockets = []

    def poll(self, arrivals: Inbox) -> None:
        if self._bell is not None:
            self._handle(self._bell.poll(), arrivals)
        if not self._all_ring:
            self._look(arrivals)

    def _handle(self, rings: Iterable[int], arrivals: Inbox) -> None:
        for ring in rings:
            if ring >= 0:
                arrivals.wake(ring)
            else:
                rank = message_from(ring)
                self._owed[rank] += 1  # 0 afterwards if the message was found by `_look` before its ring
                backoff = Backoff()
                while self._owed[rank] > 0 and not self._take_message(rank, arrivals):
                    backoff.pause()

    def _look(self, arrivals: Inbox) -> bool:
        """Takes all messages that MPI has, and rings of this process's own threads; returns whether there were any."""
        found = False
        while self._rung:
            arrivals.wake(self._rung.popleft())
            found = True
        while self._take_message(MPI.ANY_SOURCE, arrivals):
            found = True
        channels = [*self.receives]
        if not self._sockets:  # what one of these tests receives for an earlier channel is found by the next look
            done = [channel for channel in channels if self.receives[channel].Test()]
        else:
            # The last call above has received what is there, also into these requests. To test them would receive again
            # if none was complete, and the process would sleep on what it has; one that is complete prevents it.
            self._complete.Start()
            indices = MPI.Request.Testsome([*self.receives.values(), self._complete]) or ()
            done = [channels[index] for index in indices if index < len(channels)]
        for channel in done:
            del self.receives[channel]
            arrivals.wake(channel[0])
        return found or bool(done)

    def _take_message(self, rank: int, arrivals: Inbox) -> bool:
        status = MPI.Status()
        matched = self._comm.Improbe(rank, _MESSAGE, status)
        if matched is None:
            return False
        message = bytearray(status.Get_count(MPI.BYTE))
        wait_until(matched.Irecv([message, MPI.BYTE]).Test, sockets=self._sockets)
        if status.Get_source() in self._announce:
            self._owed[status.Get_source()] -= 1
        to, tag, source = _ENVELOPE.unpack_from(message)
        arrivals.deliver(to, Tag(tag), source, memoryview(message)[_ENVELOPE.size :])
        return True

    def link(
        self, endpoint: Endpoint, peer: int, side: Side, part: int, outbox: NDArray[np.uint8], inbox: NDArray[np.uint8]
    ) -> Link:
        rank = self._ranks[peer]
        self._all_ring = False  # messages of this link are not announced by a ring
        if rank in self._announce:  # nor by a socket: there was not enough shared memory
            self._sockets = []
        return MpiLink(self._comm, self.receives, endpoint, peer, rank, side, part, outbox, inbox)


class MpiLink:
    """A link over MPI: fixed buffers; the receive for the reply is posted before the request is sent."""

    def __init__(
        self,
        comm: MPI.Comm,
        receives: dict[Channel, MPI.Prequest],
        endpoint: Endpoint,
        peer: int,
        rank: int,
        side: Side,
        part: int,
        outbox: NDArray[np.uint8],
        inbox: NDArray[np.uint8],
    ) -> None:
        self.outbox, self.inbox = outbox, inbox
        self._comm, self._receives, self._endpoint, self._peer, self._rank = comm, receives, endpoint, peer, rank
        back, self._out_extra, self._back_extra = link_tags(side, part)
        worker = peer if side is Side.ENVIRONMENT else endpoint.address  # a worker has links with one environment only
        self._tag = _FIRST_LINK_TAG + PARTS * worker + part
        self._receive = comm.Recv_init([self.inbox, MPI.BYTE], source=rank, tag=self._tag)
        self._awaited = (endpoint.address, back, peer)
        self._sends: dict[int, MPI.Prequest] = {}  # by number of bytes, of which most messages have one of a few
        self._sending: MPI.Request = MPI.REQUEST_NULL
        self._heap: NDArray[np.uint8] = np.empty(0, np.uint8)
        self._closed = False
        if side is Side.SEAT:  # the environment posts first
            self._post_receive()

    def _post_receive(self) -> None:
        if self._awaited not in self._receives:
            self._receive.Start()
            self._receives[self._awaited] = self._receive

    def post(self, nbytes: int) -> None:
        self._post_receive()
        wait_until(self._sending.Test)
        send = self._sends.get(nbytes)
        if send is None and len(self._sends) == _MOST_SENDS:
            self._sending = self._comm.Isend([self.outbox, nbytes, MPI.BYTE], dest=self._rank, tag=self._tag)
            return
        if send is None:  # starting it again takes a third of the time of `Isend`
            send = self._comm.Send_init([self.outbox, nbytes, MPI.BYTE], dest=self._rank, tag=self._tag)
            self._sends[nbytes] = send
        send.Start()
        self._sending = send

    def wait(self) -> None:
        while self._awaited in self._receives:
            self._endpoint.sleep(self._awaited)
        # The peer has replied, so our message has arrived: this completes at once and frees the outbox.
        wait_until(self._sending.Test)

    def post_extra(self, data: Bytes) -> None:
        self._endpoint.send(self._peer, self._out_extra, data)

    def wait_extra(self) -> Bytes:
        return self._endpoint.receive(self._peer, self._back_extra)[1]

    def reserve_heap(self, nbytes: int) -> NDArray[np.uint8]:
        self._heap = np.empty(nbytes, np.uint8)
        return self._heap

    def post_heap(self) -> None:
        self.post_extra(self._heap.data)

    def sent_heap(self, nbytes: int) -> NDArray[np.uint8]:
        return self._heap[:nbytes]

    def wait_heap(self, nbytes: int) -> NDArray[np.uint8]:
        return np.frombuffer(self.wait_extra(), np.uint8, nbytes)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        wait_until(self._sending.Test)
        if self._receives.pop(self._awaited, None) is not None:  # the last message is not answered
            self._receive.Cancel()
            self._receive.Wait()
        for request in (self._receive, *self._sends.values()):
            request.Free()


def _exchange_processes(communicator: MPI.Comm, *, bells: bool) -> tuple[list[Process | None], Doorbell | None]:
    """The processes of all ranks, and this one's doorbell if connected to all others of its node. A collective."""
    process: Process | None = None
    with suppress(OSError):
        process = this_process(doorbell.this_node())
    bell: Doorbell | None = None
    if bells:
        try:
            bell = Doorbell()
        except OSError as error:
            _log.warning("no doorbell (%s): messages are polled for", error)
    gathered = communicator.allgather((process, bell.address if bell is not None else None))
    processes: list[Process | None] = [process for process, _ in gathered]
    if not bells:
        return processes, None
    addresses: list[DoorbellAddress | None] = [address for _, address in gathered]
    node, opened = bell.address.node if bell is not None else "", bell is not None
    near = [(rank, one) for rank, one in enumerate(addresses) if one is not None and one.node == node]
    try:
        for rank, address in near:
            if bell is not None and rank != communicator.Get_rank():
                bell.connect(rank, address)
    except OSError as error:
        opened = False
        _log.warning("the doorbell of a process of this node cannot be opened (%s): messages are polled for", error)
    # If one process of a node has no doorbells, none of them may ring, or it would miss their messages.
    outcomes = communicator.allgather(opened)
    if bell is not None and not all(outcomes[rank] for rank, _ in near):
        bell.close()
        bell = None
    return processes, bell


def network_descriptors() -> list[int]:
    """Descriptors that are readable when something has come over TCP from another node; none if MPI does not use TCP.

    Open MPI watches its connections, and the sockets where it accepts them, with `epoll`: its descriptor is readable
    while one of them is.
    """
    found = []
    with suppress(OSError):  # without `/proc`
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed meanwhile
                if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                    with open(f"/proc/self/fdinfo/{name}", encoding="ascii") as file:
                        watched = [int(line.split()[1]) for line in file if line.startswith("tfd:")]
                    if any(map(_accepts_connections, watched)):
                        found.append(int(name))
    return found


def _accepts_connections(descriptor: int) -> bool:
    if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as one:
        internet = one.family in (socket.AF_INET, socket.AF_INET6)
        return internet and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1


def world() -> MPI.Intracomm:
    """`MPI.COMM_WORLD`; starts MPI."""
    return MPI.COMM_WORLD
