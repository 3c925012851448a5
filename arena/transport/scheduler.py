"""Schedules the roles of one process: which role runs, which wait, and the messages that have come for them.

Every role is a greenlet of one thread: a stack of its own, which runs until it waits for something that has not come
yet. Then the role that became ready first runs. So the order of events in a process is deterministic, two roles never
touch global state at once, and one thread at a time calls MPI. A switch takes 2 us with all that belongs to it; between
threads 7 us if the process has the core for itself, and up to 70 us if not. What belongs to a thread is kept for each
role if `thread_state` knows it, and shared otherwise; `dedicated_thread` is for roles that need more. A single role is
no greenlet.

When no role is ready, the process waits for other processes. If there are none (all roles are in this one), that is a
deadlock; it is reported at once, with what each role waits for.

Orders are handled at delivery, in any role's turn: the status of all roles is reported without waking one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic, process_time, thread_time
from types import FrameType
from typing import Any, NamedTuple

from greenlet import getcurrent, greenlet

from arena.diagnostics.remote_stacks import Process, as_role, peek
from arena.diagnostics.stacks import stack_of
from arena.errors import Deadlock, PeerLost, RunStopped
from arena.transport import status, thread_state
from arena.transport.dedicated_thread import DedicatedThread
from arena.transport.endpoint import (
    ANY_SOURCE,
    Bytes,
    Channel,
    Endpoint,
    Link,
    LinkSet,
    LinkSize,
    Order,
    OrderHandler,
    RemoteTransport,
    Tag,
)
from arena.transport.links import LinkMemory
from arena.transport.pickling import pack, unpack
from arena.transport.status import RoleStatus, State, StatusQuery, StatusReply

# Roles that keep each other busy must not delay messages and status queries from other processes.
_POLL_EVERY = 16  # turns
_POLL_SECONDS = 0.02

_MEETING_TURNS = 4  # per role of the process: so long a meeting waits for other roles while any can run


@dataclass
class _Task:
    name: str
    greenlet: greenlet
    thread: int = 0  # the identifier of its own thread; 0: it has none
    ended: bool = False
    cpu: float = 0.0  # seconds, if they are measured


class _Wait(NamedTuple):
    """What a role waits for, and since when; see `Endpoint.sleep`."""

    awaited: Channel
    since: float
    awaited_role: Callable[[], int] | None


@dataclass
class _Meeting:
    """Roles that one of them, the first, acts for; see `Endpoint.together`."""

    until: int  # the turn after which it begins although other roles are ready
    parts: dict[int, Any]  # by address
    begun: bool = False
    done: bool = False


class RoleScheduler:
    """Runs one function per role to its end; `remote` is the transport to other processes, if there are any.

    Attributes:
        mail: messages that were not received yet, by mailbox.
        tallies: by address, a function that returns counts of the role's calls.
        turns: number of turns, and of `listen` calls.
    """

    def __init__(
        self, names: Mapping[int, str], remote: RemoteTransport | None = None, *, size: int | None = None
    ) -> None:
        self.size = len(names) if size is None else size
        self._tasks = {address: _Task(name, greenlet()) for address, name in names.items()}
        self.remote = remote
        self._ready: deque[_Task] = deque()
        self._alone = len(names) == 1  # then it waits without taking turns
        self.mail: defaultdict[Channel, deque[tuple[int, Bytes]]] = defaultdict(deque)
        self._asleep: dict[int, _Wait] = {}  # by address
        self._lone_wait: _Wait | None = None  # of the only role of a process
        self._has_arrivals = False  # whether anything except orders has come since that role fell asleep
        self._alarms: dict[int, float] = {}  # address -> when to wake it
        self._meetings: dict[Hashable, _Meeting] = {}  # of roles that go on together when no other role can run
        self._meeting_of: dict[int, _Meeting] = {}  # by address
        self._rung: set[int] = set()  # addresses whose bell has been rung since they were last woken
        self._bell = threading.Event()  # without other processes, set when a bell is rung
        # By address and order.
        self._orders: dict[tuple[int, int], OrderHandler] = {(ANY_SOURCE, Order.QUERY_STATUS): self._answer}
        self.tallies: dict[int, Callable[[], Mapping[str, int]]] = {}
        self._last_poll = 0.0  # when other processes were last polled
        self.turns = 0
        self._all_wait = False
        self.link_memory = LinkMemory(self.hosts, remote)
        self._failure: BaseException | None = None
        self._stopping = False
        self._unfinished = len(names)
        self._thread = 0  # the thread that runs the roles
        self._left = thread_state.NEW  # the thread's state as the role that ran last has left it
        self._measures = False  # whether CPU time is measured
        self._measured = 0.0  # CPU seconds of the thread up to the last switch

    def run(self, mains: Mapping[int, Callable[[RoleEndpoint], None]]) -> None:
        """Runs `mains[address]` as the role at that address; returns when all have ended, raises the first failure."""
        if not mains:
            return
        self._thread = threading.get_ident()
        if len(mains) == 1:
            ((address, main),) = mains.items()
            task = self._tasks[address]
            task.thread = self._thread
            try:
                as_role(address, main)(RoleEndpoint(self, address))
            except RunStopped as error:
                if self._failure is None or isinstance(error, PeerLost):
                    raise
                raise self._failure from None
            finally:
                task.ended = True
            return
        for address, main in mains.items():
            # Each begins here, not in the wait of the role before it, whose depth of recursion it would inherit.
            self._tasks[address].greenlet = greenlet(partial(self._main, address, as_role(address, main)))
            self._tasks[address].greenlet.switch(getcurrent())
        task, *others = self._tasks.values()
        self._ready.extend(others)
        with thread_state.kept():
            while self._unfinished:
                try:
                    task.greenlet.switch()  # returns when a role, this or another one, has ended
                    if self._unfinished:
                        task = self._next()
                except BaseException as error:  # the remote transport has failed, or a signal ends the run
                    self._stop(error)
                    task = self._next()
        if self._failure is not None:
            raise self._failure

    def _main(self, address: int, main: Callable[[RoleEndpoint], None], begin: greenlet) -> None:
        try:
            begin.switch()
            if not self._stopping:
                thread_state.apply(thread_state.NEW, thread_state.read())
                main(RoleEndpoint(self, address))
        except PeerLost as error:
            self._stop(error)
        except RunStopped:
            pass  # the reason is in `_failure`
        except BaseException as error:
            self._stop(error)
        finally:
            self._tasks[address].ended = True
            self._unfinished -= 1
            self._measure(address)
            self._left = thread_state.read()

    def _stop(self, reason: BaseException) -> None:
        """Makes every role end: it is resumed once, and raises `RunStopped` at each call."""
        if self._failure is None:
            self._failure = reason
        self._stopping = True
        self._asleep.clear()
        self._ready = deque(task for task in self._tasks.values() if not task.ended)

    def _next(self) -> _Task:
        self.turns += 1
        if self._stopping:  # only to end; polling a failed transport would fail again
            while (task := self._ready.popleft()).ended:
                pass  # it has failed itself
            return task
        if self.turns % _POLL_EVERY == 0 or monotonic() - self._last_poll > _POLL_SECONDS:
            if self.remote is not None:
                self.remote.poll(self)
            self._last_poll = monotonic()
            self._wake_by_bell_or_alarm()
        while True:
            meeting = next(iter(self._meetings.values()), None)
            if meeting is not None and not self._ready and self.remote is not None:
                self.remote.poll(self)  # with their messages, other roles may come to a meeting
                if self._stopping:
                    return self._next()
            if meeting is not None and (not self._ready or self.turns > meeting.until):
                del self._meetings[next(iter(self._meetings))]
                return self._tasks[next(iter(meeting.parts))]
            if self._ready:
                return self._ready.popleft()
            seconds = max(0.0, min(self._alarms.values()) - monotonic()) if self._alarms else None
            self._all_wait = True
            if self.remote is not None:
                self.remote.wait(self, seconds)
            elif any(wait.awaited[1] is Tag.GAMES for wait in self._asleep.values()):
                self._bell.wait(seconds)
                self._bell.clear()
            else:
                roles = self.statuses(stacks=True)
                circle = status.find_circle(roles)
                others = [role for role in roles if role.state is State.WAITS and role not in circle]
                how_many = f", {len(circle)} of them in a circle" if circle else ""
                report = status.report(circle, others, lambda address: self._tasks[address].name)
                self._stop(Deadlock(f"every role waits for another one{how_many}:\n{report}"))
            self._all_wait = False
            if self._stopping:
                return self._next()
            self._wake_by_bell_or_alarm()

    def _wake_by_bell_or_alarm(self) -> None:
        due = {address for address, time in self._alarms.items() if monotonic() >= time} if self._alarms else set()
        for address in sorted(due | self._rung) if due or self._rung else ():
            self.wake(address)

    @property
    def idle(self) -> bool:
        """Whether every role of this process waits for other processes, or for external games."""
        return self._all_wait or self._lone_wait is not None

    def statuses(self, *, stacks: bool = False) -> tuple[RoleStatus, ...]:
        """What each role does, on request with its stack. May be called from any thread."""
        frames = sys._current_frames() if stacks else {}
        ready = {id(one) for one in tuple(self._ready)}  # a copy: other threads change it meanwhile
        found = []
        for address, task in self._tasks.items():
            wait = self._lone_wait if self._alone else self._asleep.get(address)
            meeting = self._meeting_of.get(address)
            if wait is None and meeting is not None:  # it waits if any of its meeting does
                wait = next(filter(None, map(self._asleep.get, tuple(meeting.parts))), None)
            stack = stack_of(self._frame(task, frames)) if stacks and not task.ended else ()
            if task.ended:
                found.append(RoleStatus(address, State.ENDED))
            elif wait is not None:
                receiver, tag, sender = wait.awaited
                channel = receiver, tag, sender if wait.awaited_role is None else wait.awaited_role()
                found.append(RoleStatus(address, State.WAITS, channel, monotonic() - wait.since, stack))
            else:
                meets = meeting is not None and not meeting.begun
                state = State.READY if meets or id(task) in ready else State.RUNS
                found.append(RoleStatus(address, state, stack=stack))
        return tuple(found)

    def _frame(self, task: _Task, frames: Mapping[int, FrameType]) -> FrameType | None:
        """The innermost frame of a role, given those of all threads; None: it has not started."""
        if task.thread:
            return frames.get(task.thread)
        return task.greenlet.gr_frame or (frames.get(self._thread) if task.greenlet else None)

    def in_dedicated_thread(self, address: int, body: Callable[[RoleEndpoint], object]) -> None:
        """See `Endpoint.in_dedicated_thread`."""
        task, endpoint = self._tasks[address], RoleEndpoint(self, address)

        def begin() -> None:
            task.thread = threading.get_ident()
            body(endpoint)

        dedicated = DedicatedThread(as_role(address, begin), self.sleep)
        endpoint.sleep, endpoint.cpu_time = dedicated.sleep, thread_time
        try:
            dedicated.run()
        finally:
            task.thread = 0

    def _measure(self, address: int) -> None:
        """Adds the CPU time since the last switch to the role that has run since then."""
        if self._measures:
            now = thread_time()
            self._tasks[address].cpu += now - self._measured
            self._measured = now

    def cpu_time(self, address: int) -> float:
        """CPU seconds of the role that calls, since some moment: of its process if it is alone there."""
        if self._alone:
            return process_time()
        self._measures = True
        self._measure(address)
        return self._tasks[address].cpu

    def _answer(self, source: int, data: Bytes) -> None:
        """Answers an order QUERY_STATUS."""
        question: StatusQuery = unpack(data)
        peeked = tuple(peek(process) for process in question.peek)
        calls = {address: tuple(count().items()) for address, count in self.tallies.items()}
        roles = self.statuses(stacks=question.stacks)
        counted = tuple(role._replace(calls=calls.get(role.address, ())) for role in roles)
        answer = StatusReply(question, counted, peeked)
        self.send(source, Tag.ORDER, next(iter(self._tasks)), bytes([Order.STATUS]) + pack(answer))

    def on_order(self, order: Order, do: OrderHandler, address: int = ANY_SOURCE) -> None:
        """Calls `do` when this order comes for the role at an address, or for any role of this process."""
        self._orders[address, order] = do

    @property
    def addresses(self) -> Sequence[int]:
        """The addresses of the roles of this process."""
        return tuple(self._tasks)

    def hosts(self, address: int) -> bool:
        return address in self._tasks

    def send(self, to: int, tag: Tag, source: int, data: Bytes) -> None:
        """Sends a message to a role of any process; `data` may be reused when this returns."""
        if self._stopping:
            raise RunStopped
        if to in self._tasks:
            self.deliver(to, tag, source, bytes(data))
        else:
            assert self.remote is not None, f"there is no role at address {to}"
            self.remote.send(to, tag, source, data, self)

    def deliver(self, to: int, tag: Tag, source: int, data: Bytes) -> None:
        """Puts a message into its mailbox and makes its receiver ready if it waits for it; handles an order."""
        if tag is Tag.ORDER:
            do = self._orders.get((to, data[0])) or self._orders[ANY_SOURCE, data[0]]
            do(source, data[1:])
            return
        self._has_arrivals = True
        channel = (to, tag, ANY_SOURCE if tag is Tag.TO_ROOT else source)
        self.mail[channel].append((source, data))
        wait = self._asleep.get(to)
        if wait is not None and wait.awaited == channel:
            self.wake(to)

    def wake(self, address: int) -> None:
        """Makes a sleeping role ready; a running role checks by itself before it sleeps."""
        self._has_arrivals = True
        self._rung.discard(address)
        self._alarms.pop(address, None)
        if self._asleep.pop(address, None) is not None:
            self._ready.append(self._tasks[address])

    def bell(self, address: int) -> Callable[[], None]:
        """See `Endpoint.bell`."""
        wake_process = self._bell.set if self.remote is None else self.remote.bell(address)

        def ring() -> None:
            if address not in self._rung:  # otherwise an earlier ring has woken the process, which has not looked yet
                self._rung.add(address)
                wake_process()

        return ring

    def sleep(
        self, awaited: Channel, seconds: float | None = None, *, awaited_role: Callable[[], int] | None = None
    ) -> None:
        """See `Endpoint.sleep`; other roles run meanwhile."""
        if self._stopping:
            raise RunStopped
        if self._alone and self.remote is not None:
            self._has_arrivals = False
            self._lone_wait = _Wait(awaited, monotonic(), awaited_role)
            self.remote.wait(self, seconds)
            while not self._has_arrivals and seconds is None:  # an order does not end a wait
                self.remote.wait(self)
            self._lone_wait = None
            return
        address = awaited[0]
        self._asleep[address] = _Wait(awaited, monotonic(), awaited_role)
        if seconds is not None:
            self._alarms[address] = monotonic() + seconds
        self._switch(address)

    def _switch(self, address: int) -> None:
        """Gives way to the next role; returns when the role that calls is resumed."""
        other = self._next()
        if other is not self._tasks[address]:
            self._measure(address)
            state = self._left = thread_state.read()
            other.greenlet.switch()
            if self._left != state:
                thread_state.apply(state, self._left)
        if self._stopping:
            raise RunStopped

    def together(self, address: int, key: Hashable, part: Any, work: Callable[[list[Any]], None]) -> None:
        """See `Endpoint.together`.

        Until `work` has ended, the greenlet of the first role stands for all: messages for any of them resume it.
        """
        if self._alone or self._tasks[address].thread:
            work([part])
            return
        if self._stopping:
            raise RunStopped
        until = self.turns + _MEETING_TURNS * len(self._tasks)
        meeting = self._meeting_of[address] = self._meetings.setdefault(key, _Meeting(until, {}))
        meeting.parts[address] = part
        try:
            self._switch(address)
            if meeting.done:
                return
            if meeting.begun:
                raise RunStopped  # the role that acts for all has failed, and reports it
            meeting.begun = True
            tasks = [self._tasks[other] for other in meeting.parts]
            greenlets = [task.greenlet for task in tasks]
            for task in tasks:
                task.greenlet = greenlets[0]
            try:
                work(list(meeting.parts.values()))
                meeting.done = True
            finally:
                for task, own in zip(tasks, greenlets, strict=True):
                    task.greenlet = own
                self._ready.extend(tasks[1:])
        finally:
            del self._meeting_of[address]


class RoleEndpoint:
    """The `Endpoint` of one role of this process."""

    def __init__(self, scheduler: RoleScheduler, address: int) -> None:
        self._scheduler = scheduler
        self.address = address
        self.size = scheduler.size
        self.sleep = scheduler.sleep
        self.cpu_time: Callable[[], float] = partial(scheduler.cpu_time, address)

    def send(self, to: int, tag: Tag, data: Bytes) -> None:
        self._scheduler.send(to, tag, self.address, data)

    def receive(self, source: int, tag: Tag) -> tuple[int, Bytes]:
        channel = self.address, tag, source
        mail = self._scheduler.mail[channel]
        while not mail:
            self.sleep(channel)
        return mail.popleft()

    def listen(self, source: int, tag: Tag, seconds: float) -> tuple[int, Bytes] | None:
        self._scheduler.turns += 1
        channel = self.address, tag, source
        mail, end = self._scheduler.mail[channel], monotonic() + seconds
        while not mail:
            self.sleep(channel, max(0.0, end - monotonic()))
            if not mail and monotonic() >= end:
                return None
        return mail.popleft()

    def order(self, to: int, order: Order, data: Bytes) -> None:
        self._scheduler.send(to, Tag.ORDER, self.address, bytes([order]) + bytes(data))

    def on_order(self, order: Order, do: OrderHandler) -> None:
        self._scheduler.on_order(order, do, self.address)

    def in_dedicated_thread(self, body: Callable[[Endpoint], object]) -> None:
        self._scheduler.in_dedicated_thread(self.address, body)

    def together(self, key: Hashable, part: Any, work: Callable[[list[Any]], None]) -> None:
        self._scheduler.together(self.address, key, part, work)

    def tally(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._scheduler.tallies[self.address] = count

    def is_peer_failure(self, error: BaseException) -> bool:
        remote = self._scheduler.remote
        return remote is not None and remote.is_peer_failure(error)

    def process(self, address: int) -> Process | None:
        remote = self._scheduler.remote
        return Process("", os.getpid(), -1) if remote is None else remote.process(address)

    def bell(self) -> Callable[[], None]:
        return self._scheduler.bell(self.address)

    def waker(self, peer: int) -> Callable[[], None] | None:
        remote = self._scheduler.remote
        if self._scheduler.hosts(peer):
            return partial(self._scheduler.wake, peer)
        return remote.waker(peer) if remote is not None and remote.reaches(peer) else None

    def open_links(self, seats: Sequence[int], sizes: Sequence[LinkSize], part: int = 0) -> LinkSet:
        return self._scheduler.link_memory.open_links(self, seats, sizes, part)

    def link(self, environment: int, size: LinkSize, part: int = 0) -> Link:
        return self._scheduler.link_memory.open_seat_link(self, environment, size, part)
