"""A signal by which another process ends this one, in C: also while a call keeps Python's lock."""

from __future__ import annotations

import ctypes
import faulthandler
import signal


class ExitSignal:
    """Makes this process write its stacks and exit when the signal comes.

    The C library's `_exit` is its handler, and so gets the signal's number as the exit status: SIGHUP is 1, and ends a
    process by default anyway. Where hangups are ignored (`nohup`) or handled, a real-time signal takes its place, and
    the status is the number of that.
    """

    def __init__(self) -> None:
        free = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
        self.number: int = signal.SIGHUP if free or not hasattr(signal, "SIGRTMAX") else signal.SIGRTMAX - 6
        self._before: int | None = None  # the address of the handler that was there

    def arm(self, file: int) -> None:
        """From now on the signal is obeyed; the stacks are written into `file`, a descriptor."""
        library = ctypes.CDLL(None)
        self._before = _set_handler(self.number, ctypes.cast(library._exit, ctypes.c_void_p).value)
        faulthandler.register(self.number, file=file, all_threads=True, chain=True)

    def disarm(self) -> None:
        """The signal means what it meant before."""
        faulthandler.unregister(self.number)
        _set_handler(self.number, self._before)


def _set_handler(number: int, handler: int | None) -> int | None:
    """Python's `signal.signal` takes no function of C."""
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before: int | None = set_handler(number, handler)
    return before
