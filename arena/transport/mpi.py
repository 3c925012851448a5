"""The way to other processes over MPI. The only module that knows mpi4py.

Letters travel as MPI messages with an envelope in front. Links are persistent MPI requests on fixed buffers where the
two ends see no common memory (see `tables`). On a node a doorbell says that something has come, so that a waiting
process sleeps; where some process can't be reached by a bell (another node, or no bells on this system), MPI is polled
with growing pauses.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import struct
import sys
import time
from collections import Counter
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
from arena.transport.doorbell import LOST, BellAddress, Doorbell, letter_from
from arena.transport.endpoint import PARTS, Bytes, Channel, Endpoint, Inbox, Link, Side, Tag, link_tags
from arena.transport.process_exit import Sentinel, can_watch

_ENVELOPE = struct.Struct("<iii4x")  # to, tag, from; 16 bytes keep what follows aligned
_LETTER = 1  # MPI tag of letters; a link's messages have tags of their own
_FIRST_LINK_TAG = 1000
_LAST_PAUSE = 0.05  # seconds between two looks whether all others are done as well
_FAREWELL_SECONDS = 2.0  # until those who do not agree to the end are taken for deaf
_YES, _GO_ON = 1, 2
_LISTEN_SECONDS = 0.5  # for which who sleeps at its bell hears nothing of MPI
_SUSPENSE = 0.2  # seconds until a death is known
_DEATHS = {MPI.ERR_PROC_FAILED, MPI.ERR_PROC_FAILED_PENDING, MPI.ERR_REVOKED}
_FAULT_TOLERANCE = "OMPI_MCA_mpi_ft_enable"  # what `mpirun --with-ft ulfm` sets
_PENDING: list[NDArray[np.intc]] = []  # what MPI may write into although nobody waits for it any more
_log = logging.getLogger(__name__)


class World:
    """The processes of a run, as far as they live.

    With fault tolerance (the ULFM of MPI 5, as Open MPI has it) the others go on when some die: calls raise errors of
    `is_peer_failure`, everybody `revoke`s what is going on, `agree`s, and takes up the run again with the team of
    `survivors`. As nobody ends when another one does, an end for all has to be agreed on as well.

    Args:
        communicator: of all processes. Letters go over a `private` one, so that no user's is ever mistaken for ours.
        tolerant: whether it survives the death of a process.
    """

    def __init__(self, communicator: MPI.Comm, *, tolerant: bool) -> None:
        self.comm = communicator
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        self.tolerant = tolerant
        self._others: list[MPI.Comm] = []  # which go when the team goes
        self.neighbors: dict[int, int] = {}  # rank -> process, of this node's others
        self.patience = math.inf  # seconds in which those who live are to hear of a death
        self.cry: Callable[[], None] = lambda: None  # wakes those that sleep at their doorbells

    @property
    def is_first(self) -> bool:
        """Whether no process of this node that still lives has a lower rank."""
        return all(rank > self.rank or _has_gone(pid) for rank, pid in self.neighbors.items())

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error only says that a process of the team has died."""
        if isinstance(error, PeerLost):
            return True
        if not self.tolerant:
            return False
        if isinstance(error, MPI.Exception) and error.Get_error_class() in _DEATHS:
            return True
        if isinstance(error, OSError):  # as when something of a process is opened that has just gone
            time.sleep(_SUSPENSE)
        try:
            self.comm.Iprobe()  # lets MPI look
        except MPI.Exception:
            return True
        return bool(self.comm.Is_revoked())

    def wait_for_all(self) -> None:
        """Returns when everybody has called it."""
        wait_until(self.comm.Ibarrier().Test, longest_pause=_LAST_PAUSE)

    def agree(self, flag: bool) -> bool:
        """Whether all who live say yes; the same answer everywhere, whoever dies meanwhile. A collective.

        Where somebody has called `abort`, this process ends.

        Raises:
            Vanished: a process of this node has ended by itself. MPI takes no notice of that, and would wait for it.
            ArenaError: somebody has died, and somebody else has not heard of it in time.
        """
        if not self.tolerant:
            return bool(self.comm.allreduce(flag, MPI.LAND))
        try:
            agreed = self._agree(_GO_ON | (_YES if flag else 0), seconds=math.inf if flag else self.patience)
        except TimeoutError as error:
            words = f"a process has died, and another one has not come back from a call for {self.patience:g} s"
            raise ArenaError(words) from error
        if not agreed & _GO_ON:
            _end_process(0)  # the one who has called it has the exit status
        return bool(agreed & _YES)

    def _agree(self, word: int, *, seconds: float = math.inf) -> int:
        """The bits that are in everybody's word.

        Raises:
            TimeoutError: somebody has said nothing for so long.
            Vanished: as `agree`.
        """
        begun, missed_since = time.monotonic(), math.inf
        while True:
            self.comm.Ack_failed()
            agreed = np.array([word], np.intc)
            try:
                request, backoff = self.comm.Iagree(agreed), Backoff(longest_pause=_LAST_PAUSE)
                while not request.Test():
                    now = time.monotonic()
                    missed_since = min(missed_since, now) if self._vanished() else math.inf
                    if now > missed_since + _FAREWELL_SECONDS:
                        gone = self._vanished()
                        words = f"rank {', '.join(map(str, gone))} has ended without a word, by an exit of its own"
                        raise ProcessExited(words, gone)
                    if now > begun + seconds:
                        _PENDING.append(agreed)  # MPI may still write into it
                        raise TimeoutError
                    backoff.pause()
                return int(agreed[0])
            except MPI.Exception as error:  # one has died that we have not known of: the same error everywhere
                if error.Get_error_class() not in _DEATHS:
                    raise

    def _vanished(self) -> list[int]:
        """The ranks of this node whose processes have ended, though MPI does not take them for dead."""
        gone = [rank for rank, pid in self.neighbors.items() if _has_gone(pid)]
        if not gone:
            return []
        dead = self.comm.Get_failed()
        known = set(dead.Translate_ranks(list(range(dead.Get_size())), self.comm.Get_group()))
        return [rank for rank in gone if rank not in known]

    def revoke(self) -> None:
        """Lets everybody out of whatever waits for somebody of the team."""
        for communicator in (self.comm, *self._others):
            if not communicator.Is_revoked():
                communicator.Revoke()
        self.cry()

    def abort(self, status: int) -> NoReturn:
        """Ends all processes; who does not hear of it, because it hangs, is killed."""
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
        os.kill(os.getppid(), signal.SIGTERM)  # the launcher: somebody hangs on another node
        _end_process(status)

    def survivors(self) -> World:
        """The team of all who live, in the order of their ranks. A collective of these."""
        return self._over(self.comm.Shrink())

    def private(self) -> World:
        """The same processes over a communicator of their own. A collective.

        Raises:
            PeerLost: somebody has died meanwhile; everybody hears of it.
        """
        communicator = None
        try:
            communicator = self.comm.Dup()
        except MPI.Exception as error:
            if not self.is_peer_failure(error):
                raise
        if self.tolerant and not self.agree(communicator is not None):
            raise PeerLost("a process has died while all joined")
        assert communicator is not None
        return self._over(communicator)

    def in_order(self, place: int) -> World:
        """The same team in another order: each says its place. A collective."""
        return self._over(self.comm.Split(0, place))

    def _over(self, communicator: MPI.Comm) -> World:
        """The team of a communicator of some of these processes."""
        team = World(communicator, tolerant=self.tolerant)
        team.patience = self.patience
        old, new = self.comm.Get_group(), communicator.Get_group()
        places = old.Translate_ranks(list(self.neighbors), new)
        pids = self.neighbors.values()
        team.neighbors = {rank: pid for rank, pid in zip(places, pids, strict=True) if rank != MPI.UNDEFINED}
        return team

    def broadcast(self, data: bytes) -> bytes:
        """What rank 0 says. A collective."""
        told: bytes = self.comm.bcast(data, root=0)
        return told

    def gather(self, data: bytes) -> list[bytes]:
        """What everybody says. A collective."""
        told: list[bytes] = self.comm.allgather(data)
        return told

    def split(self, color: int | None) -> MPI.Comm | None:
        """A communicator of all ranks with this color; None for those without one. A collective."""
        part = self.comm.Split(MPI.UNDEFINED if color is None else color, self.rank)
        if part == MPI.COMM_NULL:
            return None
        self._others.append(part)
        return part

    def give_back(self, part: MPI.Comm | None) -> None:
        """Frees what `split` gave, when nobody uses it any more. A collective of its members."""
        if part is not None:
            self._others.remove(part)
            part.Free()


