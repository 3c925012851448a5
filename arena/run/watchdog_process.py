"""The watchdog process: watches its parent process, ends it when heartbeats stop, and writes why.

Stdin carries lines of JSON: the first and last line of the message with the names of the roles by their addresses, and
then empty objects, which are heartbeats. If none has come for too long, a signal
(`arena.run.watchdog`) makes the parent write its stacks to the same pipe, and exit. If the parent ends by itself,
this process ends silently.

Time in which the parent could not run is not counted: it was stopped (SIGSTOP, Ctrl-Z, `scontrol suspend`), or other
processes had the cores. Time in which this process did not run is not counted either: the container or the machine was
frozen. Without `/proc` only the latter is noticed.

If the MPI daemon that has started the parent is cut off from the launcher, this process kills it, and with it all
processes of this host: the run starts again on other hosts, where rank 0 waits for the lock of the run folder.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress

from arena.diagnostics.connections import cut_off_from
from arena.diagnostics.process_load import delays, starved_seconds, stopped
from arena.diagnostics.stacks import killed_report
from arena.terminal.output import printable

_LOOK_SECONDS = 1.0  # between two checks
_ANSWER_SECONDS = 30.0  # for the stacks; then the process is killed


class HeartbeatTimer:
    """Counts the seconds without a heartbeat of a process that was not stopped; it looks every `look` seconds."""

    def __init__(self, now: float, *, look: float = _LOOK_SECONDS) -> None:
        self._looked, self._look = now, look
        self._stopped = False
        self.seconds = 0.0

    def look(self, now: float, *, stopped: bool) -> float:
        """Seconds without a heartbeat."""
        gap, self._looked = now - self._looked, now
        if not stopped and not self._stopped:
            self.seconds += min(
                gap, 2 * self._look
            )  # a late check: this process did not run, and perhaps the parent did not either
        self._stopped = stopped
        return self.seconds


def main(pid: int, number: int, patience: float, daemon: int | None) -> None:
    """Waits until the process `pid`, the parent of this one, ends; or ends it by a signal after too long a silence.

    Args:
        patience: seconds without a heartbeat after which it is ended.
        daemon: the process of MPI's launcher that has started it; None: it is the launcher itself, which `arena train`
            watches, or the launcher does not start the run again.
    """
    facts: dict[str, str] = {}
    rest, silence, before = "", HeartbeatTimer(time.monotonic()), delays(pid)
    while True:
        if os.getppid() != pid or (part := _read(_LOOK_SECONDS)) == b"":
            return
        if daemon is not None and cut_off_from(daemon) is not None:
            with suppress(ProcessLookupError):
                os.kill(daemon, signal.SIGKILL)  # with which its processes end: `die_with_parent`
        seconds = silence.look(time.monotonic(), stopped=stopped(pid))
        if part is not None:
            news, rest = read_lines(rest + part.decode(errors="replace"))
            facts |= news
            rest = rest if rest.startswith("{") else ""  # unrequested stacks, of a child of a game
            silence.seconds, before = 0.0, delays(pid)
        elif seconds > patience and seconds - starved_seconds(before, delays(pid)) > patience:
            break
    _send(pid, number)
    stacks, silence = b"", HeartbeatTimer(time.monotonic())
    # A child of the process may hold the pipe open for longer.
    while os.getppid() == pid and silence.look(time.monotonic(), stopped=stopped(pid)) < _ANSWER_SECONDS:
        part = _read(_LOOK_SECONDS)
        if part == b"":
            break
        stacks += part or b""
    while part := _read(0.0):
        stacks += part
    _send(pid, signal.SIGKILL)
    heading, ending = facts.pop("heading"), facts.pop("ending")
    names = {int(address): name for address, name in facts.items()}
    sys.stderr.write(printable(f"{killed_report(heading, stacks.decode(errors='replace'), names)}\n{ending}\n"))


def _send(pid: int, number: int) -> None:
    if os.getppid() == pid:  # else it has ended, and its number may belong to another process
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def read_lines(text: str) -> tuple[dict[str, str], str]:
    """The contents of all complete lines of JSON, and the rest."""
    facts: dict[str, str] = {}
    while text.startswith("{") and "\n" in text:
        line, _, text = text.partition("\n")
        facts.update(json.loads(line))
    return facts, text


def _read(seconds: float) -> bytes | None:
    """The bytes that arrive within these seconds; None: none arrived; empty: the pipe is closed."""
    return os.read(0, 65536) if select.select([0], [], [], seconds)[0] else None
