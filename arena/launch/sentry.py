"""Watches the process of the root from beside it: where other roles run there too, one that hangs stops the root.

The root's own watch (`arena.roles.watch`) needs its turn. So a thread looks whether the turn goes on, and ends the run
when one call of a game, an algorithm or the recorder takes too long. The thread needs Python's lock: for a call that
never gives it back there is a timer in C, which writes the stacks into a pipe and ends the process; a small process at
the other end of the pipe (`arena.launch.last_words`) says what has happened.
"""

from __future__ import annotations

import faulthandler
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

from arena.comm import whereabouts
from arena.comm.host import Host
from arena.comm.peeking import delays, starved_seconds
from arena.comm.whereabouts import State
from arena.launch import last_words
from arena.launch.console import tell
from arena.launch.terminal import terminal_columns
from arena.messages import Failed
from arena.run import Run

_LOOKS = 4  # within the limit
_FIRST_LOOK = 0.02  # seconds
_SLACK = 5.0  # seconds that the thread is given beyond the limit, however busy the machine is; then the timer rings
_SHOW_CURSOR = "\x1b[?25h\n"  # ECMA-48 with DEC's private modes


class Sentry:
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
        host: Host,
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
        self._speaker: subprocess.Popen[bytes] | None = None  # where there are games and algorithms beside the root
        self._turn, self._since, self._looked = -1, clock(), clock()
        self._delays = delays(os.getpid())

    def __enter__(self) -> Sentry:
        if self._host.shared:
            self._speaker = self._start_speaker()
        self._arm()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_SLACK)
        faulthandler.cancel_dump_traceback_later()
        if self._speaker is not None:
            self._speaker.kill()  # it has nothing to say
            self._speaker.communicate()

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
        roles = self._host.whereabouts(stacks=True)
        busy = [role._replace(seconds=seconds) for role in roles if role.state is State.RUNS]
        others = [role for role in roles if role.state is State.WAITS]
        title = self._title(*(self._name(role.address) for role in busy[:1]))
        return Failed(title, f"{whereabouts.report(busy, others, self._name)}\n{self._hint}", exit_code=1)

    def _title(self, role: str = "a role of rank 0") -> str:
        return f"nothing has moved for {self._limit:g} s: {role} has not come back from a call"

    @property
    def _hint(self) -> str:
        key = "watchdog_s" if self._run.plan.env_timeout_s is None else "env_timeout_s"
        return f"one call of a game or an algorithm may take {self._limit:g} s; `{key}` can give it more"

    def _name(self, address: int) -> str:
        return f"{self._run.describe(self._run.roles[address])} (rank 0)"

    # --------------------------------------------------------------------------------------------- thread and timer

    def _watch(self) -> None:
        self._over.wait(min(_FIRST_LOOK, self._period))
        self._tell_speaker({thread: self._name(address) for address, thread in self._host.threads().items()})
        while not self._over.wait(self._period):
            self._arm()
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

    def _start_speaker(self) -> subprocess.Popen[bytes]:
        root = str(Path(last_words.__file__).parents[2])
        program = f"import sys; sys.path.insert(0, {root!r}); from {last_words.__name__} import main; main()"
        # In a session of its own: a launcher that ends our process group is not to silence it.
        self._speaker = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program], stdin=subprocess.PIPE, start_new_session=True
        )
        heading = f"arena: the run has ended: {self._title()}, which keeps Python's lock"
        self._tell_speaker({"heading": heading, "ending": self._hint})
        return self._speaker

    def _tell_speaker(self, said: object) -> None:
        if self._speaker is not None and self._speaker.stdin is not None:
            self._speaker.stdin.write(json.dumps(said).encode() + b"\n")
            self._speaker.stdin.flush()

    def _arm(self) -> None:
        """Winds the timer up; it runs down when this is not called again in time."""
        speaker = self._speaker
        pipe = 2 if speaker is None or speaker.stdin is None else speaker.stdin.fileno()
        seconds = self._limit + self._period + _SLACK
        faulthandler.dump_traceback_later(seconds, exit=True, file=pipe)