def _end_process(status: int) -> NoReturn:
    """Without taking leave of MPI, which may hang when somebody has died."""
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
    """Whether MPI lets the others go on when a process dies: Open MPI was started with ULFM."""
    return os.environ.get(_FAULT_TOLERANCE) == "1" and hasattr(MPI.Comm, "Shrink")


class MpiTransport:
    """This process's way to all others.

    Args:
        team: all processes.
        ranks: for every address the rank that hosts it.
        shared_memory: whether links and bells of one node may use it (`transport: auto`) or not (`transport: mpi`).
    """

    def __init__(self, team: World, ranks: Sequence[int], *, shared_memory: bool) -> None:
        self._team = team
        communicator = team.comm
        self._comm = communicator
        self._rank = communicator.Get_rank()
        self._ranks = ranks
        self._processes, self._bell = _meet_others(communicator, bells=shared_memory)
        neighbors = self._bell.neighbors if self._bell is not None else ()
        own = self._processes[self._rank]
        team.neighbors = {
            rank: process.pid
            for rank, process in enumerate(self._processes)
            if process is not None and own is not None and process != own and process.node == own.node
        }
        if self._bell is not None:
            team.cry = self._bell.cry
        self._all_ring = len(neighbors) == communicator.Get_size() - 1
        self._announce = {rank: self._ringer(rank, letter_from(self._rank)) for rank in neighbors}
        self._owed: Counter[int] = Counter()  # rank -> letters that its rings have announced and MPI has not given yet
        self.receives: dict[Channel, MPI.Prequest] = {}  # posted, of links over MPI
        self._sentinel = self._watch_next() if team.tolerant else None

    def _watch_next(self) -> Sentinel | None:
        """Watches the next process of this node that has a bell, and rings for everybody when it dies."""
        near = [rank for rank in (*self._announce, self._rank) if self._processes[rank] is not None]
        next_one = min(near, key=lambda rank: (rank <= self._rank, rank), default=self._rank)
        process = self._processes[next_one]
        if next_one == self._rank or process is None or not can_watch():
            return None
        assert self._bell is not None
        try:
            return Sentinel(process.pid, self._bell.cry)
        except OSError as error:
            self._bell.cry()  # it has just died, and nobody else watches it
            raise PeerLost(f"rank {next_one} cannot be watched: {error}") from error

    def is_peer_failure(self, error: BaseException) -> bool:
        return self._team.is_peer_failure(error)

    def close(self) -> None:
        """Gives back what was opened; nobody may use this any more."""
        self._team.cry = lambda: None
        if self._sentinel is not None:
            self._sentinel.dismiss()
        if self._bell is not None:
            self._bell.close()

    def process(self, address: int) -> Process | None:
        return self._processes[self._ranks[address]]

    def reaches(self, address: int) -> bool:
        return self._ranks[address] in self._announce

    def waker(self, address: int) -> Callable[[], None]:
        return self._ringer(self._ranks[address], address)

    def _ringer(self, rank: int, word: int) -> Callable[[], None]:
        assert self._bell is not None, "there is no doorbell"
        return self._bell.ringer(rank, word)

    def send(self, to: int, tag: Tag, source: int, data: Bytes, arrivals: Inbox) -> None:
        rank = self._ranks[to]
        letter = bytearray(_ENVELOPE.size + len(data))
        _ENVELOPE.pack_into(letter, 0, to, tag, source)
        letter[_ENVELOPE.size :] = data
        request = self._comm.Isend([letter, MPI.BYTE], dest=rank, tag=_LETTER)
        if rank in self._announce:
            self._announce[rank]()
        backoff = Backoff()
        while not request.Test():  # a large letter moves only while both ends work at it, and so may the other's
            self.poll(arrivals)
            backoff.pause()

    def wait(self, arrivals: Inbox, seconds: float | None = None) -> None:
        if self._all_ring:
            assert self._bell is not None
            self._answer(self._rings() if seconds is None else self._bell.poll(seconds), arrivals)
            return
        backoff = Backoff()
        end = math.inf if seconds is None else time.monotonic() + seconds
        while not self._look(arrivals) and time.monotonic() < end:
            if self._bell is None or not backoff.patient:
                backoff.pause()
            elif self._answer(self._bell.poll(backoff.next_pause()), arrivals):
                return

    def _rings(self) -> Sequence[int] | memoryview:
        """What the bell says. Who sleeps at it must not sleep through a death that others have heard of over MPI."""
        assert self._bell is not None
        if not self._team.tolerant:
            return self._bell.wait()
        while not len(words := self._bell.poll(_LISTEN_SECONDS)):
            self._comm.Iprobe()
            if self._comm.Is_revoked():
                raise PeerLost("a process has died")
        return words

    def poll(self, arrivals: Inbox) -> None:
        if self._bell is not None:
            self._answer(self._bell.poll(), arrivals)
        if not self._all_ring:
            self._look(arrivals)

    def _answer(self, words: Iterable[int], arrivals: Inbox) -> bool:
        """Does what the rings ask for; whether there were any."""
        heard = False
        for word in words:
            heard = True
            if word >= 0:
                arrivals.wake(word)
            elif word == LOST:
                raise PeerLost("a process of this node has died")
            else:
                self._expect_letter(letter_from(word), arrivals)
        return heard

    def _expect_letter(self, rank: int, arrivals: Inbox) -> None:
        self._owed[rank] += 1  # or a look has found the letter before its bell was heard: then nothing is owed
        backoff = Backoff()
        while self._owed[rank] > 0 and not self._take_letter(rank, arrivals):
            backoff.pause()

    def _look(self, arrivals: Inbox) -> bool:
        """Takes what MPI has; whether there was anything."""
        found = False
        while self._take_letter(MPI.ANY_SOURCE, arrivals):
            found = True
        for channel, request in list(self.receives.items()):
            if request.Test():
                del self.receives[channel]
                arrivals.wake(channel[0])
                found = True
        return found

    def _take_letter(self, rank: int, arrivals: Inbox) -> bool:
        status = MPI.Status()
        message = self._comm.Improbe(rank, _LETTER, status)
        if message is None:
            return False
        letter = bytearray(status.Get_count(MPI.BYTE))
        wait_until(message.Irecv([letter, MPI.BYTE]).Test)
        if status.Get_source() in self._announce:
            self._owed[status.Get_source()] -= 1
        to, tag, source = _ENVELOPE.unpack_from(letter)
        arrivals.deliver(to, Tag(tag), source, memoryview(letter)[_ENVELOPE.size :])
        return True

    def link(
        self, endpoint: Endpoint, peer: int, side: Side, part: int, outbox: NDArray[np.uint8], inbox: NDArray[np.uint8]
    ) -> Link:
        self._all_ring = False  # nobody rings for what comes over this link
        return MpiLink(self._comm, self.receives, endpoint, peer, self._ranks[peer], side, part, outbox, inbox)


