"""A signal by which another process ends this one, in C: also while a call holds Python's lock (the GIL)."""

from __future__ import annotations

import ctypes
import faulthandler
import signal


class ExitSignal:
    """Makes this process write its stacks and exit when it receives the signal.

    The handler is the C library's `_exit`, whose argument, the exit status, is the signal's number: SIGHUP is 1, and
    ends a process by default. If SIGHUP is ignored (`nohup`) or handled, a real-time signal is used instead, and the
    status is its number.
    """

    def __init__(self) -> None:
        free = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        self.number: int = signal.SIGHUP if free or not hasattr(signal, "SIGRTMAX") else signal.SIGRTMAX - 6
        self._before: int | None = None  # the address of the previous handler

    def arm(self, file: int) -> None:
        """Installs the handler; the stacks are written to `file`, a descriptor."""
        library = ctypes.CDLL(None)
        self._before = _set_handler(self.number, ctypes.cast(library._exit, ctypes.c_void_p).value)
        faulthandler.register(self.number, file=file, all_threads=True, chain=True)

    def disarm(self) -> None:
        """Restores the previous handler."""
        faulthandler.unregister(self.number)
        _set_handler(self.number, self._before)


def _set_handler(number: int, handler: int | None) -> int | None:
    """Sets a C function as the handler, which `signal.signal` cannot do; returns the previous handler."""
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before: int | None = set_handler(number, handler)
    return before
