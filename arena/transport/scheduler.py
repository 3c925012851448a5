"""The roles that one process hosts: who runs, who waits, and the letters that lie ready.

Every role runs in a thread of its own, but exactly one at a time: a role runs until it waits for something that is
not there yet; then the longest-waiting role that can go on does. So what the roles of a process do is deterministic
whatever the operating system does, global state is never touched by two of them at once, and MPI is spoken by one
thread at a time. A process with a single role runs it in the thread that it has.

When no role of the process can go on, the process waits for news from outside. If there is no outside (all roles are
here), that is a deadlock, reported at once with what each role waits for.

An order is obeyed at delivery, in whatever role's turn that is: what the roles do is told without waking any of them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from arena.diagnostics.remote_stacks import Process, forget_roles, note_role, peek
from arena.diagnostics.stacks import stack_of
from arena.errors import Deadlock, PeerLost, RunStopped
from arena.transport import status
from arena.transport.endpoint import ANYONE, Bytes, Channel, Link, LinkSet, LinkSize, Obey, Order, RemoteTransport, Tag
from arena.transport.status import RoleStatus, State, StatusQuery, StatusReply
from arena.transport.tables import LinkMemory

# Roles that keep each other busy must not keep letters from outside waiting, nor the question whether they live.
_LOOK_OUTSIDE_EVERY = 16  # turns
_LOOK_OUTSIDE_SECONDS = 0.02
# A signal that comes in the instant before the main thread falls asleep is noted, but does not interrupt that sleep.
_LOOK_FOR_SIGNALS_SECONDS = 0.25


@dataclass
class _Task:
    name: str
    gate: threading.Lock = field(default_factory=threading.Lock)
    thread: int = 0  # its number; 0 before it has begun
    ended: bool = False

    def begin(self, address: int) -> None:
        """Called in the thread of the role."""
        self.thread = threading.get_ident()
        note_role(address)

    def __post_init__(self) -> None:
        self.gate.acquire()


class RoleScheduler:
    """Runs one function per role to its end.

    Args:
        names: of the roles that are hosted here, by address.
        outside: the way to roles of other processes; None when all are here.
        size: how many addresses there are in the world; None: as many as names.
    """

    def __init__(
        self, names: Mapping[int, str], outside: RemoteTransport | None = None, *, size: int | None = None
    ) -> None:
        self.size = len(names) if size is None else size
        self._tasks = {address: _Task(name) for address, name in names.items()}
        self._outside = outside
        self._ready: deque[_Task] = deque()
        self._alone = len(names) == 1  # the only role of its process waits by itself, in nobody's turn
        self._mail: defaultdict[Channel, deque[tuple[int, Bytes]]] = defaultdict(deque)
        self._asleep: dict[int, tuple[Channel, float]] = {}  # address -> what the role waits for, since when
        self._nap: tuple[Channel, float] | None = None  # the same of the only role of a process
        self._news = False  # whether anything but orders has come since that role fell asleep
        self._alarm: tuple[float, int] | None = None  # when to wake whom
        self._orders: dict[tuple[int, int], Obey] = {(ANYONE, Order.WHERE): self._answer}  # to whom, which
        self._tallies: dict[int, Callable[[], Mapping[str, int]]] = {}  # address -> how often the role has done what
        self._looked = 0.0  # outside, the last time
        self.turns = 0  # how often another role has had its turn, or the root has listened
        self._awaits_news = False  # whether all roles of this process wait for news from outside
        self.tables = LinkMemory(self, outside)
        self._failure: BaseException | None = None
        self._stopping = False
        self._unfinished = len(names)
        # A lock and no `Event`: between its interruption and the next line Python never lets go of its own lock, which
        # the main thread may not get back for long from roles that hand it to each other.
        self._all_done = threading.Lock()
        self._all_done.acquire()

    def run(self, mains: Mapping[int, Callable[[RoleEndpoint], None]]) -> None:
        """Runs `mains[address]` as the role at that address; returns when all have ended, raises the first failure."""
        forget_roles()
        if len(mains) == 1:
            ((address, main),) = mains.items()
            self._run_here(address, main)
            return
        threads = [
            threading.Thread(target=self._main, args=(address, main), name=self._tasks[address].name, daemon=True)
            for address, main in mains.items()
        ]
        for thread in threads:
            thread.start()
        first, *others = self._tasks.values()
        self._ready.extend(others)
        first.gate.release()
        try:
            while not self._all_done.acquire(timeout=_LOOK_FOR_SIGNALS_SECONDS):
                pass
        except BaseException:
            self._stopping = True  # every role ends at its next word; threads are daemons should one be deaf
            self._all_done.acquire(timeout=2.0)
            raise
        if self._failure is not None:
            raise self._failure

    def _run_here(self, address: int, main: Callable[[RoleEndpoint], None]) -> None:
        self._tasks[address].begin(address)
        try:
            main(RoleEndpoint(self, address))
        except RunStopped as error:
            if self._failure is None or isinstance(error, PeerLost):
                raise
            raise self._failure from None
        finally:
            self._tasks[address].ended = True

    def _main(self, address: int, main: Callable[[RoleEndpoint], None]) -> None:
        task = self._tasks[address]
        try:
            task.begin(address)
        except OSError as error:  # nobody could look into it
            self._stop(error)
        task.gate.acquire()
        try:
            if not self._stopping:
                main(RoleEndpoint(self, address))
        except PeerLost as error:
            self._stop(error)
        except RunStopped:
            pass  # the reason is kept by whoever stopped the run
        except BaseException as error:
            self._stop(error)
        task.ended = True
        self._unfinished -= 1
        if self._unfinished == 0:
            self._all_done.release()
            return
        try:
            self._next().gate.release()
        except BaseException as error:  # the outside has failed
            self._stop(error)
            self._next().gate.release()

    def _stop(self, reason: BaseException) -> None:
        if self._failure is None:
            self._failure = reason
        self._stopping = True
        self._rouse_all()

    def _rouse_all(self) -> None:
        self._ready.extend(self._tasks[address] for address in self._asleep)
        self._asleep.clear()

    def _next(self) -> _Task:
        self.turns += 1
        if self._stopping:  # all that is left is to end; and the outside, if that has failed, would fail again
            self._rouse_all()
            while (task := self._ready.popleft()).ended:
                pass  # it was woken by what then failed
            return task
        if self.turns % _LOOK_OUTSIDE_EVERY == 0 or monotonic() - self._looked > _LOOK_OUTSIDE_SECONDS:
            if self._outside is not None:
                self._outside.poll(self)
            self._looked = monotonic()
            self._ring_alarm()
        if not self._ready and self._outside is None:
            self._stop(Deadlock(self._describe()))
        while not self._ready:
            assert self._outside is not None
            self._awaits_news = True
            self._outside.wait(self, None if self._alarm is None else max(0.0, self._alarm[0] - monotonic()))
            self._awaits_news = False
            self._ring_alarm()
        return self._ready.popleft()

    def _ring_alarm(self) -> None:
        if self._alarm is not None and monotonic() >= self._alarm[0]:
            (_, address), self._alarm = self._alarm, None
            self.wake(address)

    def _describe(self) -> str:
        roles = self.whereabouts(stacks=True)
        circle = status.circle_in(roles)
        others = [role for role in roles if role.state is State.WAITS and role not in circle]
        how_many = f", {len(circle)} of them in a circle" if circle else ""
        return f"every role waits for another one{how_many}:\n{status.report(circle, others, self._name)}"

    def _name(self, address: int) -> str:
        known = self._tasks.get(address)
        return f"role at address {address}" if known is None else known.name

    @property
    def idle(self) -> bool:
        """Whether no role here can go on before something comes from outside."""
        return self._awaits_news or self._nap is not None

    def threads(self) -> Mapping[int, int]:
        """The numbers of the threads of the roles that have begun."""
        return {address: task.thread for address, task in self._tasks.items() if task.thread}

    def whereabouts(self, *, stacks: bool = False) -> tuple[RoleStatus, ...]:
        """What the roles here do; `stacks` says whether also where in their programs. Any thread may ask."""
        frames = sys._current_frames() if stacks else {}
        ready = set(map(id, self._ready))
        found = []
        for address, task in self._tasks.items():
            nap = self._nap if self._alone else self._asleep.get(address)
            stack = stack_of(frames.get(task.thread)) if stacks and not task.ended else ()
            if task.ended:
                found.append(RoleStatus(address, State.ENDED))
            elif nap is not None:
                found.append(RoleStatus(address, State.WAITS, nap[0], monotonic() - nap[1], stack))
            else:
                state = State.READY if id(task) in ready else State.RUNS
                found.append(RoleStatus(address, state, stack=stack))
        return tuple(found)

    def _answer(self, source: int, data: Bytes) -> None:
        question: StatusQuery = status.unpack(data)
        peeked = tuple(peek(process) for process in question.peek)
        roles = self.whereabouts(stacks=question.stacks)
        counted = tuple(role._replace(calls=self._calls_of(role.address)) for role in roles)
        answer = StatusReply(question, counted, peeked)
        own = next(iter(self._tasks))
        self.send(source, Tag.ORDER, own, bytes([Order.HERE]) + status.pack(answer))

    def _calls_of(self, address: int) -> tuple[tuple[str, int], ...]:
        count = self._tallies.get(address)
        return () if count is None else tuple(count().items())

    def tally(self, address: int, count: Callable[[], Mapping[str, int]]) -> None:
        """From now on `count` says how often the role at an address has done what."""
        self._tallies[address] = count

    def obey(self, order: Order, do: Obey, address: int = ANYONE) -> None:
        """From now on `do` is done when this order comes to the role at an address, or to any of this process."""
        self._orders[address, order] = do

    def is_peer_failure(self, error: BaseException) -> bool:
        """Whether an error only says that a process of the run has died."""
        return self._outside is not None and self._outside.is_peer_failure(error)

    def process(self, address: int) -> Process | None:
        """The process that hosts a role; None where nothing is known of it."""
        if self._outside is None:
            return Process("", os.getpid(), -1)
        return self._outside.process(address)

    def hosts(self, address: int) -> bool:
        return address in self._tasks

    def send(self, to: int, tag: Tag, source: int, data: Bytes) -> None:
        """Hands a letter to a role, here or outside; `data` may be reused when this returns."""
        if self._stopping:
            raise RunStopped
        if to in self._tasks:
            self.deliver(to, tag, source, bytes(data))
        else:
            assert self._outside is not None, f"there is no role at address {to}"
            self._outside.send(to, tag, source, data, self)

    def deliver(self, to: int, tag: Tag, source: int, data: Bytes) -> None:
        """Puts a letter into the mailbox that it is for and lets its reader go on."""
        if tag is Tag.ORDER:
            do = self._orders.get((to, data[0])) or self._orders[ANYONE, data[0]]
            do(source, data[1:])
            return
        self._news = True
        channel = (to, tag, ANYONE if tag is Tag.TO_ROOT else source)
        self._mail[channel].append((source, data))
        asleep = self._asleep.get(to)
        if asleep is not None and asleep[0] == channel:
            self.wake(to)

    def wake(self, address: int) -> None:
        """Lets a role that sleeps look again; one that does not will look by itself before it sleeps."""
        self._news = True
        if self._asleep.pop(address, None) is not None:
            self._ready.append(self._tasks[address])

    def waker(self, address: int) -> Callable[[], None] | None:
        """A function that wakes a role here or in another process that sees the same memory; None for all others."""
        if self.hosts(address):
            return partial(self.wake, address)
        if self._outside is None or not self._outside.reaches(address):
            return None
        return self._outside.waker(address)

    def take(self, channel: Channel) -> tuple[int, Bytes]:
        """The next letter of a mailbox; lets others run until there is one."""
        mail = self._mail[channel]
        while not mail:
            self.sleep(channel)
        return mail.popleft()

    def take_within(self, channel: Channel, seconds: float) -> tuple[int, Bytes] | None:
        """As `take`, but gives up after so many seconds."""
        self.turns += 1
        mail, end = self._mail[channel], monotonic() + seconds
        while not mail:
            if monotonic() >= end:
                return None
            self.sleep(channel, end - monotonic())
        return mail.popleft()

    def sleep(self, awaited: Channel, seconds: float | None = None) -> None:
        """Lets others run until something has come for the role that waits, perhaps not what it waits for."""
        if self._stopping:
            raise RunStopped
        if self._alone and self._outside is not None:
            self._news = False
            self._nap = awaited, monotonic()
            self._outside.wait(self, seconds)
            while not self._news and seconds is None:  # an order is no news, and ends no wait
                self._outside.wait(self)
            self._nap = None
            return
        address = awaited[0]
        task = self._tasks[address]
        self._asleep[address] = awaited, monotonic()
        if seconds is not None:
            self._alarm = monotonic() + seconds, address
        other = self._next()
        if other is not task:
            other.gate.release()
            task.gate.acquire()
        if self._stopping:
            raise RunStopped


class RoleEndpoint:
    """One role's place in the world."""

    def __init__(self, host: RoleScheduler, address: int) -> None:
        self._host = host
        self.address = address
        self.size = host.size

    def send(self, to: int, tag: Tag, data: Bytes) -> None:
        self._host.send(to, tag, self.address, data)

    def receive(self, source: int, tag: Tag) -> tuple[int, Bytes]:
        return self._host.take((self.address, tag, source))

    def listen(self, source: int, tag: Tag, seconds: float) -> tuple[int, Bytes] | None:
        return self._host.take_within((self.address, tag, source), seconds)

    def order(self, to: int, order: Order, data: Bytes) -> None:
        self._host.send(to, Tag.ORDER, self.address, bytes([order]) + bytes(data))

    def obey(self, order: Order, do: Obey) -> None:
        self._host.obey(order, do, self.address)

    def tally(self, count: Callable[[], Mapping[str, int]]) -> None:
        self._host.tally(self.address, count)

    def is_peer_failure(self, error: BaseException) -> bool:
        return self._host.is_peer_failure(error)

    def process(self, address: int) -> Process | None:
        return self._host.process(address)

    def sleep(self, awaited: Channel, seconds: float | None = None) -> None:
        self._host.sleep(awaited, seconds)

    def waker(self, peer: int) -> Callable[[], None] | None:
        return self._host.waker(peer)

    def table(self, seats: Sequence[int], sizes: Sequence[LinkSize], part: int = 0) -> LinkSet:
        return self._host.tables.lay(self, seats, sizes, part)

    def link(self, environment: int, size: LinkSize, part: int = 0) -> Link:
        return self._host.tables.take_seat(self, environment, size, part)
