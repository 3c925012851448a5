"""The event loop of a server of games, in a thread of its own: uvicorn, and calls that other threads deliver."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

LOOK_S = 0.25
"""Seconds between two looks at limits of time."""


class ServerLoop:
    """Runs an ASGI application from `start` to `stop`."""

    def __init__(self) -> None:
        self._failed: Callable[[BaseException], None] = lambda error: None
        self._calls: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._calls_due = self._turn_due = False  # whether the loop is to make the calls, or a turn
        self._open = False
        self._thread: threading.Thread | None = None
        self._ident = 0  # of the thread
        self._turn: Callable[[], float | None] = lambda: None
        self._turn_timer: asyncio.TimerHandle | None = None
        self._turns_over = threading.Event()

    def start(
        self,
        application: Any,
        listener: socket.socket,
        connections: Any,
        close_s: float,
        look: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """Starts the thread.

        Args:
            connections: their limits, see `http_connection.Connections`.
            close_s: seconds for connections to close at the end.
            look: called every `LOOK_S` seconds on the loop.
            failed: called with what has ended the loop, or a turn.
        """
        import uvicorn
        import uvloop

        from arena.external.http_connection import HttpConnection, RepeatedRecords

        limits = []  # of what clients cause
        for logger in map(logging.getLogger, ("uvicorn.error", HttpConnection.__module__)):
            found = [one for one in logger.filters if isinstance(one, RepeatedRecords)]  # of another server
            limits += found or [RepeatedRecords(logger)]
            logger.addFilter(limits[-1])
        self._server = uvicorn.Server(
            uvicorn.Config(
                application,
                http=partial(HttpConnection, connections),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=connections.keep_alive_s,
                timeout_graceful_shutdown=max(1, round(close_s)),
            )
        )
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._open, self._failed = True, failed

        def look_again() -> None:
            look()
            for limit in limits:
                limit.flush()
            self._loop.call_later(LOOK_S, look_again)

        def serve() -> None:
            self._ident = threading.get_ident()
            self._loop.call_later(LOOK_S, look_again)
            try:
                self._loop.run_until_complete(self._server.serve(sockets=[listener]))
            except BaseException as error:
                failed(error)
            finally:
                with self._lock:
                    self._open, self._ident = False, 0  # another thread may get the number
                listener.close()
                self._loop.close()
                self._turns_over.set()

        self._thread = threading.Thread(target=serve, name="external games over HTTP", daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """Closes all connections and ends the thread; False: it still runs after so many seconds."""
        if self._thread is None:
            return True
        self._server.should_exit = True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def deliver(self, call: Callable[[], None]) -> None:
        """Calls a function on the loop, in order; from any thread. Calls that come after the end are left out."""
        if threading.get_ident() == self._ident and not self._calls:
            call()
            return
        with self._lock:
            if self._open:
                self._calls.append(call)
                if not self._calls_due:
                    self._calls_due = True
                    self._soon(self._make_calls)

    def _make_calls(self) -> None:
        with self._lock:
            calls, self._calls, self._calls_due = self._calls, deque(), False
        for call in calls:
            call()

    def _soon(self, call: Callable[[], None]) -> None:
        (self._loop.call_soon if threading.get_ident() == self._ident else self._loop.call_soon_threadsafe)(call)

    def take_turns(self, turn: Callable[[], float | None]) -> None:
        """Calls `turn` on the loop after each `want_turn` and after the seconds that it returns, until that is None."""
        self._turn = turn
        self.want_turn()
        while not self._turns_over.wait(LOOK_S):  # a signal delivered to another thread would not end a longer wait
            pass

    def want_turn(self) -> None:
        """Asks for a turn; from any thread."""
        if self._turn_due:
            return
        with self._lock:
            if self._open and not self._turn_due:
                self._turn_due = True
                self._soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        if self._turn_timer is not None:
            self._turn_timer.cancel()
        if self._turns_over.is_set():
            return
        try:
            seconds = self._turn()
        except BaseException as error:
            self._failed(error)
            seconds = None
        if seconds is None:
            self._turns_over.set()
        elif seconds == 0.0:
            self.want_turn()
        else:
            self._turn_timer = self._loop.call_later(seconds, self._take_turn)
