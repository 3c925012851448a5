"""The program of a simulator: started in a session of its own, watched, and ended with all of its children."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from arena.external.shared_memory.keeper import TERMINATE_S

_MOST_OUTPUT = 16 * 2**20  # bytes; a longer output is cut to its last 8 MiB
_LAST_LINES, _LAST_BYTES = 20, 8192
_STATES = {"S": "asleep", "D": "waiting for a device", "T": "stopped", "t": "stopped", "Z": "ended", "X": "ended"}
_KILL_S = 1.0  # longest wait for the end of a killed program
_PAUSE_S = 0.005


class Program:
    """A running program.

    Args:
        output: where stdout and stderr go; None: an unnamed file.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: IO[bytes] | None = None,
        cwd: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._output = output if output is not None else tempfile.TemporaryFile()  # noqa: SIM115  # see `_close_output`
        self._owns_output = output is None
        self._readable = self._output.readable() and self._output.seekable()
        descriptor = self._output.fileno()
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
        try:
            self._process = subprocess.Popen(  # without `preexec_fn`, which would need a fork: MPI does not allow one
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except BaseException:
            self._close_output()
            raise
        self.pid = self._process.pid

    def ending(self) -> str:
        """How the program has ended: `was killed by SIGKILL`, `ended with status 7`; empty while it runs.

        The first call after its end kills what is left of its process group.
        """
        code = self._process.returncode
        if code is None:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return ""
            self._signal(signal.SIGKILL)  # its children, before its number is free for other processes
            code = self._process.wait()
        if code >= 0:
            return f"ended with status {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"was killed by {name}"

    def state(self) -> str:
        """What the program does, such as `running` or `asleep`; empty on systems without `/proc`."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text(errors="replace")
        except OSError:
            return ""
        return _STATES.get(status.rpartition(")")[2].split()[0], "running")

    def last_lines(self) -> str:
        """The last lines of its output, without control characters; empty where the output cannot be read."""
        if not self._readable or self._output.closed:
            return ""
        descriptor = self._output.fileno()
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, _LAST_BYTES, max(0, size - _LAST_BYTES)).decode(errors="replace")
        lines = tail.strip().splitlines()[-_LAST_LINES:]
        return "\n".join("".join(letter if letter.isprintable() else " " for letter in line) for line in lines)

    def limit_output(self) -> None:
        """Keeps the last 8 MiB of an output longer than 16 MiB; what is written meanwhile may be lost."""
        if not self._readable:
            return
        descriptor = self._output.fileno()
        size = os.fstat(descriptor).st_size
        if size > _MOST_OUTPUT:
            kept = os.pread(descriptor, _MOST_OUTPUT // 2, size - _MOST_OUTPUT // 2)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, kept)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _close_output(self) -> None:
        if self._owns_output:
            self._output.close()


def end_programs(programs: Sequence[Program]) -> None:
    """Ends programs together: SIGTERM to their process groups, SIGKILL after two seconds; frees their outputs."""
    for number, seconds in ((signal.SIGTERM, TERMINATE_S), (signal.SIGKILL, _KILL_S)):
        running = [program for program in programs if not program.ending()]
        for program in running:
            program._signal(number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not all(program.ending() for program in running):
            time.sleep(_PAUSE_S)
    for program in programs:
        program._close_output()
