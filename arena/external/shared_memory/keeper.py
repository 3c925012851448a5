"""A process that cleans up when its parent process is killed: ends simulators and removes the files of their links.

The parent starts one such process when it makes its first link (`CleanupProcess`), and names each link through a
pipe. When the pipe closes while links are left, the parent was killed: each process whose environment has the link's
name in `LINK_VARIABLE` gets SIGTERM, and SIGKILL two seconds later; then the link's files and folder are removed.

The process runs this file alone and imports little, so that it starts fast and stays small.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

LINK_VARIABLE = "ARENA_LINK"
"""The variable in the environment of a simulator; its value is the path of the link's first file."""

TERMINATE_S = 2.0  # from SIGTERM to SIGKILL
_KILL_S = 1.0  # longest wait for the end of killed processes
_PAUSE_S = 0.02


class CleanupProcess:
    """The parent's side, one for all links of a process; the cleanup process runs while there are links."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[str, str | None] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, path: Path, folder: Path | None) -> None:
        """Registers a link for cleanup, with the folder that is removed with its files; None: it stays."""
        with self._lock:
            self._links[str(path)] = None if folder is None else str(folder)
            if self._process is None:
                # In a session of its own: a launcher that ends our process group must not end it, too.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True
                )
            self._send()

    def remove(self, path: Path) -> None:
        """Unregisters a link that the caller has cleaned up; stops the cleanup process after the last one."""
        with self._lock:
            self._links.pop(str(path), None)
            self._send()
            if not self._links and self._process is not None:
                process, self._process = self._process, None
                assert process.stdin is not None
                with suppress(BrokenPipeError):
                    process.stdin.close()
                process.wait()

    def _send(self) -> None:
        """Sends all links; without the process, which may have been killed, leftovers stay until the next link."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(self._links).encode() + b"\n")
                self._process.stdin.flush()


keeper = CleanupProcess()
"""The keeper of this process."""


def clean_up(links: dict[str, str | None]) -> None:
    """Ends all processes of the links and removes their files, as of `CleanupProcess.add`."""
    for number, seconds in ((signal.SIGTERM, TERMINATE_S), (signal.SIGKILL, _KILL_S)):
        deadline = time.monotonic() + seconds
        signaled: set[int] = set()
        while pids := processes_of(links):
            for pid in pids - signaled:  # also those that were started meanwhile
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            signaled |= pids
            if time.monotonic() > deadline:
                break
            time.sleep(_PAUSE_S)
    for first, folder in links.items():
        for path in files_of(Path(first)):
            with suppress(OSError):
                path.unlink()
        if folder is not None:
            with suppress(OSError):
                os.rmdir(folder)


def processes_of(links: dict[str, str | None]) -> set[int]:
    """The living processes that were started for one of the links, and their children."""
    variables = {f"{LINK_VARIABLE}={path}".encode() for path in links}
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's; what has ended has no environment left
            if variables & set((place / "environ").read_bytes().split(b"\0")):
                found.add(int(place.name))
    return found


def files_of(first: Path) -> list[Path]:
    """The files of a link that are there: each is named like the one before it, with `_` behind."""
    try:
        names = [path for path in first.parent.iterdir() if path.name.startswith(first.name)]
    except OSError:  # the folder was removed by hand
        return []
    return sorted(path for path in names if not path.name.removeprefix(first.name).strip("_"))


if __name__ == "__main__":
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # of a launcher that ends all processes of a job
        signal.signal(number, signal.SIG_IGN)
    links: dict[str, str | None] = {}
    for line in sys.stdin.buffer:
        if line.endswith(b"\n"):
            links = json.loads(line)
    clean_up(links)
