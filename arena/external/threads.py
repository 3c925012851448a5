"""Threads that call actors; the interpreter does not wait for one whose actor never returns."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any


class ActorThreads:
    """Daemon threads, started when they are needed.

    Args:
        most: calls at the same time; a call that was cancelled and has not returned does not count.
        deliver: calls a function on the server's loop.
    """

    def __init__(self, most: int, deliver: Callable[[Callable[[], None]], None]) -> None:
        self._deliver = deliver
        self._room = asyncio.Semaphore(most)
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []

    async def run(self, call: Callable[[], Any]) -> Any:
        """Calls a function in a thread; on the server's loop."""
        async with self._room:
            if not self._idle:
                worker = _Worker(f"actor {len(self._all)}")
                worker.thread.start()  # may fail: the system starts no more threads
                self._all.append(worker)
                self._idle.append(worker)
            worker, future = self._idle.pop(), asyncio.get_running_loop().create_future()

            def work() -> None:
                outcome: Any = None
                error: BaseException | None = None
                try:
                    outcome = None if future.cancelled() else call()
                except BaseException as raised:  # a future refuses a StopIteration
                    error = RuntimeError("StopIteration") if isinstance(raised, StopIteration) else raised

                def settle() -> None:
                    self._idle.append(worker)
                    if not future.done():
                        future.set_result(outcome) if error is None else future.set_exception(error)

                self._deliver(settle)

            worker.calls.put(work)
            return await future

    def close(self, seconds: float) -> list[str]:
        """Ends the threads; returns the names of threads that are still in a call after this many seconds in all."""
        workers = list(self._all)
        for worker in workers:
            worker.calls.put(None)
        for worker in workers:
            worker.thread.join(seconds / len(workers))
        return [worker.thread.name for worker in workers if worker.thread.is_alive()]


class _Worker:
    """A thread, and the calls that it is given one after the other."""

    def __init__(self, name: str) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            call()
