"""The world in one process: every role is a thread, and exactly one of them runs at a time.

A role runs until it waits for something that is not there yet; then the longest-waiting role that can go on does.
So a run is deterministic whatever the operating system does, global state is never touched by two roles at once,
and when nobody can go on that is a deadlock, reported at once with what each role waits for.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arena.comm.interface import ANYONE, Bytes, Side, Tag
from arena.errors import Deadlock, RunStopped

Channel = tuple[int, Tag, int]  # to, tag, from (ANYONE for the mailbox of a tag that takes messages from everybody)


@dataclass
class _Task:
    name: str
    gate: threading.Lock = field(default_factory=threading.Lock)
    waits_for: Channel | None = None

    def __post_init__(self) -> None:
        self.gate.acquire()


class LocalWorld:
    """Runs one function per role to its end, in threads that take turns.

    Args:
        names: one name per role, for the error message of a deadlock; the root first.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._tasks = [_Task(name) for name in names]
        self._ready: deque[_Task] = deque()
        self._mail: defaultdict[Channel, deque[tuple[int, Bytes]]] = defaultdict(deque)
        self._waiting: dict[Channel, _Task] = {}
        self._buffers: dict[tuple[int, int, int, int], tuple[Any, Any]] = {}
        self._failure: BaseException | None = None
        self._stopping = False
        self._unfinished = len(names)
        self._all_done = threading.Event()

    def run(self, mains: Sequence[Callable[[LocalEndpoint], None]]) -> None:
        """Runs `mains[i]` as the role at address `i`; returns when all have ended, raises what the first raised."""
        threads = [
            threading.Thread(target=self._main, args=(address, main), name=self._tasks[address].name, daemon=True)
            for address, main in enumerate(mains)
        ]
        for thread in threads:
            thread.start()
        self._ready.extend(self._tasks[1:])
        self._tasks[0].gate.release()
        try:
            self._all_done.wait()
        except BaseException:
            self._stopping = True  # every role ends at its next word; threads are daemons should one be deaf
            self._all_done.wait(timeout=2.0)
            raise
        if self._failure is not None:
            raise self._failure

    def _main(self, address: int, main: Callable[[LocalEndpoint], None]) -> None:
        task = self._tasks[address]
        task.gate.acquire()
        try:
            if not self._stopping:
                main(LocalEndpoint(self, address))
        except RunStopped:
            pass  # the reason is kept by whoever stopped the run
        except BaseException as error:
            self._stop(error)
        self._unfinished -= 1
        if self._unfinished == 0:
            self._all_done.set()
        else:
            self._next().gate.release()

    def _stop(self, reason: BaseException) -> None:
        if self._failure is None:
            self._failure = reason
        self._stopping = True
        self._ready.extend(self._waiting.values())
        self._waiting.clear()

    def _next(self) -> _Task:
        if not self._ready:
            self._stop(Deadlock(self._describe()))
        return self._ready.popleft()

    def _describe(self) -> str:
        lines = [f"{task.name} waits for {self._say(channel)}" for channel, task in self._waiting.items()]
        return "every role waits for another one:\n  " + "\n  ".join(lines)

    def _say(self, channel: Channel) -> str:
        _, tag, source = channel
        return f"{tag.name} from {'anyone' if source == ANYONE else self._tasks[source].name}"

    def put(self, channel: Channel, source: int, data: Bytes) -> None:
        if self._stopping:
            raise RunStopped
        self._mail[channel].append((source, data))
        task = self._waiting.pop(channel, None)
        if task is not None:
            self._ready.append(task)

    def take(self, me: int, channel: Channel) -> tuple[int, Bytes]:
        mail = self._mail[channel]
        while not mail:
            if self._stopping:
                raise RunStopped
            self._give_way(self._tasks[me], channel)
        return mail.popleft()

    def _give_way(self, task: _Task, channel: Channel) -> None:
        self._waiting[channel] = task
        other = self._next()
        if other is not task:
            other.gate.release()
            task.gate.acquire()

    def shared_buffers(self, environment: int, seat: int, sizes: tuple[int, int]) -> tuple[Any, Any]:
        key = (environment, seat, *sizes)
        if key not in self._buffers:
            self._buffers[key] = (np.zeros(sizes[0], np.uint8), np.zeros(sizes[1], np.uint8))
        return self._buffers[key]


class LocalEndpoint:
    """One role's place in a `LocalWorld`."""

    def __init__(self, world: LocalWorld, address: int) -> None:
        self._world = world
        self.address = address
        self.size = len(world._tasks)

    def send(self, to: int, tag: Tag, data: Bytes) -> None:
        source = ANYONE if tag is Tag.TO_ROOT else self.address
        self._world.put((to, tag, source), self.address, bytes(data))

    def receive(self, source: int, tag: Tag) -> tuple[int, Bytes]:
        return self._world.take(self.address, (self.address, tag, source))

    def link(self, peer: int, side: Side, *, request_bytes: int, reply_bytes: int) -> LocalLink:
        environment, seat = (self.address, peer) if side is Side.ENVIRONMENT else (peer, self.address)
        requests, replies = self._world.shared_buffers(environment, seat, (request_bytes, reply_bytes))
        return LocalLink(self._world, self.address, peer, side, requests, replies)

    def group_communicator(self, color: int | None) -> None:
        return None


class LocalLink:
    """Both ends use the same two buffers; a post is only the news that one is full."""

    def __init__(self, world: LocalWorld, me: int, peer: int, side: Side, requests: Any, replies: Any) -> None:
        self._world = world
        self._me = me
        out, back = (Tag.REPLY, Tag.REQUEST) if side is Side.ENVIRONMENT else (Tag.REQUEST, Tag.REPLY)
        self.outbox, self.inbox = (replies, requests) if side is Side.ENVIRONMENT else (requests, replies)
        out_extra, back_extra = Tag(out + 2), Tag(back + 2)
        self._out, self._out_extra = (peer, out, me), (peer, out_extra, me)
        self._back, self._back_extra = (me, back, peer), (me, back_extra, peer)

    def post(self, nbytes: int) -> None:
        self._world.put(self._out, self._me, b"")

    def wait(self) -> None:
        self._world.take(self._me, self._back)

    def post_extra(self, data: Bytes) -> None:
        self._world.put(self._out_extra, self._me, bytes(data))

    def wait_extra(self) -> Bytes:
        return self._world.take(self._me, self._back_extra)[1]

    def close(self) -> None:
        pass  # nothing is held that the world does not own
