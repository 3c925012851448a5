"""The transport to other processes over MPI. The only module that imports mpi4py.

A message of the arena travels as an MPI message with an envelope in front. A link whose ends have no memory in common
(see `links`) receives with a persistent MPI request and sends with `Isend`, both on fixed buffers. On a node a doorbell
announces what has come, so that a waiting process sleeps; if some process cannot be reached by a doorbell (another
node, or a system without them), MPI is polled with growing pauses.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

import mpi4py

mpi4py.rc.thread_level = "serialized"  # the roles of a process take turns; more would cost locks

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from arena.diagnostics.remote_stacks import Process, this_process
from arena.errors import ArenaError, PeerLost, ProcessExited
from arena.transport import doorbell
from arena.transport.backoff import Backoff, wait_until
from arena.transport.doorbell import LOST, BellAddress, Doorbell, message_from
from arena.transport.endpoint import PARTS, Bytes, Channel, Endpoint, Inbox, Link, Side, Tag, link_tags
from arena.transport.process_exit import ExitWatcher, can_watch

_ENVELOPE = struct.Struct("<iii4x")  # to, tag, from; 16 bytes keep what follows aligned
_MESSAGE = 1  # MPI tag of messages; links have tags of their own
_FIRST_LINK_TAG = 1000
_LAST_PAUSE = 0.05  # seconds; the longest pause while waiting for all others
_FAREWELL_SECONDS = 2.0  # a rank that has not agreed to an abort by then is taken as not responding
_YES, _GO_ON = 1, 2
_LISTEN_SECONDS = 0.5  # between two MPI polls while a process sleeps at its doorbell
_SUSPENSE = 0.2  # seconds until MPI knows of a death
_DEATHS = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED}
_FAULT_TOLERANCE = "OMPI_MCA_mpi_ft_enable"  # what `mpirun --with-ft ulfm` sets
_PENDING: list[NDArray[np.intc]] = []  # MPI may still write into these after their request was given up
_log = logging.getLogger(__name__)


class World:
    """The living processes of a run.

    With fault tolerance (ULFM of MPI 5, as Open MPI implements it) the survivors continue when a process dies: their
    calls raise errors for which `is_peer_failure` is true, every rank calls `revoke` and `agree`, and the run is
    resumed with the world of `survivors`. No rank ends because another one did, so an end for all is agreed on too.

    Args:
        communicator: of all processes. Messages go over a `private` one, so that they never mix with a user's.
        tolerant: whether the run survives the death of a process.
    """

    def __init__(self, communicator: MPI.Comm, *, tolerant: bool) -> None:
        self.comm = communicator
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        self.tolerant = tolerant
        self._others: list[MPI.Comm] = []  # revoked together with `comm`
        self.neighbors: dict[int, int] = {}  # rank -> process id, of the other processes of this node
        self.agree_timeout = math.inf  # seconds in which every survivor must learn of a death
        self.wake_all: Callable[[], None] = lambda: None  # wakes the processes that sleep at their doorbells

    @property
    def is_first(self) -> bool:
        """Whether this is the lowest living rank of its node."""
        return all(rank > self.rank or _has_gone(pid) for rank, pid in self.neighbors.items())

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error was caused by the death of another process."""
        if isinstance(error, PeerLost):
            return True
        if not self.tolerant:
            return False
        if isinstance(error, MPI.Exception) and error.Get_error_class() in _DEATHS:
            return True
        if isinstance(error, OSError):  # such as opening a file of a process that has just ended
            time.sleep(_SUSPENSE)
        try:
            self.comm.Iprobe()  # MPI makes progress only in calls
        except MPI.Exception:
            return True
        return bool(self.comm.Is_revoked())

    def wait_for_all(self) -> None:
        """A barrier that sleeps instead of spinning."""
        wait_until(self.comm.Ibarrier().Test, longest_pause=_LAST_PAUSE)

    def agree(self, flag: bool) -> bool:
        """Whether all ranks live and `flag` is true on each; the same answer on all living ranks. A collective.

        If any rank has called `abort`, this process ends.

        Raises:
            ProcessExited: a process of this node has exited by itself; MPI does not notice that and would wait for it.
            ArenaError: a process has died, and another one did not answer within `agree_timeout`.
        """
        if not self.tolerant:
            return bool(self.comm.allreduce(flag, MPI.LAND))
        try:
            agreed = self._agree(_GO_ON | (_YES if flag else 0), seconds=math.inf if flag else self.agree_timeout)
        except TimeoutError as error:
            words = f"a process has died, and another one has not come back from a call for {self.agree_timeout:g} s"
            raise ArenaError(words) from error
        if not agreed & _GO_ON:
            _end_process(0)  # the rank that called `abort` reports the exit status
        return bool(agreed & _YES)

    def _agree(self, word: int, *, seconds: float = math.inf) -> int:
        """The bits that are set in the `word` of every living rank.

        Raises:
            TimeoutError: a rank has not taken part within `seconds`.
            ProcessExited: as `agree`.
        """
        begun, missed_since = time.monotonic(), math.inf
        while True:
            if self.comm.Ack_failed():  # otherwise a rank that dies just before the end would count as agreeing
                word &= ~_YES
            agreed = np.array([word], np.intc)
            try:
                request, backoff = self.comm.Iagree(agreed), Backoff(longest_pause=_LAST_PAUSE)
                while not request.Test():
                    now = time.monotonic()
                    missed_since = min(missed_since, now) if self._exited_unnoticed() else math.inf
                    if now > missed_since + _FAREWELL_SECONDS:
                        gone = self._exited_unnoticed()
                        words = f"rank {', '.join(map(str, gone))} has exited by itself, without telling MPI"
                        raise ProcessExited(words, gone)
                    if now > begun + seconds:
                        _PENDING.append(agreed)  # MPI may still write into it
                        raise TimeoutError
                    backoff.pause()
                return int(agreed[0])
            except MPI.Exception as error:  # a death that was not known before: all ranks get this error
                if error.Get_error_class() not in _DEATHS:
                    raise

    def _exited_unnoticed(self) -> list[int]:
        """The ranks of this node whose processes have ended although MPI does not count them as failed."""
        gone = [rank for rank, pid in self.neighbors.items() if _has_gone(pid)]
        if not gone:
            return []
        dead = self.comm.Get_failed()
        known = set(dead.Translate_ranks(list(range(dead.Get_size())), self.comm.Get_group()))
        return [rank for rank in gone if rank not in known]

    def revoke(self) -> None:
        """Interrupts every MPI call of every rank that waits for another rank."""
        for communicator in (self.comm, *self._others):
            if not communicator.Is_revoked():
                communicator.Revoke()
        self.wake_all()

    def abort(self, status: int) -> NoReturn:
        """Ends all processes; those of this node that do not respond are killed."""
        if not self.tolerant:
            MPI.COMM_WORLD.Abort(status)
        self.revoke()
        with suppress(TimeoutError, ProcessExited):
            self._agree(0, seconds=_FAREWELL_SECONDS)
            _end_process(status)
        for pid in self.neighbors.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(TimeoutError, ProcessExited):
            self._agree(0, seconds=_FAREWELL_SECONDS)
            _end_process(status)
        os.kill(os.getppid(), signal.SIGTERM)  # the launcher: a rank on another node does not respond
        _end_process(status)

    def survivors(self) -> World:
        """The world of all living processes, in the order of their ranks. A collective of these."""
        return self._over(self.comm.Shrink())

    def private(self) -> World:
        """The same processes over a communicator of their own. A collective.

        Raises:
            PeerLost: a process has died meanwhile; raised on every rank.
        """
        communicator = None
        try:
            communicator = self.comm.Dup()
        except MPI.Exception as error:
            if not self.is_peer_failure(error):
                raise
        if self.tolerant and not self.agree(communicator is not None):
            raise PeerLost("a process died while the communicator was made")
        assert communicator is not None
        return self._over(communicator)

    def in_order(self, place: int) -> World:
        """The same processes in another order: each gives its new place. A collective."""
        return self._over(self.comm.Split(0, place))

    def _over(self, communicator: MPI.Comm) -> World:
        """The world of a communicator of some of these processes."""
        world = World(communicator, tolerant=self.tolerant)
        world.agree_timeout = self.agree_timeout
        old, new = self.comm.Get_group(), communicator.Get_group()
        places = old.Translate_ranks(list(self.neighbors), new)
        pids = self.neighbors.values()
        world.neighbors = {rank: pid for rank, pid in zip(places, pids, strict=True) if rank != MPI.UNDEFINED}
        return world

    def broadcast(self, data: bytes) -> bytes:
        """The `data` of rank 0. A collective."""
        received: bytes = self.comm.bcast(data, root=0)
        return received

    def gather(self, data: bytes) -> list[bytes]:
        """The `data` of all ranks. A collective."""
        gathered: list[bytes] = self.comm.allgather(data)
        return gathered

    def split(self, color: int | None) -> MPI.Comm | None:
        """A communicator of all ranks with this color; None for those without one. A collective."""
        part = self.comm.Split(MPI.UNDEFINED if color is None else color, self.rank)
        if part == MPI.COMM_NULL:
            return None
        self._others.append(part)
        return part

    def free(self, part: MPI.Comm | None) -> None:
        """Frees a communicator of `split`. A collective of its members."""
        if part is not None:
            self._others.remove(part)
            part.Free()


