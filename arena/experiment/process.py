"""One trial as a process: `arena train`, in a session of its own, which dies with the process that drives it."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from arena.diagnostics.start_folder import anchored
from arena.records.atomic import private, writing
from arena.run.bound_process import bound
from arena.run.mpirun import process_settings

_DEVICES = "CUDA_VISIBLE_DEVICES"


class TrialProcess:
    """The process of a trial, from its start on.

    Raises:
        WriteError: the log cannot be written.
    """

    def __init__(self, arguments: Sequence[str], log: Path, *, devices: Sequence[str] | None = None) -> None:
        command = [sys.executable, "-m", "arena", *arguments]
        variables: Mapping[str, str] = {} if devices is None else {_DEVICES: ",".join(devices)}
        self._began = time.monotonic()
        with writing(log), open(log, "ab", opener=private) as output:
            output.write(f"$ arena {shlex.join(arguments)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                # SIGUSR1, the request to end, would end a process that starts; it comes when the trial handles it.
                bound(command, blocked=[signal.SIGUSR1]),
                env={**process_settings(os.environ), **variables},
                cwd=anchored("."),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C of a terminal reaches the driver alone
            )

    @property
    def seconds(self) -> float:
        """The time since its start."""
        return time.monotonic() - self._began

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def exit(self) -> int | None:
        """Its exit status, -n after signal n; None while it runs."""
        return self._process.poll()

    def ask(self) -> None:
        """Asks it to save and to end: it exits with 0, and leaves `requeue` in its folder if ticks are left."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    def kill(self) -> None:
        """Kills it; a launcher that it has started ends with it."""
        if self.exit is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        """Waits for the end of a process that was killed."""
        with suppress(subprocess.TimeoutExpired):  # in a call of the kernel that does not come back
            self._process.wait(seconds)


def wait_for_end(processes: Iterable[TrialProcess], seconds: float) -> None:
    """Waits until one of some processes has ended, or for so many seconds; a signal does not end the wait."""
    poll = select.poll()  # unlike `select`, for descriptors of any number
    with ExitStack() as opened:
        for process in processes:
            with suppress(AttributeError, OSError):  # of a system without pidfd; then the timeout ends the wait
                descriptor = os.pidfd_open(process.pid)
                opened.callback(os.close, descriptor)
                poll.register(descriptor, select.POLLIN)
        poll.poll(1000 * seconds)


def last_lines(log: Path, number: int) -> list[str]:
    """The last lines of a log that say something."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 20_000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-number:]
