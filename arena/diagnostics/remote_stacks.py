"""Reads the Python stacks of another process of this node, also if it does not answer messages.

Every process has an anonymous file. On a signal `faulthandler` writes its stacks there, in C, so also while the GIL is
held; other processes read the file through `/proc/<pid>/fd`. The signal is a real-time signal with no other use.
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
_ANSWER_SECONDS = 2.0  # a process that gets to run writes its stacks at once
_LOOK_SECONDS = 0.01
_BLOCKED = re.compile(r"^SigBlk:\t([0-9a-f]+)$", re.MULTILINE)
_PENDING = re.compile(r"^ShdPnd:\t([0-9a-f]+)$", re.MULTILINE)
_NOTE = re.compile(r"role (-?\d+) (\d+)$", re.MULTILINE)


class Process(NamedTuple):
    """A process whose stacks can be read."""

    node: str
    pid: int
    descriptor: int  # of its file of stacks; -1 if it has none


_file: list[int] = []  # the descriptor of this process's file, if there is one


def this_process(node: str) -> Process:
    """Makes this process's stacks readable for others.

    Args:
        node: identifies the processes that can see each other.
    """
    if not _file and _SIGNAL > 0 and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("arena-stacks", os.MFD_CLOEXEC)
        faulthandler.register(_SIGNAL, file=descriptor, all_threads=True)
        _file.append(descriptor)
    return Process(node, os.getpid(), _file[0] if _file else -1)


def forget_roles() -> None:
    """Empties the file before the roles of a new leg are noted."""
    if _file:
        os.ftruncate(_file[0], 0)
        os.lseek(_file[0], 0, os.SEEK_SET)


def note_role(address: int) -> None:
    """Notes in the file that the calling thread runs the role at this address."""
    if _file:
        os.write(_file[0], f"role {address} {threading.get_ident()}\n".encode())


def peek(process: Process) -> dict[int, Stack]:
    """The stacks of another process's roles by address; empty if they cannot be read."""
    if process.descriptor < 0:
        return {}
    file = Path(f"/proc/{process.pid}/fd/{process.descriptor}")
    end = time.monotonic() + _ANSWER_SECONDS
    try:
        before, blocked = file.stat().st_size, _blocking(process.pid)
        os.kill(process.pid, _SIGNAL)
        # The signal is pending until a thread takes it, and then blocked in that thread while it writes. The thread may
        # be interrupted for long, so a file that has stopped growing may be incomplete; a note of a role makes it grow,
        # too.
        while time.monotonic() < end and (
            file.stat().st_size == before
            or _has_signal(_PENDING, Path(f"/proc/{process.pid}"))
            or _blocking(process.pid) - blocked
        ):
            time.sleep(_LOOK_SECONDS)
        content = file.read_bytes()
    except OSError:  # the process has ended, or belongs to another user
        return {}
    text, dump = content.decode(errors="replace"), content[before:].decode(errors="replace")
    stacks = read_dump(dump or text)
    threads = {int(address): int(thread) for address, thread in _NOTE.findall(text)}  # the newest thread of a role
    return {address: stacks[thread] for address, thread in threads.items() if thread in stacks}


def _blocking(pid: int) -> set[str]:
    """The threads of a process that block the signal."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            if _has_signal(_BLOCKED, task):
                found.add(task.name)
    return found


def _has_signal(mask: re.Pattern[str], task: Path) -> bool:
    """Whether a signal mask contains the signal. Source: proc_pid_status(5) of Linux."""
    found = mask.search((task / "status").read_text())
    return found is not None and bool(int(found[1], 16) >> (_SIGNAL - 1) & 1)
