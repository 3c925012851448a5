"""Threads that call actors; the interpreter does not wait for one whose actor never returns."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

_Call = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class ActorThreads:
    """Daemon threads, started when they are needed.

    Args:
        most: their number; one that is given up (its call is cancelled) is replaced.
        deliver: calls a function on the server's loop.
    """

    def __init__(self, most: int, deliver: Callable[[Callable[[], None]], None]) -> None:
        self._most, self._deliver = most, deliver
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._idle = 0  # threads that wait, less calls that wait for them
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], Any]) -> Any:
        """Calls a function in a thread; on the server's loop."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._idle -= 1
            if self._idle < 0 and len(self._threads) < self._most:
                self._start()
        self._calls.put((call, future))
        try:
            return await future
        except asyncio.CancelledError:
            with self._lock:
                self._most += 1
                if self._idle < 0:
                    self._start()
            raise

    def close(self, seconds: float) -> list[str]:
        """Ends the threads; returns the names of those that are still in a call after so many seconds in all."""
        with self._lock:
            threads = list(self._threads)
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join(seconds / len(threads))
        return [thread.name for thread in threads if thread.is_alive()]

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"actor {len(self._threads)}", daemon=True)
        self._threads.add(thread)
        self._idle += 1
        thread.start()

    def _work(self) -> None:
        while (work := self._calls.get()) is not None:
            call, future = work
            if future.cancelled():  # before its turn
                with self._lock:
                    self._idle += 1
                    self._most -= 1
                    if len(self._threads) > self._most:
                        self._idle -= 1
                        self._threads.discard(threading.current_thread())
                        return
                continue
            outcome: Any = None
            error: BaseException | None = None
            try:
                outcome = call()
            except BaseException as raised:
                error = raised
            with self._lock:
                given_up = future.cancelled()
                if given_up:
                    self._most -= 1
                    self._threads.discard(threading.current_thread())
                else:
                    self._idle += 1
            if given_up:
                return
            self._deliver(lambda future=future, outcome=outcome, error=error: _settle(future, outcome, error))  # type: ignore[misc]


def _settle(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(outcome)
    elif isinstance(error, StopIteration):  # a future refuses it
        future.set_exception(RuntimeError("StopIteration"))
    else:
        future.set_exception(error)
