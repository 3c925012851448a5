"""Reads the Python stacks of another process of this node, also if it does not answer messages.

Every process has an anonymous file. On a signal `faulthandler` writes its stacks there, in C, so also while the GIL is
held; other processes read the file through `/proc/<pid>/fd`. The signal is a real-time signal with no other use.

A function with the role's address in its name says of which role a stack is. Of roles that share a thread there is only
the stack of the one that runs.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from arena.diagnostics.stacks import ROLE, Stack, roles_in

_SIGNAL = getattr(signal, "SIGRTMAX", 0) - 5
_ANSWER_SECONDS = 2.0  # a process that gets to run writes its stacks at once
_LOOK_SECONDS = 0.01
_BLOCKED = re.compile(r"^SigBlk:\t([0-9a-f]+)$", re.MULTILINE)
_PENDING = re.compile(r"^ShdPnd:\t([0-9a-f]+)$", re.MULTILINE)
Result = TypeVar("Result")


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


def as_role(address: int, main: Callable[..., Result]) -> Callable[..., Result]:
    """The same function, in whose stacks a frame says that it runs the role at this address."""

    def run(*args: object) -> Result:
        return main(*args)

    run.__code__ = run.__code__.replace(co_name=f"{ROLE}{address}")
    return run


def peek(process: Process) -> dict[int, Stack]:
    """The stacks of the running roles of another process by address; empty if they cannot be read."""
    if process.descriptor < 0:
        return {}
    file = Path(f"/proc/{process.pid}/fd/{process.descriptor}")
    end = time.monotonic() + _ANSWER_SECONDS
    try:
        before, blocked = file.stat().st_size, _blocking(process.pid)
        os.kill(process.pid, _SIGNAL)
        # The signal is pending until a thread takes it, and then blocked in that thread while it writes. The thread may
        # be interrupted for long, so a file that has stopped growing may be incomplete.
        while time.monotonic() < end and (
            file.stat().st_size == before
            or _has_signal(_PENDING, Path(f"/proc/{process.pid}"))
            or _blocking(process.pid) - blocked
        ):
            time.sleep(_LOOK_SECONDS)
        with file.open("rb") as content:
            content.seek(before)
            return roles_in(content.read().decode(errors="replace"))
    except OSError:  # the process has ended, or belongs to another user
        return {}


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
