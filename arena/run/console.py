"""Where the output of a process goes: to the console, with a display that fits it, or into the log of its rank.

Rank 0 sends events, which report the progress to `arena.train`, as lines of its stderr.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from arena.errors import MISTAKE, listed
from arena.plan.plan import Role
from arena.records.atomic import private, writing
from arena.roles.protocol import Failed
from arena.roles.run import Run
from arena.run import mpirun
from arena.terminal.output import printable, say

if TYPE_CHECKING:
    from arena.records.scoreboard import Score, Scoreboard
    from arena.roles.state import Display

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_PROGRESS_EVERY = 0.2  # seconds
_log = logging.getLogger("arena")  # not logging's root logger: its name would look like the role `root`


class Event(NamedTuple):
    """One event of a run.

    Args:
        kind: `start`: a stage of the run begins; `progress`; or `message`: a line that `arena train` would show.
        data: of `start`: `run_dir`, `round` and `tick`; of `progress`: `ticks` of all matches together, `total`, and
            `policies`, the fields of `PolicyScore` by policy; of `message`: `text`.
    """

    kind: str
    data: Mapping[str, Any]

    def __str__(self) -> str:
        """The event in a line, for `on_event=print`."""
        data = self.data
        if self.kind == "progress":
            returns = {name: score["last_return"] for name, score in data["policies"].items()}
            shown = (f"{name} return {'-' if one is None else f'{one:.2f}'}" for name, one in returns.items())
            return " | ".join([f"{data['ticks']}/{data['total']} ticks", *shown])
        return str(data["text"]) if self.kind == "message" else f"begins at tick {data['tick']}"


class PolicyScore(NamedTuple):
    """The results of one policy.

    Args:
        episodes: number of finished episodes.
        mean_return: over all episodes, of the mean over the policy's entities; None if there is no episode.
        last_return: the same over the last 100 episodes.
        win_rate: share of games won, draws counted as games, among the last 100 with a winner or a draw, against all
            opponents: other policies, snapshots, or itself, which is half a win. None if there are none.
    """

    episodes: int
    mean_return: float | None
    last_return: float | None
    win_rate: float | None


def policy_score(score: Score) -> PolicyScore:
    """The results of a policy, from its statistics."""
    return PolicyScore(score.episodes, score.returns.mean, score.returns.last_mean, score.win_rate)


class EventDisplay:
    """A display that shows nothing and emits events."""

    def __init__(self, run: Run, emit: Callable[[Event], None]) -> None:
        self._run, self._emit = run, emit
        self._next = 0.0
        self._pending: tuple[int, Scoreboard] | None = None

    def start(self) -> None:
        """Emits `start`."""
        run = self._run
        self._next = time.monotonic() + _PROGRESS_EVERY
        self._emit(Event("start", {"run_dir": str(run.path), "round": run.plan.round, "tick": run.leg.start}))

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None:
        """Emits `progress` if it is time."""
        self._pending = ticks_done, scoreboard
        if time.monotonic() >= self._next:
            self.stop()

    def message(self, text: str) -> None:
        """Emits `message`."""
        self._emit(Event("message", {"text": text}))

    def stop(self) -> None:
        """Emits the last `progress`, if it has not been emitted."""
        if self._pending is None:
            return
        (ticks, scoreboard), self._pending = self._pending, None
        self._next = time.monotonic() + _PROGRESS_EVERY
        policies = {name: policy_score(score)._asdict() for name, score in scoreboard.shown.items()}
        self._emit(Event("progress", {"ticks": ticks, "total": self._run.total_ticks, "policies": policies}))


def _write_event(event: Event) -> None:
    """Writes an event to stderr, for the `arena.train` that has started the launcher."""
    sys.stderr.write(f"{mpirun.EVENT_MARK}{json.dumps(event._asdict())}\n")  # in one write, as many processes write
    sys.stderr.flush()


def write_failure(failure: Failed, stream: IO[str] | None = None) -> None:
    """Writes why a run has ended, to stderr if no other stream is given."""
    if failure.exit_code == MISTAKE:
        text = f"arena: error: {failure.message}"
    elif failure.exit_code > 128:  # by a signal, which is not the fault of a role
        text = f"arena: {failure.message}"
    else:
        text = f"arena: the run has ended: {failure.who}\n{failure.message}"
    print(printable(text), file=stream or sys.stderr, flush=True)


class Output:
    """The output of the process that leads a run: on the console, or as events."""

    def display(self, run: Run) -> Display:
        """Shows the progress: the live panel if stdout ends at the user's terminal, else plain lines."""
        if mpirun.EVENTS_VARIABLE in os.environ:
            return EventDisplay(run, _write_event)
        from arena.terminal.display import make_display  # only rank 0 has a display

        colors = {name: policy.config.color for name, policy in run.plan.policies.items()}
        return make_display(sys.stdout, columns=terminal_columns(), total_ticks=run.total_ticks, colors=colors)

    def say(self, text: str) -> None:
        """Writes a line that belongs to the result."""
        if mpirun.EVENTS_VARIABLE in os.environ:
            _write_event(Event("message", {"text": text}))
        else:
            say(text)

    def complain(self, text: str) -> None:
        """Writes why and where the run has ended early."""
        print(printable(text), file=sys.stderr, flush=True)

    def fail(self, failure: Failed) -> None:
        """Writes why there is no result."""
        write_failure(failure)


CONSOLE_OUTPUT = Output()


def terminal_columns() -> int:
    """The width of the user's terminal; 0 if stdout does not end at one."""
    columns = os.environ.get(mpirun.TERMINAL_VARIABLE, "")
    if columns.isdigit():
        return int(columns)
    if not mpirun.under_launcher():
        return os.get_terminal_size().columns if sys.stdout.isatty() else 0
    target = Path(f"/proc/{os.getppid()}/fd/1")  # this process's stdout is connected to the launcher
    try:
        is_terminal = target.is_char_device() and os.readlink(target).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return 0
    return 80 if is_terminal else 0


def log_to_folder(run: Run) -> None:
    """Makes the logs of rank 0 go to a file, as its console is for the display."""
    log = run.folder.log_path(0)
    logging.raiseExceptions = False  # without it, a full disk would print tracebacks to the console
    with writing(log):
        open(log, "ab", opener=private).close()  # logging would make it readable for all users
        logging.basicConfig(filename=log, level=logging.INFO, format=_LOG_FORMAT, force=True)


def direct_output(log: Path) -> None:
    """Directs the output of another rank, including its C libraries, to its log, and its logs to stderr."""
    sys.stdout.flush()
    sys.stderr.flush()
    with writing(log):
        file = private(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.close(file)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)


def log_roles(run: Run, roles: tuple[Role, ...], rank: int) -> None:
    """Logs what this process hosts in a stage."""
    hosted = listed([*map(run.describe, roles)]) or "nothing: the plan has no role for this process"
    _log.info("%shosts %s", f"{run.plan.place(rank)} " if run.plan.hosts else "", hosted)
