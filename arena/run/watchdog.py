"""The watchdog thread of the root's process: a role that hangs there also stops the root and the root's watchdog.

The root's watchdog (`arena.roles.root.watchdog`) runs only when it is the root's turn. So a thread checks that turns
change, and ends the run when one call of a game, an algorithm or the recorder takes too long. The thread needs Python's
lock (the GIL): for a call that never releases it there is a small process (`arena.run.watchdog_process`). The thread
sends it heartbeats through a pipe; when they stop, that process ends this one and writes what has happened. It also
sees whether this process was able to run; a timer in this process could not.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from arena.diagnostics.process_load import delays, starved_seconds
from arena.roles.protocol import Failed
from arena.roles.run import Run
from arena.run import watchdog_process
from arena.run.console import terminal_columns, write_failure
from arena.run.mpirun import started_from_another_host
from arena.transport import status
from arena.transport.scheduler import RoleScheduler
from arena.transport.status import State

_CHECKS = 4  # within the limit
_SLACK = 5.0  # seconds beyond the limit for the thread, as the machine may be busy
_SHOW_CURSOR = "\x1b[?25h\n"  # ECMA-48 with DEC's private modes
_EXIT_WITH_1 = {  # machine code of `_exit(1)` on Linux, as a function that ignores its argument
    "x86_64": "bf01000000b8e70000000f05",  # mov edi, 1; mov eax, 231 (exit_group); syscall
    "aarch64": "200080d2c80b80d2010000d4",  # mov x0, 1; mov x8, 94 (exit_group); svc 0
}


class RootWatchdog:
    """A context manager: watches the scheduler of the root's process while it runs, and ends the process by `end`.

    The reason why the run ends is written to `console`, None: a copy of stderr, and given to `record`.
    """

    def __init__(
        self,
        host: RoleScheduler,
        run: Run,
        *,
        console: IO[str] | None = None,
        end: Callable[[int], object] = os._exit,
        record: Callable[[Failed], object] = lambda _failure: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._run, self._console, self._end, self._clock = host, run, console, end, clock
        self._record = record
        self._limit, self._hint = run.plan.config.call_limit, run.plan.config.call_limit_text
        self._period = self._limit / _CHECKS
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._exit = ExitSignal()
        self._turn, self._since, self._looked = -1, clock(), clock()
        self._delays = delays(os.getpid())

    def __enter__(self) -> RootWatchdog:
        root = str(Path(watchdog_process.__file__).parents[2])
        daemon = os.getppid() if self._run.plan.hosts and started_from_another_host() else None
        task = f"main({os.getpid()}, {self._exit.number:d}, {self._limit + self._period + _SLACK}, {daemon})"
        program = f"import sys; sys.path.insert(0, {root!r}); from {watchdog_process.__name__} import main; {task}"
        # In a session of its own: a launcher that ends our process group must not end it, too.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program], stdin=subprocess.PIPE, start_new_session=True
        )
        assert self._process.stdin is not None
        heading = f"arena: the run has ended: {self._title()}, which keeps Python's lock"
        names = {str(address): self._name(address) for address in self._host.addresses}
        self._send({"heading": heading, "ending": self._hint, **names})
        self._exit.arm(self._process.stdin.fileno())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(_SLACK)
        if self._process is not None:
            self._process.kill()  # no role hangs
            self._process.communicate()
            self._exit.disarm()

    def check(self) -> Failed | None:
        """Why the run is to end; None if turns change."""
        now, turn = self._clock(), self._host.turns
        gap, self._looked = now - self._looked, now
        if gap > 2 * self._period:  # this process was stopped
            self._since += gap
        if self._host.idle or turn != self._turn:
            self._turn, self._since, self._delays = turn, now, delays(os.getpid())
            return None
        seconds = now - self._since
        if seconds - starved_seconds(self._delays, delays(os.getpid())) <= self._limit:
            return None
        roles = self._host.statuses(stacks=True)
        busy = [role._replace(seconds=seconds) for role in roles if role.state is State.RUNS]
        waiting = [role for role in roles if role.state is State.WAITS]
        title = self._title(*(self._name(role.address) for role in busy[:1]))
        return Failed(title, f"{status.report(busy, waiting, self._name)}\n{self._hint}", exit_code=1)

    def _title(self, role: str = "") -> str:
        who = role or f"a role of {self._run.plan.place(0)}"
        return f"nothing has moved for {self._limit:g} s: {who} has not come back from a call"

    def _name(self, address: int) -> str:
        return f"{self._run.describe(self._run.roles[address])} ({self._run.plan.place(0)})"

    def _watch(self) -> None:
        """Checks, and sends heartbeats to the process, until the scheduler has ended."""
        while not self._over.wait(self._period):
            self._send({})
            failure = self.check()
            if failure is not None:
                with suppress(OSError):
                    if terminal_columns():
                        os.write(1, _SHOW_CURSOR.encode())
                    # To a stream that no role uses: the role that hangs may hold the lock of stderr.
                    write_failure(failure, self._console or os.fdopen(os.dup(2), "w"))
                self._record(failure)
                self._end(failure.exit_code)

    def _send(self, facts: object) -> None:
        """Sends a heartbeat; if the process was killed, there is still this thread."""
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(facts).encode() + b"\n")
            self._process.stdin.flush()


class ExitSignal:
    """Makes this process write its stacks and exit with 1 when it receives the signal, a real-time signal.

    The handler is in C, so that it runs also while a call holds Python's lock (the GIL). On other machines, and where
    memory may not be executed, it is the C library's `_exit`, whose argument, the exit status, is the signal's number.
    """

    def __init__(self) -> None:
        self.number: int = signal.SIGRTMAX - 6 if hasattr(signal, "SIGRTMAX") else signal.SIGHUP
        self._before: int | None = None  # the address of the previous handler
        self._code: mmap.mmap | None = None

    def arm(self, file: int) -> None:
        """Installs the handler; the stacks are written to `file`, a descriptor."""
        handler = ctypes.cast(ctypes.CDLL(None)._exit, ctypes.c_void_p).value
        code = bytes.fromhex(_EXIT_WITH_1.get(platform.machine(), "")) if hasattr(signal, "SIGRTMAX") else b""
        if code:
            with suppress(OSError):
                self._code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
                self._code.write(code)
                handler = ctypes.addressof(ctypes.c_char.from_buffer(self._code))
        self._before = _set_handler(self.number, handler)
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
