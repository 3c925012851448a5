"""The roles that one process hosts: who runs, who waits, and the letters that lie ready.

Every role runs in a thread of its own, but exactly one at a time: a role runs until it waits for something that is
not there yet; then the longest-waiting role that can go on does. So what the roles of a process do is deterministic
whatever the operating system does, global state is never touched by two of them at once, and MPI is spoken by one
thread at a time. A process with a single role runs it in the thread that it has.

When no role of the process can go on, the process waits for news from outside. If there is no outside (all roles are
here), that is a deadlock, reported at once with what each role waits for.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from arena.comm.interface import ANYONE, Bytes, Channel, Link, LinkSize, Outside, Table, Tag
from arena.comm.tables import Tables
from arena.errors import Deadlock, RunStopped

_LOOK_OUTSIDE_EVERY = 16  # turns: roles that keep each other busy must not keep letters from outside waiting


@dataclass
class _Task:
    name: str
    gate: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.gate.acquire()


class Host:
    """Runs one function per role to its end.

    Args:
        names: of the roles that are hosted here, by address.
        outside: the way to roles of other processes; None when all are here.
        size: how many addresses there are in the world; None: as many as names.
    """

    def __init__(self, names: Mapping[int, str], outside: Outside | None = None, *, size: int | None = None) -> None:
        self.size = len(names) if size is None else size
        self._tasks = {address: _Task(name) for address, name in names.items()}
        self._outside = outside
        self._ready: deque[_Task] = deque()
        self._alone = len(names) == 1  # the only role of its process waits by itself, in nobody's turn
        self._mail: defaultdict[Channel, deque[tuple[int, Bytes]]] = defaultdict(deque)
        self._asleep: dict[int, Channel] = {}  # address -> what the role waits for
        self.tables = Tables(self, outside)
        self._failure: BaseException | None = None
        self._stopping = False
        self._unfinished = len(names)
        self._all_done = threading.Event()
        self._turns = 0

    def run(self, mains: Mapping[int, Callable[[HostedEndpoint], None]]) -> None:
        """Runs `mains[address]` as the role at that address; returns when all have ended, raises the first failure."""
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
            self._all_done.wait()
        except BaseException:
            self._stopping = True  # every role ends at its next word; threads are daemons should one be deaf
            self._all_done.wait(timeout=2.0)
            raise
        if self._failure is not None:
            raise self._failure

    def _run_here(self, address: int, main: Callable[[HostedEndpoint], None]) -> None:
        try:
            main(HostedEndpoint(self, address))
        except RunStopped:
            if self._failure is None:
                raise
            raise self._failure from None

    def _main(self, address: int, main: Callable[[HostedEndpoint], None]) -> None:
        self._tasks[address].gate.acquire()
        try:
            if not self._stopping:
                main(HostedEndpoint(self, address))
        except RunStopped:
            pass  # the reason is kept by whoever stopped the run
        except BaseException as error:
            self._stop(error)
        self._unfinished -= 1
        if self._unfinished == 0:
            self._all_done.set()
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
        self._ready.extend(self._tasks[address] for address in self._asleep)
        self._asleep.clear()

    def _next(self) -> _Task:
        self._turns += 1
        if self._outside is not None and self._turns % _LOOK_OUTSIDE_EVERY == 0:
            self._outside.poll(self)
        if not self._ready and self._outside is None:
            self._stop(Deadlock(self._describe()))
        while not self._ready:
            assert self._outside is not None
            self._outside.wait(self)
        return self._ready.popleft()

    def _describe(self) -> str:
        asleep = self._asleep.items()
        lines = [f"{self._tasks[address].name} waits for {self._say(awaited)}" for address, awaited in asleep]
        return "every role waits for another one:\n  " + "\n  ".join(lines)

    def _say(self, channel: Channel) -> str:
        _, tag, source = channel
        known = self._tasks.get(source)
        return f"{tag.name} from {known.name if known else 'anyone' if source == ANYONE else f'address {source}'}"

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
        channel = (to, tag, ANYONE if tag is Tag.TO_ROOT else source)
        self._mail[channel].append((source, data))
        if self._asleep.get(to) == channel:
            self.wake(to)

    def wake(self, address: int) -> None:
        """Lets a role that sleeps look again; one that does not will look by itself before it sleeps."""
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

    def sleep(self, awaited: Channel) -> None:
        """Lets others run until something has come for the role that waits, perhaps not what it waits for."""
        if self._stopping:
            raise RunStopped
        if self._alone and self._outside is not None:
            self._outside.wait(self)
            return
        task = self._tasks[awaited[0]]
        self._asleep[awaited[0]] = awaited
        other = self._next()
        if other is not task:
            other.gate.release()
            task.gate.acquire()
        if self._stopping:
            raise RunStopped


class HostedEndpoint:
    """One role's place in the world."""

    def __init__(self, host: Host, address: int) -> None:
        self._host = host
        self.address = address
        self.size = host.size

    def send(self, to: int, tag: Tag, data: Bytes) -> None:
        self._host.send(to, tag, self.address, data)

    def receive(self, source: int, tag: Tag) -> tuple[int, Bytes]:
        return self._host.take((self.address, tag, source))

    def sleep(self, awaited: Channel) -> None:
        self._host.sleep(awaited)

    def waker(self, peer: int) -> Callable[[], None] | None:
        return self._host.waker(peer)

    def table(self, seats: Sequence[int], sizes: Sequence[LinkSize], part: int = 0) -> Table:
        return self._host.tables.lay(self, seats, sizes, part)

    def link(self, environment: int, size: LinkSize, part: int = 0) -> Link:
        return self._host.tables.take_seat(self, environment, size, part)
