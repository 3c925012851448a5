"""The processes of a run that a Trainer has started: they play on request, and wait between two legs."""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import IO, Any

from arena.diagnostics.start_folder import anchored
from arena.run.controller import ADDRESS_VARIABLE, KEY_VARIABLE, receive, send
from arena.run.mpirun import process_settings

_LOOK_SECONDS = 0.2  # between two looks at the processes
_END_SECONDS = 10.0  # for the processes to end when the Trainer is closed


class RemoteRun:
    """A run of `arena train` whose processes a Trainer holds."""

    def __init__(self, config: str, folder: Path, ranks: str, hosts: str | None = None, *, resume: bool) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="arena-trainer-")
        home = Path(self._home.name)
        (home / "config.yaml").write_text(config)
        key = secrets.token_bytes(32)
        self._key, self._address = key, str(home / "connection")
        self._listener = Listener(self._address, family="AF_UNIX", authkey=key)
        self._errors: IO[bytes] = open(home / "errors", "w+b")  # noqa: SIM115 - closed by close()
        command = [sys.executable, "-m", "arena", "train", str(home / "config.yaml"), f"--ranks={ranks}"]
        command += [f"--run-dir={folder}", *(["--resume"] if resume else [])]
        command += [] if hosts is None else [f"--hosts={hosts}"]
        self._process = subprocess.Popen(
            command,
            env={**process_settings(os.environ), ADDRESS_VARIABLE: self._address, KEY_VARIABLE: key.hex()},
            cwd=anchored("."),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )
        self._connection: Connection | None = None
        self._tick: int | None = None  # at which the run waits
        atexit.register(self.close)  # before Python removes the folder, and the listener the file in it

    def play(self, tick: int, changes: Mapping[str, Any]) -> int | None:
        """Plays the leg that begins at a tick; returns the tick at which the run waits then, None if it has ended.

        After the death of a process the run goes back to the tick, and gets the order again.
        """
        if self._tick is None:
            self._tick = self._await_tick()
        while self._tick is not None and self._tick <= tick:
            assert self._connection is not None, "it has sent its tick"
            with suppress(OSError):  # it has ended meanwhile
                send(self._connection, {"go": dict(changes)})
            self._tick = self._await_tick()
        return self._tick

    def _await_tick(self) -> int | None:
        """The tick at which the run waits; None if its processes have ended."""
        while True:
            if self._connection is None:  # until the process that leads the run connects
                accepted: list[Connection] = []
                accept = partial(lambda found: found.append(self._listener.accept()), accepted)
                waiting = threading.Thread(target=accept, daemon=True)
                waiting.start()
                while waiting.is_alive():
                    waiting.join(_LOOK_SECONDS)
                    if waiting.is_alive() and self._process.poll() is not None:
                        Client(self._address, family="AF_UNIX", authkey=self._key).close()  # so that `accept` returns
                        waiting.join()
                        for connection in accepted:
                            connection.close()
                        return None
                self._connection = accepted[0]
            try:
                while not self._connection.poll(_LOOK_SECONDS):
                    if self._process.poll() is not None and not self._connection.poll(0):
                        return None
                return int(receive(self._connection)["waits"])
            except (EOFError, OSError):  # the process that led the run has died, or has ended
                self._connection.close()
                self._connection = None

    def ended(self) -> tuple[int, str]:
        """The exit status of the processes, which have ended, and what they have written to stderr."""
        status = self._process.wait()
        self._errors.seek(0)
        return status, self._errors.read().decode(errors="replace").strip()

    def interrupt(self) -> None:
        """Asks the processes to save and end, as Ctrl-C does, and waits until they have."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def close(self) -> None:
        """Ends the processes; a second call does nothing. The end of the program calls it, too."""
        atexit.unregister(self.close)
        if self._connection is not None:
            with suppress(OSError):
                send(self._connection, {"stop": True})
        try:
            self._process.wait(_END_SECONDS if self._connection is not None else 0)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._listener.close()
        self._errors.close()
        self._home.cleanup()
