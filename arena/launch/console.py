"""Where the output of a process goes: to the console, with a display that fits it, or into the log of its rank."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from arena.launch import mpirun
from arena.launch.events import Event, EventDisplay, write_event
from arena.plan.plan import Role
from arena.records.atomic import private, writing
from arena.roles.protocol import Failed
from arena.run.run import Run
from arena.terminal.output import printable, say

if TYPE_CHECKING:
    from arena.run.display import Display

_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_log = logging.getLogger("arena")  # not logging's root logger: its name would look like the role `root`


def tell(failure: Failed, stream: IO[str] | None = None) -> None:
    """Writes why a run has ended, to stderr if no other stream is given."""
    if failure.exit_code == 2:
        text = f"arena: error: {failure.message}"
    else:
        text = f"arena: the run has ended: {failure.who}\n{failure.message}"
    print(printable(text), file=stream or sys.stderr, flush=True)


class Output:
    """The output of the process that leads a run: on the console, or as events."""

    def display(self, run: Run) -> Display:
        """Shows the progress of a stage."""
        return display_for(run)

    def say(self, text: str) -> None:
        """Writes a line that belongs to the result."""
        if mpirun.EVENTS_VARIABLE in os.environ:
            write_event(Event("message", {"text": text}))
        else:
            say(text)

    def complain(self, text: str) -> None:
        """Writes why and where the run has ended early."""
        print(printable(text), file=sys.stderr, flush=True)

    def fail(self, failure: Failed) -> None:
        """Writes why there is no result."""
        tell(failure)


CONSOLE_OUTPUT = Output()


def display_for(run: Run) -> Display:
    """The live panel if stdout ends at the user's terminal, else plain lines; events for `arena.train`."""
    if mpirun.EVENTS_VARIABLE in os.environ:
        return EventDisplay(run, write_event)
    from arena.terminal.display import make_display  # only rank 0 has a display

    colors = {name: policy.config.color for name, policy in run.plan.policies.items()}
    return make_display(sys.stdout, columns=terminal_columns(), total_ticks=run.total_ticks, colors=colors)


def terminal_columns() -> int:
    """The width of the user's terminal; 0 if stdout does not end at one."""
    columns = os.environ.get(mpirun.TERMINAL_VARIABLE, "")
    if columns.isdigit():
        return int(columns)
    if mpirun.under_launcher():
        return 80 if _launcher_has_terminal() else 0
    return os.get_terminal_size().columns if sys.stdout.isatty() else 0


def _launcher_has_terminal() -> bool:
    """Whether the launcher's stdout is a terminal; this process's stdout is connected to the launcher."""
    target = Path(f"/proc/{os.getppid()}/fd/1")
    try:
        return target.is_char_device() and os.readlink(target).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False


def log_beside_display(run: Run, roles: tuple[Role, ...]) -> None:
    """Logs of rank 0 go to a file, as its console is for the display."""
    log = run.folder.log_path(0)
    logging.raiseExceptions = False  # without it, a full disk would print tracebacks to the console
    with writing(log):
        open(log, "ab", opener=private).close()  # logging would make it readable for all users
        logging.basicConfig(filename=log, level=logging.INFO, format=_LOG_FORMAT, force=True)
    _say_roles(run, roles)


def log_to_stderr(run: Run, roles: tuple[Role, ...]) -> None:
    """Logs of another rank go to stderr, which is its log file already."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)
    _say_roles(run, roles)


def _say_roles(run: Run, roles: tuple[Role, ...]) -> None:
    _log.info("hosts %s", ", ".join(map(run.describe, roles)) or "nothing: the plan has no role for this process")


class Console:
    """The console of the user, for a process whose own output may go elsewhere."""

    def __init__(self) -> None:
        self.stderr: IO[str] = os.fdopen(os.dup(2), "w")


def speak_into(log: Path) -> None:
    """Directs the output of this process, including its C libraries, to its log."""
    sys.stdout.flush()
    sys.stderr.flush()
    with writing(log):
        file = private(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.close(file)
