"""A role in a thread of its own: for code that keeps settings in its thread, or steps its environment in another one.

The role's greenlet waits while the thread runs, so that still one role runs at a time; when the thread, or another one
of the role, waits for a message, the greenlet does so in its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from arena.errors import RunStopped

_SIGNAL_SECONDS = 0.25  # a signal that comes just before a thread falls asleep does not interrupt that sleep
_END_SECONDS = 2.0  # for the thread to end after a signal


class DedicatedThread:
    """Calls `body` in a thread; `wait` is the greenlet's way to wait, see `Endpoint.sleep`."""

    def __init__(self, body: Callable[[], object], wait: Callable[..., None]) -> None:
        self._body, self._wait = body, wait
        self._wants, self._goes_on = threading.Lock(), threading.Lock()  # each is released to hand over
        self._wants.acquire()
        self._goes_on.acquire()
        self._call: tuple[Any, Any] | None = None  # the arguments of a wait; None: `body` has returned or raised
        self._failure: BaseException | None = None  # of `body`
        self._stopped: RunStopped | None = None  # raised by every wait from now on
        self.thread = threading.Thread(target=self._run, daemon=True)  # a daemon: after a signal it may never end

    def run(self) -> None:
        """Called in the greenlet: runs the thread to its end; raises what `body` raises."""
        self.thread.start()
        try:
            while self._granted():
                args, kwargs = self._call or ((), {})
                self._call = None
                try:
                    self._wait(*args, **kwargs)
                except RunStopped as error:
                    self._stopped = error
                self._goes_on.release()
        except BaseException:  # a signal, or the remote transport has failed
            self._stopped = RunStopped()
            if self._goes_on.locked():
                self._goes_on.release()
            self.thread.join(_END_SECONDS)
            raise
        self._stopped = RunStopped()  # for other threads of the role that have not ended
        self.thread.join()
        if self._failure is not None:
            raise self._failure

    def _granted(self) -> bool:
        """Lets the thread run until it waits; whether it does, else it has ended."""
        while not self._wants.acquire(timeout=_SIGNAL_SECONDS):
            pass
        return self._call is not None

    def sleep(self, *args: Any, **kwargs: Any) -> None:
        """As `wait`, for the threads of the role."""
        if self._stopped is None:
            self._call = args, kwargs
            self._wants.release()
            self._goes_on.acquire()
        if self._stopped is not None:
            raise self._stopped

    def _run(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self._failure = error
        self._wants.release()
