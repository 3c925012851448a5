"""Threads that call actors; the interpreter does not wait for one whose actor never returns."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(eq=False)
class _Call:
    do: Callable[[], Any]
    future: asyncio.Future[Any]
    state: str = "queued"  # then running, then settled: the call has returned, or was cancelled


class ActorThreads:
    """Daemon threads, started when they are needed.

    Args:
        most: the largest number of threads; threads whose call was cancelled and has not returned do not count.
    """

    def __init__(self, most: int, deliver: Callable[[Callable[[], None]], None]) -> None:
        self._most, self._deliver = most, deliver
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._abandoned = 0  # threads whose call was cancelled and has not returned
        self._idle = 0  # waiting threads minus waiting calls
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], Any]) -> Any:
        """Calls a function in a thread; on the server's loop."""
        work = _Call(call, asyncio.get_running_loop().create_future())
        with self._lock:
            self._idle -= 1
            try:
                self._start_if_needed()
            except RuntimeError:  # the system starts no more threads
                self._idle += 1
                raise
        self._calls.put(work)
        try:
            return await work.future
        except asyncio.CancelledError:
            with self._lock:
                before, work.state = work.state, "settled"
                if before == "queued":
                    self._idle += 1
                elif before == "running":
                    self._abandoned += 1
                    with suppress(RuntimeError):  # the system starts no more threads: the others take the calls
                        self._start_if_needed()
            raise

    def close(self, seconds: float) -> list[str]:
        """Ends the threads; returns the names of threads that are still in a call after this many seconds in all."""
        with self._lock:
            threads = list(self._threads)
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join(seconds / len(threads))
        return [thread.name for thread in threads if thread.is_alive()]

    def _start_if_needed(self) -> None:
        """Starts a thread if a call waits for one and the limit allows it; called with the lock."""
        if self._idle < 0 and len(self._threads) - self._abandoned < self._most:
            thread = threading.Thread(target=self._work, name=f"actor {len(self._threads)}", daemon=True)
            thread.start()  # may fail: then nothing is counted
            self._threads.add(thread)
            self._idle += 1

    def _work(self) -> None:
        while (work := self._calls.get()) is not None:
            with self._lock:
                if work.future.cancelled():  # before its turn
                    self._idle += work.state == "queued"
                    work.state = "settled"
                    continue
                work.state = "running"
            outcome: Any = None
            error: BaseException | None = None
            try:
                outcome = work.do()
            except BaseException as raised:  # a future refuses a StopIteration
                error = RuntimeError("StopIteration") if isinstance(raised, StopIteration) else raised
            with self._lock:
                if work.state == "settled":  # this thread was abandoned, and may have been replaced
                    self._abandoned -= 1
                    self._threads.discard(threading.current_thread())
                    return
                work.state = "settled"
                self._idle += 1
            self._deliver(partial(_settle, work.future, outcome, error))


def _settle(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    if not future.done():
        future.set_result(outcome) if error is None else future.set_exception(error)