def _end_process(status: int) -> NoReturn:
    """Ends this process without `MPI_Finalize`, which may hang after a death."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _has_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def tolerates_faults() -> bool:
    """Whether the survivors can continue when a process dies: Open MPI was started with ULFM."""
    return os.environ.get(_FAULT_TOLERANCE) == "1" and hasattr(MPI.Comm, "Shrink")


class MpiTransport:
    """Connects the roles of this process to those of all other processes."""

    def __init__(self, world: World, ranks: Sequence[int], *, shared_memory: bool) -> None:
        self._world = world
        communicator = world.comm
        self._comm = communicator
        self._rank = communicator.Get_rank()
        self._ranks = ranks
        self._processes, self._bell = _exchange_processes(communicator, bells=shared_memory)
        neighbors = self._bell.neighbors if self._bell is not None else ()
        own = self._processes[self._rank]
        world.neighbors = {
            rank: process.pid
            for rank, process in enumerate(self._processes)
            if process is not None and own is not None and process != own and process.node == own.node
        }
        if self._bell is not None:
            world.wake_all = self._bell.wake_all
        self._all_ring = len(neighbors) == communicator.Get_size() - 1
        self._announce = {rank: self._ringer(rank, message_from(self._rank)) for rank in neighbors}
        self._owed: Counter[int] = Counter()  # rank -> messages that its rings announced and MPI has not delivered yet
        self._rung: deque[int] = deque()  # without a doorbell: the roles whose bells have been rung
        self.receives: dict[Channel, MPI.Prequest] = {}  # posted receives of links over MPI
        self._exit_watcher = self._watch_neighbor() if world.tolerant else None

    def _watch_neighbor(self) -> ExitWatcher | None:
        """Watches the next process of this node that has a doorbell; its death wakes all processes of the node."""
        near = [rank for rank in (*self._announce, self._rank) if self._processes[rank] is not None]
        next_one = min(near, key=lambda rank: (rank <= self._rank, rank), default=self._rank)
        process = self._processes[next_one]
        if next_one == self._rank or process is None or not can_watch():
            return None
        assert self._bell is not None
        try:
            return ExitWatcher(process.pid, self._bell.wake_all)
        except OSError as error:
            self._bell.wake_all()  # it has just died, and only this process watches it
            raise PeerLost(f"rank {next_one} cannot be watched: {error}") from error

    def is_peer_failure(self, error: BaseException) -> bool:
        return self._world.is_peer_failure(error)

    def close(self) -> None:
        """Closes doorbell and exit watcher; the transport cannot be used afterwards."""
        self._world.wake_all = lambda: None
        if self._exit_watcher is not None:
            self._exit_watcher.stop()
        if self._bell is not None:
            self._bell.close()

    def process(self, address: int) -> Process | None:
        return self._processes[self._ranks[address]]

    def reaches(self, address: int) -> bool:
        return self._ranks[address] in self._announce

    def bell(self, address: int) -> Callable[[], None]:
        if self._bell is not None:
            return self._bell.own_ringer(address)
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
        backoff = Backoff()
        # A large message moves only while both ends make MPI calls, and the other end may be sending one too.
        while not request.Test():
            self.poll(arrivals)
            backoff.pause()

    def wait(self, arrivals: Inbox, seconds: float | None = None) -> None:
        if self._all_ring:
            assert self._bell is not None
            self._handle(self._rings() if seconds is None else self._bell.poll(seconds), arrivals)
            return
        backoff = Backoff()
        end = math.inf if seconds is None else time.monotonic() + seconds
        while not self._look(arrivals) and time.monotonic() < end:
            if self._bell is None or not backoff.patient:
                backoff.pause()
            elif self._handle(self._bell.poll(backoff.next_pause()), arrivals):
                return

    def _rings(self) -> Sequence[int] | memoryview:
        """The next rings. Where the next process cannot be watched, MPI is polled too, which reports its death."""
        assert self._bell is not None
        if not self._world.tolerant or self._exit_watcher is not None:
            return self._bell.wait()
        while not len(rings := self._bell.poll(_LISTEN_SECONDS)):
            self._comm.Iprobe()
            if self._comm.Is_revoked():
                raise PeerLost("a process has died")
        return rings

    def poll(self, arrivals: Inbox) -> None:
        if self._bell is not None:
            self._handle(self._bell.poll(), arrivals)
        if not self._all_ring:
            self._look(arrivals)

    def _handle(self, rings: Iterable[int], arrivals: Inbox) -> bool:
        """Handles rings; returns whether there were any."""
        found = False
        for ring in rings:
            found = True
            if ring >= 0:
                arrivals.wake(ring)
            elif ring == LOST:
                raise PeerLost("a process of this node has died")
            else:
                rank = message_from(ring)
                self._owed[rank] += 1  # 0 afterwards if the message was found by `_look` before its ring
                backoff = Backoff()
                while self._owed[rank] > 0 and not self._take_message(rank, arrivals):
                    backoff.pause()
        return found

    def _look(self, arrivals: Inbox) -> bool:
        """Takes all messages that MPI has, and rings of this process's own threads; returns whether there were any."""
        found = False
        while self._rung:
            arrivals.wake(self._rung.popleft())
            found = True
        while self._take_message(MPI.ANY_SOURCE, arrivals):
            found = True
        for channel, request in list(self.receives.items()):
            if request.Test():
                del self.receives[channel]
                arrivals.wake(channel[0])
                found = True
        return found

    def _take_message(self, rank: int, arrivals: Inbox) -> bool:
        status = MPI.Status()
        matched = self._comm.Improbe(rank, _MESSAGE, status)
        if matched is None:
            return False
        message = bytearray(status.Get_count(MPI.BYTE))
        wait_until(matched.Irecv([message, MPI.BYTE]).Test)
        if status.Get_source() in self._announce:
            self._owed[status.Get_source()] -= 1
        to, tag, source = _ENVELOPE.unpack_from(message)
        arrivals.deliver(to, Tag(tag), source, memoryview(message)[_ENVELOPE.size :])
        return True

    def link(
        self, endpoint: Endpoint, peer: int, side: Side, part: int, outbox: NDArray[np.uint8], inbox: NDArray[np.uint8]
    ) -> Link:
        self._all_ring = False  # messages of this link are not announced by a ring
        return MpiLink(self._comm, self.receives, endpoint, peer, self._ranks[peer], side, part, outbox, inbox)


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
        _, back, self._out_extra, self._back_extra = link_tags(side, part)
        worker = peer if side is Side.ENVIRONMENT else endpoint.address  # a worker has links with one environment only
        self._tag = _FIRST_LINK_TAG + PARTS * worker + part
        self._receive = comm.Recv_init([self.inbox, MPI.BYTE], source=rank, tag=self._tag)
        self._awaited = (endpoint.address, back, peer)
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
        self._sending = self._comm.Isend([self.outbox, nbytes, MPI.BYTE], dest=self._rank, tag=self._tag)

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
        self._receive.Free()


