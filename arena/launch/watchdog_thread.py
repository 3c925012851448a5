"""The watchdog thread of the root's process: a role that hangs there also stops the root and the root's watchdog.

The root's watchdog (`arena.roles.root.watchdog`) runs only when it is the root's turn. So a thread checks that turns
change, and ends the run when one call of a game, an algorithm or the recorder takes too long. The thread needs Python's
lock (the GIL): for a call that never releases it there is a small process (`arena.launch.watchdog_process`). The thread
sends it heartbeats through a pipe; when they stop, that process ends this one and writes what has happened. It also
sees whether this process was able to run; a timer in this process could not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from arena.diagnostics.process_load import delays, starved_seconds
from arena.launch import watchdog_process
from arena.launch.console import tell, terminal_columns
from arena.launch.exit_signal import ExitSignal
from arena.roles.protocol import Failed
from arena.run.run import Run
from arena.transport import status
from arena.transport.scheduler import RoleScheduler
from arena.transport.status import State

_CHECKS = 4  # within the limit
_FIRST_LOOK = 0.002  # seconds; the names must be sent before a game keeps the lock
_SLACK = 5.0  # seconds beyond the limit for the thread, as the machine may be busy
_SHOW_CURSOR = "\x1b[?25h\n"  # ECMA-48 with DEC's private modes


class RootWatchdog:
    """A context manager: watches a scheduler of roles while it runs.

    Args:
        host: the scheduler of the root's process.
        run: the run.
        console: for the reason why the run ends; None: a copy of stderr.
        end: ends the process with an exit status.
        clock: seconds.
    """

    def __init__(
        self,
        host: RoleScheduler,
        run: Run,
        *,
        console: IO[str] | None = None,
        end: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._run, self._console, self._end, self._clock = host, run, console, end, clock
        self._limit = run.plan.config.env_timeout_s or run.plan.config.watchdog_s
        self._period = self._limit / _CHECKS
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._exit = ExitSignal()
        self._turn, self._since, self._looked = -1, clock(), clock()
        self._delays = delays(os.getpid())

    def __enter__(self) -> RootWatchdog:
        self._process = self._start_process()
        assert self._process.stdin is not None
        self._exit.arm(self._process.stdin.fileno())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        return self._failure(seconds)

    def _failure(self, seconds: float) -> Failed:
        roles = self._host.statuses(stacks=True)
        busy = [role._replace(seconds=seconds) for role in roles if role.state is State.RUNS]
        others = [role for role in roles if role.state is State.WAITS]
        title = self._title(*(self._name(role.address) for role in busy[:1]))
        return Failed(title, f"{status.report(busy, others, self._name)}\n{self._hint}", exit_code=1)

    def _title(self, role: str = "a role of rank 0") -> str:
        return f"nothing has moved for {self._limit:g} s: {role} has not come back from a call"

    @property
    def _hint(self) -> str:
        key = "watchdog_s" if self._run.plan.config.env_timeout_s is None else "env_timeout_s"
        return f"one call of a game or an algorithm may take {self._limit:g} s; `{key}` can give it more"

    def _name(self, address: int) -> str:
        return f"{self._run.describe(self._run.roles[address])} (rank 0)"

    # ------------------------------------------------------------------------------------- the thread and the process

    def _watch(self) -> None:
        while len(self._host.threads()) < len(self._host.statuses()) and not self._over.wait(_FIRST_LOOK):
            pass
        self._send({thread: self._name(address) for address, thread in self._host.threads().items()})
        while not self._over.wait(self._period):
            self._send({})
            failure = self.check()
            if failure is not None:
                self._say(failure)
                self._end(failure.exit_code)

    def _say(self, failure: Failed) -> None:
        """Writes to a stream of its own: the role that hangs may hold the lock of stderr."""
        with suppress(OSError):
            if terminal_columns():
                os.write(1, _SHOW_CURSOR.encode())
            tell(failure, self._console or os.fdopen(os.dup(2), "w"))

    def _start_process(self) -> subprocess.Popen[bytes]:
        root = str(Path(watchdog_process.__file__).parents[2])
        task = f"main({os.getpid()}, {self._exit.number:d}, {self._limit + self._period + _SLACK})"
        program = f"import sys; sys.path.insert(0, {root!r}); from {watchdog_process.__name__} import main; {task}"
        # In a session of its own: a launcher that ends our process group must not end it, too.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program], stdin=subprocess.PIPE, start_new_session=True
        )
        heading = f"arena: the run has ended: {self._title()}, which keeps Python's lock"
        self._send({"heading": heading, "ending": self._hint})
        return self._process

    def _send(self, said: object) -> None:
        """Sends a heartbeat; if the process was killed, there is still this thread."""
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(said).encode() + b"\n")
            self._process.stdin.flush()
