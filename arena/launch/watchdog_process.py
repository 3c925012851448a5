"""Watches the process that has started it, ends that one when it gives no sign of life, and says why.

On stdin come lines of JSON: what to say first and last, the names of the roles by the numbers of their threads, and
then empty ones, which are signs of life. If none has come for too long, a signal (`arena.launch.exit_signal`) makes the
process write its stacks there too, and exit. If the process ends by itself, this one does so without a word.

Time in which the process could not run is not held against it: it was stopped (SIGSTOP, Ctrl-Z, `scontrol suspend`), or
others had the cores. Neither is time in which this process did not run either: its container was frozen, or the whole
machine was. Where there is no `/proc` only the latter is noticed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

from arena.diagnostics.process_load import delays, starved_seconds, stopped
from arena.diagnostics.stacks import last_words

_LOOK_SECONDS = 1.0  # between two looks
_ANSWER_SECONDS = 30.0  # for the stacks; then the process is killed


class Silence:
    """Counts the seconds in which a process has given no sign of life though it was not stopped.

    Args:
        now: seconds.
        look: seconds between two looks, if nothing hinders.
    """

    def __init__(self, now: float, *, look: float = _LOOK_SECONDS) -> None:
        self._looked, self._look = now, look
        self._stopped = False
        self.seconds = 0.0

    def look(self, now: float, *, stopped: bool) -> float:
        """For how long the process has been silent."""
        gap, self._looked = now - self._looked, now
        if not stopped and not self._stopped:
            self.seconds += min(gap, 2 * self._look)  # whoever looks much later has not run, nor perhaps the process
        self._stopped = stopped
        return self.seconds


def main(pid: int, number: int, patience: float) -> None:
    """Waits until the process ends, or ends it.

    Args:
        pid: of the process, which is the parent of this one.
        number: of the signal that ends it.
        patience: seconds for which it may give no sign of life.
    """
    told = _heard(pid, patience)
    if told is None:
        return
    _send(pid, number)
    dump = _stacks(pid)
    _send(pid, signal.SIGKILL)
    heading, ending = told.pop("heading"), told.pop("ending")
    words = last_words(heading, dump, {int(thread): name for thread, name in told.items()})
    sys.stderr.write(f"{words}\n{ending}\n")


def _send(pid: int, number: int) -> None:
    if os.getppid() == pid:  # else it has gone, and its number may be somebody else's
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def parted(said: str) -> tuple[dict[str, str], str]:
    """What was told in whole lines of JSON, and the rest."""
    told: dict[str, str] = {}
    while said.startswith("{") and "\n" in said:
        line, _, said = said.partition("\n")
        told.update(json.loads(line))
    return told, said


def _heard(pid: int, patience: float) -> dict[str, str] | None:
    """What was told before the process fell silent; None: it has ended."""
    told: dict[str, str] = {}
    rest, silence, before = "", Silence(time.monotonic()), delays(pid)
    while os.getppid() == pid:
        part = _read(_LOOK_SECONDS)
        if part == b"":
            return None
        seconds = silence.look(time.monotonic(), stopped=stopped(pid))
        if part is not None:
            news, rest = parted(rest + part.decode(errors="replace"))
            told |= news
            rest = rest if rest.startswith("{") else ""  # stacks that were not asked for: of a child of a game
            silence.seconds, before = 0.0, delays(pid)
        elif seconds > patience and seconds - starved_seconds(before, delays(pid)) > patience:
            return told
    return None


def _stacks(pid: int) -> str:
    """What the process writes before it ends; a child of it may hold the pipe open for longer."""
    said, silence = b"", Silence(time.monotonic())
    while os.getppid() == pid and silence.look(time.monotonic(), stopped=stopped(pid)) < _ANSWER_SECONDS:
        part = _read(_LOOK_SECONDS)
        if part == b"":
            break
        said += part or b""
    while part := _read(0.0):
        said += part
    return said.decode(errors="replace")


def _read(seconds: float) -> bytes | None:
    """What comes within so many seconds; None: nothing; no bytes: nobody can write any more."""
    return os.read(0, 65536) if select.select([0], [], [], seconds)[0] else None