def _exchange_processes(communicator: MPI.Comm, *, bells: bool) -> tuple[list[Process | None], Doorbell | None]:
    """The processes of all ranks, and this one's doorbell if connected to all others of its node. A collective."""
    bell = _make_bell() if bells else None
    gathered = communicator.allgather((_this_process(), bell.address if bell is not None else None))
    addresses = [address for _, address in gathered]
    if bells:
        bell = _connect_neighbors(bell, addresses, communicator)
    return [process for process, _ in gathered], bell


def _this_process() -> Process | None:
    try:
        return this_process(doorbell.this_node())
    except OSError:
        return None


def _make_bell() -> Doorbell | None:
    try:
        return Doorbell()
    except OSError as error:
        _log.warning("no doorbell (%s): messages are polled for", error)
        return None


def _connect_neighbors(
    bell: Doorbell | None, addresses: Sequence[BellAddress | None], communicator: MPI.Comm
) -> Doorbell | None:
    """Opens the doorbells of all processes of this node; None if one cannot be opened. A collective."""
    opened = bell is not None and _connect_all(bell, addresses, communicator.Get_rank())
    outcomes = communicator.allgather((addresses[communicator.Get_rank()], opened))
    # If one process of a node has no doorbells, none of them may ring, or it would miss their messages.
    node = bell.address.node if bell is not None else ""
    agreed = all(ok for address, ok in outcomes if address is not None and address.node == node)
    if bell is not None and not (opened and agreed):
        bell.close()
        return None
    return bell


def _connect_all(bell: Doorbell, addresses: Sequence[BellAddress | None], own: int) -> bool:
    try:
        for rank, address in enumerate(addresses):
            if rank != own and address is not None and address.node == bell.address.node:
                bell.connect(rank, address)
    except OSError as error:
        _log.warning("the doorbell of a process of this node cannot be opened (%s): messages are polled for", error)
        return False
    return True


def world() -> MPI.Intracomm:
    """`MPI.COMM_WORLD`; starts MPI."""
    return MPI.COMM_WORLD
