"""A signal by which another process ends this one, in C: also while a call holds Python's lock (the GIL)."""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import platform
import signal
from contextlib import suppress

_EXIT_WITH_1 = {  # machine code of `_exit(1)` on Linux, as a function that ignores its argument
    "x86_64": "bf01000000b8e70000000f05",  # mov edi, 1; mov eax, 231 (exit_group); syscall
    "aarch64": "200080d2c80b80d2010000d4",  # mov x0, 1; mov x8, 94 (exit_group); svc 0
}


class ExitSignal:
    """Makes this process write its stacks and exit with 1 when it receives the signal, a real-time signal.

    On other machines, and where memory may not be executed, the handler is the C library's `_exit`, whose argument, the
    exit status, is the signal's number.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGRTMAX - 6 if hasattr(signal, "SIGRTMAX") else signal.SIGHUP
        self._before: int | None = None  # the address of the previous handler
        self._code: mmap.mmap | None = None

    def arm(self, file: int) -> None:
        """Installs the handler; the stacks are written to `file`, a descriptor."""
        self._before = _set_handler(self.number, self._handler())
        faulthandler.register(self.number, file=file, all_threads=True, chain=True)

    def disarm(self) -> None:
        """Restores the previous handler."""
        faulthandler.unregister(self.number)
        _set_handler(self.number, self._before)

    def _handler(self) -> int | None:
        """The address of a function that ends this process."""
        code = bytes.fromhex(_EXIT_WITH_1.get(platform.machine(), "")) if hasattr(signal, "SIGRTMAX") else b""
        if code:
            with suppress(OSError):
                self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
                self._code.write(code)
                return ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        return ctypes.cast(ctypes.CDLL(None)._exit, ctypes.c_void_p).value


def _set_handler(number: int, handler: int | None) -> int | None:
    """Sets a C function as the handler, which `signal.signal` cannot do; returns the previous handler."""
    set_handler = ctypes.CDLL(None).signal
    set_handler.argtypes, set_handler.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    before: int | None = set_handler(number, handler)
    return before