class MpiLink:
    """Point-to-point on fixed buffers; the receive for the answer is posted before the question is sent."""

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
        worker = peer if side is Side.ENVIRONMENT else endpoint.address  # it has links with one environment alone
        self._tag = _FIRST_LINK_TAG + PARTS * worker + part
        self._receive = comm.Recv_init([self.inbox, MPI.BYTE], source=rank, tag=self._tag)
        self._awaited = (endpoint.address, back, peer)
        self._sending: MPI.Request = MPI.REQUEST_NULL
        self._closed = False
        if side is Side.SEAT:  # the environment speaks first
            self._listen()

    def _listen(self) -> None:
        if self._awaited not in self._receives:
            self._receive.Start()
            self._receives[self._awaited] = self._receive

    def post(self, nbytes: int) -> None:
        self._listen()
        wait_until(self._sending.Test)
        self._sending = self._comm.Isend([self.outbox, nbytes, MPI.BYTE], dest=self._rank, tag=self._tag)

    def wait(self) -> None:
        while self._awaited in self._receives:
            self._endpoint.sleep(self._awaited)
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
        if self._receives.pop(self._awaited, None) is not None:  # no answer comes to the last word
            self._receive.Cancel()
            self._receive.Wait()
        self._receive.Free()


def _meet_others(communicator: MPI.Comm, *, bells: bool) -> tuple[list[Process | None], Doorbell | None]:
    """The processes of all ranks, and this one's bell if those of its node's processes are open. A collective.

    Args:
        communicator: of all ranks.
        bells: whether there are to be any.
    """
    bell = _make_bell() if bells else None
    told = communicator.allgather((_this_process(), bell.address if bell is not None else None))
    addresses = [address for _, address in told]
    if bells:
        bell = _meet_neighbours(bell, addresses, communicator)
    return [process for process, _ in told], bell


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


def _meet_neighbours(
    bell: Doorbell | None, addresses: Sequence[BellAddress | None], communicator: MPI.Comm
) -> Doorbell | None:
    """Opens the bells of all processes of this node; None if this is not possible for each of them. A collective."""
    opened = bell is not None and _open_all(bell, addresses, communicator.Get_rank())
    outcomes = communicator.allgather((addresses[communicator.Get_rank()], opened))
    # One that cannot open a neighbour's bell does without; so must its neighbors, or it would not hear them.
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


def world() -> MPI.Intracomm:
    """`MPI.COMM_WORLD`; starts MPI."""
    return MPI.COMM_WORLD
