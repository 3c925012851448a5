"""Running a command with a time limit."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_TO_CLEAN_UP = 3.0  # seconds that a launcher has to end what it has start_command


class ProcessOutput(NamedTuple):
    """The exit code and output of another process; `code` is None if it was ended at its time limit."""

    code: int | None
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line of its output, for a message."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip(" -\n\0")]
        return lines[-1][:200] if lines else "it said nothing"


def ask(command: Sequence[str], *, seconds: float, settings: Mapping[str, str] | None = None) -> ProcessOutput:
    """Runs a command to its end, or ends it when its time is over."""
    return wait_for_command(start_command(command, settings), seconds)


def start_command(command: Sequence[str], settings: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """A command that runs in a session of its own, with these environment variables; None: with those of here."""
    return subprocess.Popen(
        command,
        env=dict(settings) if settings is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def wait_for_command(process: subprocess.Popen[str], seconds: float) -> ProcessOutput:
    """Waits for a command, and ends it when its time is over: a launcher can end its processes first."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        code = process.poll()  # not None: it has ended, and others were waited for until now
        if code is None:
            process.terminate()
        try:
            return ProcessOutput(code, *process.communicate(timeout=_TO_CLEAN_UP))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return ProcessOutput(None, *process.communicate())
    return ProcessOutput(process.returncode, out, err)
