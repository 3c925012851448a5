"""What a person sees of a run: whether a terminal is there, and the display that fits it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from arena.launch import mpirun
from arena.run.display import Display
from arena.run.run import Run
from arena.terminal.display import make_display


def display_for(run: Run) -> Display:
    """The live panel where a person's terminal is at the end of stdout, else plain lines."""
    columns = terminal_columns()
    return make_display(
        sys.stdout,
        terminal=columns > 0,
        width=columns or None,
        total_ticks=run.total_ticks,
        colors={name: policy.color for name, policy in run.plan.policies.items()},
    )


def terminal_columns() -> int:
    """The width of the user's terminal; 0 where stdout does not end at one."""
    told = os.environ.get(mpirun.TERMINAL_VARIABLE, "")
    if told.isdigit():
        return int(told)
    if mpirun.under_launcher():
        return 80 if _launcher_has_terminal() else 0
    return os.get_terminal_size().columns if sys.stdout.isatty() else 0


def _launcher_has_terminal() -> bool:
    """Where the launcher's own stdout ends: ours ends at the launcher, which may even give us a pseudo-terminal."""
    target = Path(f"/proc/{os.getppid()}/fd/1")
    try:
        return target.is_char_device() and os.readlink(target).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False
