"""Watches the process of the root from beside it: where other roles run there too, one that hangs stops the root.

The root's own watch (`arena.roles.root.watchdog`) needs its turn. So a thread looks whether the turn goes on, and ends
the run when one call of a game, an algorithm or the recorder takes too long. The thread needs Python's lock: for a call
that never gives it back there is a small process beside this one (`arena.launch.watchdog_process`). The thread gives it
signs of life through a pipe; when they fail to come it makes this process end, and says what has happened. It sees
whether this process is able to run, which no timer in here could.
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
from arena.launch.console import tell
from arena.launch.exit_signal import ExitSignal
from arena.launch.terminal import terminal_columns
from arena.roles.protocol import Failed
from arena.run.run import Run
from arena.transport import status
from arena.transport.scheduler import RoleScheduler
from arena.transport.status import State

_LOOKS = 4  # within the limit
_FIRST_LOOK = 0.002  # seconds; the names are to be told before a game keeps the lock
_SLACK = 5.0  # seconds that the thread is given beyond the limit, however busy the machine is
_SHOW_CURSOR = "\x1b[?25h\n"  # ECMA-48 with DEC's private modes


class RootWatchdog:
    """A context manager: watches a host while it runs.

    Args:
        host: of the root's process.
        run: the run.
        console: where to say why the run ends; None: a copy of stderr.
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
        self._limit = run.plan.env_timeout_s or run.plan.watchdog_s
        self._period = self._limit / _LOOKS
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sentry", daemon=True)
        self._judge: subprocess.Popen[bytes] | None = None
        self._exit = ExitSignal()
        self._turn, self._since, self._looked = -1, clock(), clock()
        self._delays = delays(os.getpid())

    def __enter__(self) -> RootWatchdog:
        self._judge = self._start_judge()
        assert self._judge.stdin is not None
        self._exit.arm(self._judge.stdin.fileno())
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_SLACK)
        if self._judge is not None:
            self._judge.kill()  # it has nothing to say
            self._judge.communicate()
            self._exit.disarm()

    def look(self) -> Failed | None:
        """Whether the turn goes on; why the run is to end, if it does not."""
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
        key = "watchdog_s" if self._run.plan.env_timeout_s is None else "env_timeout_s"
        return f"one call of a game or an algorithm may take {self._limit:g} s; `{key}` can give it more"

    def _name(self, address: int) -> str:
        return f"{self._run.describe(self._run.roles[address])} (rank 0)"

    # --------------------------------------------------------------------------------------------- thread and judge

    def _watch(self) -> None:
        while len(self._host.threads()) < len(self._host.statuses()) and not self._over.wait(_FIRST_LOOK):
            pass
        self._tell_judge({thread: self._name(address) for address, thread in self._host.threads().items()})
        while not self._over.wait(self._period):
            self._tell_judge({})
            failure = self.look()
            if failure is not None:
                self._say(failure)
                self._end(failure.exit_code)

    def _say(self, failure: Failed) -> None:
        """On a stream of its own: the role that hangs may hold the lock of the one that everybody uses."""
        with suppress(OSError):
            if terminal_columns():
                os.write(1, _SHOW_CURSOR.encode())
            tell(failure, self._console or os.fdopen(os.dup(2), "w"))

    def _start_judge(self) -> subprocess.Popen[bytes]:
        root = str(Path(watchdog_process.__file__).parents[2])
        task = f"main({os.getpid()}, {self._exit.number:d}, {self._limit + self._period + _SLACK})"
        program = f"import sys; sys.path.insert(0, {root!r}); from {watchdog_process.__name__} import main; {task}"
        # In a session of its own: a launcher that ends our process group is not to silence it.
        self._judge = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program], stdin=subprocess.PIPE, start_new_session=True
        )
        heading = f"arena: the run has ended: {self._title()}, which keeps Python's lock"
        self._tell_judge({"heading": heading, "ending": self._hint})
        return self._judge

    def _tell_judge(self, said: object) -> None:
        """Gives a sign of life; without a judge, should something have killed it, there is still this thread."""
        assert self._judge is not None and self._judge.stdin is not None
        with suppress(BrokenPipeError):
            self._judge.stdin.write(json.dumps(said).encode() + b"\n")
            self._judge.stdin.flush()
