"""A look into another process of this node that does not answer: its Python stacks.

Every process keeps a file without a name. A signal makes it write its stacks there, in C, so also when Python's lock is
held, and others read the file through `/proc/<pid>/fd`. The signal is a real-time one that nobody else uses.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from arena.diagnostics.stacks import Stack, read_dump

_SIGNAL = getattr(signal, "SIGRTMAX", 0) - 5
_ANSWER_SECONDS = 2.0  # the signal is answered as soon as the process gets to run, or not at all
_LOOK_SECONDS = 0.01
_BLOCKED = re.compile(r"^SigBlk:\t([0-9a-f]+)$", re.MULTILINE)
_PENDING = re.compile(r"^ShdPnd:\t([0-9a-f]+)$", re.MULTILINE)
_NOTE = re.compile(r"role (-?\d+) (\d+)$", re.MULTILINE)


class Process(NamedTuple):
    """A process that others may look into."""

    node: str
    pid: int
    descriptor: int  # of its file of stacks; -1: it has none


_own: list[int] = []  # the descriptor of this process's file, once there is one


def this_process(node: str) -> Process:
    """This process, as others may look into it from now on.

    Args:
        node: tells processes that can see each other from all others.
    """
    if not _own and _SIGNAL > 0 and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("arena-stacks", os.MFD_CLOEXEC)
        faulthandler.register(_SIGNAL, file=descriptor, all_threads=True)
        _own.append(descriptor)
    return Process(node, os.getpid(), _own[0] if _own else -1)


def forget_roles() -> None:
    """Other roles are noted from now on: what was written before is of no use, and would only grow."""
    if _own:
        os.ftruncate(_own[0], 0)
        os.lseek(_own[0], 0, os.SEEK_SET)


def note_role(address: int) -> None:
    """Writes down for others that the calling thread plays the role at this address."""
    if _own:
        os.write(_own[0], f"role {address} {threading.get_ident()}\n".encode())


def peek(process: Process) -> dict[int, Stack]:
    """The stacks of the roles of another process, by their addresses; nothing if it cannot be looked into."""
    if process.descriptor < 0:
        return {}
    try:
        text = _asked(process)
    except OSError:  # it has gone, or is somebody else's
        return {}
    notes, _, dump = text.rpartition("\0")
    stacks = read_dump(dump or notes)
    threads = {int(address): int(thread) for address, thread in _NOTE.findall(text)}  # the newest thread of a role
    return {address: stacks[thread] for address, thread in threads.items() if thread in stacks}


def _asked(process: Process) -> str:
    file = Path(f"/proc/{process.pid}/fd/{process.descriptor}")
    before, deaf = file.stat().st_size, _blocking(process.pid)
    os.kill(process.pid, _SIGNAL)
    end = time.monotonic() + _ANSWER_SECONDS
    # The signal is pending until a thread takes it, then blocked in this thread while it writes: it may be interrupted
    # there for long, so no pause is an end; and a note of a role makes the file grow, too.
    while time.monotonic() < end and (
        file.stat().st_size == before or _is_pending(process.pid) or _blocking(process.pid) - deaf
    ):
        time.sleep(_LOOK_SECONDS)
    content = file.read_bytes()
    return content[:before].decode(errors="replace") + "\0" + content[before:].decode(errors="replace")


def _blocking(pid: int) -> set[str]:
    """The threads of a process in which the signal is blocked."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            if _has_signal(_BLOCKED, task):
                found.add(task.name)
    return found


def _is_pending(pid: int) -> bool:
    """Whether the signal has been sent to a process and no thread of it has taken it yet."""
    return _has_signal(_PENDING, Path(f"/proc/{pid}"))


def _has_signal(mask: re.Pattern[str], task: Path) -> bool:
    """Whether the signal is in a mask of signals. Source: proc_pid_status(5) of Linux."""
    found = mask.search((task / "status").read_text())
    return found is not None and bool(int(found[1], 16) >> (_SIGNAL - 1) & 1)
