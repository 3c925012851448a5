"""Python stacks: parses the output of `faulthandler`, and shortens stacks to the frames that matter.

Pure, and imports no NumPy: the watchdog process uses this module too.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from types import FrameType
from typing import NamedTuple

_THREAD = re.compile(r"(?:Current )?[Tt]hread (0x[0-9a-f]+)")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)$')
ROLE = "role "
"""How the name of the outermost frame of a role begins; its address follows."""

_MOST = 8  # the most frames that are shown
_STAGE = ("/arena/roles/perform.py", "/arena/run/lead.py")  # the frames of a role begin after these
_ARENA = ("/arena/", "/threading.py")
_WAITING = ("/arena/transport/", "/threading.py")  # the innermost frame of a waiting role


class StackFrame(NamedTuple):
    """One call that has not returned."""

    file: str
    line: int
    function: str

    def within(self, places: Iterable[str]) -> bool:
        """Whether its file is one of these, or in one of these folders."""
        return any(place in PurePath(self.file).as_posix() for place in places)


Stack = tuple[StackFrame, ...]
"""Frames, the outermost call first, as Python shows them."""


def stack_of(frame: FrameType | None) -> Stack:
    """The stack of a thread, from its innermost frame."""
    found = []
    while frame is not None:
        found.append(StackFrame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))


def read_dump(text: str) -> dict[int, Stack]:
    """Stacks by thread identifier, from the output of `faulthandler`; of several dumps the last."""
    found: dict[int, list[StackFrame]] = {}
    frames: list[StackFrame] = []
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            frames = found[int(thread[1], 16)] = []
        elif frame := _FRAME.match(line):
            frames.insert(0, StackFrame(frame[1], int(frame[2]), frame[3]))
    return {thread: tuple(frames) for thread, frames in found.items()}


def roles_in(text: str) -> dict[int, Stack]:
    """The stacks of roles by address, from the output of `faulthandler`."""
    found: dict[int, Stack] = {}
    for stack in read_dump(text).values():
        for frame in stack:
            address = frame.function.removeprefix(ROLE)
            if frame.function.startswith(ROLE) and address.lstrip("-").isdigit():
                found.setdefault(int(address), stack)  # first its own thread, which is newer than that of all roles
                break
    return found


def waits(stack: Stack) -> bool:
    """Whether a stack ends in the transport's own waiting for a message or a turn."""
    return bool(stack) and stack[-1].within(_WAITING)


def shortened(stack: Stack) -> Stack:
    """The frames that matter: those of the game or the algorithm, else those of the role.

    The frames of its caller are left out, and so are the transport's frames of a role that waits.
    """
    begin, end = max((index + 1 for index, frame in enumerate(stack) if frame.within(_STAGE)), default=0), len(stack)
    while waits(stack) and end > begin and stack[end - 1].within(_WAITING):
        end -= 1
    role = stack[begin:end]
    if not role:
        return stack[max(0, end - 1) : end] or stack[-1:]
    users = [index for index, frame in enumerate(role) if not frame.within(_ARENA)]  # frames of the user's code
    if not users:
        return role[-_MOST:]
    return role[users[0] : users[-1] + 1 if waits(stack) else None][-_MOST:]


def stack_lines(stack: Stack) -> list[str]:
    """A stack as Python prints it, with source lines if they can be read."""
    lines = []
    for frame in stack:
        lines.append(f'  File "{frame.file}", line {frame.line}, in {frame.function}')
        source = linecache.getline(frame.file, frame.line).strip()
        lines += [f"    {source}"] if source else []
    return lines


def running_stack(stacks: Mapping[int, Stack]) -> tuple[int, Stack] | None:
    """The role that has the turn in a process, and its stack; None if all wait."""
    busy = [(address, stack) for address, stack in stacks.items() if stack and not waits(stack)]
    return busy[0] if len(busy) == 1 else None


def killed_report(heading: str, dump: str, names: Mapping[int, str]) -> str:
    """The report on a process that was killed because it held the GIL for too long.

    Args:
        heading: the first line.
        dump: the output of `faulthandler`.
        names: of the roles, by address; empty if they are unknown.
    """
    stacks = roles_in(dump) or read_dump(dump)
    running = running_stack(stacks)
    shown = stacks if running is None else dict([running])
    lines = [heading]
    for address, stack in shown.items():
        lines += [f"{names.get(address, 'a role')} has not come back from one call", *stack_lines(shortened(stack))]
    waiting = [name for address, name in names.items() if address not in shown]
    return "\n".join(lines + [f"{name} waits for a message, or for its turn" for name in waiting])
