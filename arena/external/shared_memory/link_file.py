"""A file of a link, as one side uses it: waits for the turn, takes it, and gives it, through the descriptor alone.

The file is never mapped: the other side may cut it at any moment, and reading a mapping beyond the end is a signal
(SIGBUS) that would kill the process, while a short read is an error like any other.
"""

from __future__ import annotations

import os
import struct
import time
import uuid
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import LayoutError, NoRoom
from arena.external.shared_memory import layout
from arena.external.shared_memory.files import make_file, open_file
from arena.external.shared_memory.layout import Command, PlacedGroup, Rows
from arena.transport.shared_memory import fence

DRIVER, SIMULATOR = 0, 1  # whose turn it is
MOST_CHANGES = 200  # each adds a letter to the name, which has 255 at most
_WHOLE = 64 * 2**10  # bytes: a file up to this size is read at once
_LARGE = 4096  # bytes: so many are read into an array, which saves a copy
_I32 = struct.Struct("<i")
_YIELDS = 30
_FIRST_PAUSE, _GROWTH = 20e-6, 1.3  # seconds
_LONGEST_PAUSE, _LONGEST_LATER = 0.5e-3, 5e-3  # in the first second, and after it
_LONG = 200e-6  # seconds that the yields take
_GAP = 1.0  # seconds; a longer gap between two looks counts as this plus the CPU time of this process


class LinkFile:
    """An open file of a link; after a change of file, the next one.

    Attributes:
        groups: by name; read at the first `take`.
        changes: how often the file was changed.
    """

    def __init__(self, path: Path, descriptor: int, *, masks_at_max_step: bool = False) -> None:
        self._masks_at_max_step = masks_at_max_step
        self.bytes_read = self.bytes_written = self.changes = 0
        self._use(path, descriptor)

    def _use(self, path: Path, descriptor: int) -> None:
        self.path, self.descriptor, self._source = path, descriptor, str(path)
        self._header: layout.Header | None = None
        self.groups: dict[str, PlacedGroup] = {}
        self._fixed: dict[str, bytes] = {}  # by group, the bytes before n
        self._count = b""  # the number of groups
        self._usual = b""  # the header of a hand-over without messages
        self._command = Command.STEP  # in the file, as far as this side knows
        self._unread = 0  # bytes of messages that were read, and are to be set to zero

    @classmethod
    def make(cls, path: Path, capacity: int, **options: Any) -> LinkFile:
        """The first file of a link: no message, no group, the driver's turn; errors are those of `make_file`."""
        length = layout.AREA_AT + capacity
        file = cls(path, make_file(path, length), **options)
        header = layout.HEADER.pack(length, layout.VERSION, DRIVER, Command.STEP, capacity, 0)
        file.write(0, header.ljust(length, b"\0"))
        return file

    @property
    def turn(self) -> int:
        """Whose turn it is."""
        data = os.pread(self.descriptor, 1, layout.TURN_AT)
        if not data:
            raise self._cut()
        return DRIVER if data == b"\0" else SIMULATOR

    @property
    def command(self) -> int:
        """The byte of the command, for messages."""
        return (os.pread(self.descriptor, 1, layout.COMMAND_AT) or b"\0")[0]

    def take(self, *, from_simulator: bool) -> tuple[Command, list[tuple[uuid.UUID, bytes]]]:
        """Reads what the other side asks for, after the turn was seen.

        Raises:
            LayoutError: the header, the messages or the fixed part of a group is wrong, or has changed.
        """
        fence()
        size = os.fstat(self.descriptor).st_size
        if self._header is not None and size < self._header.length:
            raise self._cut()
        data = self.read(0, layout.HEADER.size)
        if data == self._usual:
            self._command, self._unread = Command.STEP, 0
            return Command.STEP, []
        header = layout.read_header(data, size, self._source, from_simulator=from_simulator)
        before = self._header
        if before is not None:
            for offset, field in ((0, "length"), (layout.CAPACITY_AT, "capacity")):
                found, expected = getattr(header, field), getattr(before, field)
                if found != expected:
                    raise LayoutError(offset, field, found, f"{expected} as before", source=self._source)
        self._unread = header.message_bytes
        area = self.read(layout.AREA_AT, header.message_bytes) if header.message_bytes else b""
        messages = layout.split_messages(area, source=self._source, base=layout.AREA_AT)
        command = self._command = Command(header.command)
        if before is None and command is not Command.CHANGE_FILE:
            self.read_groups()
        return command, messages

    def read_groups(self) -> None:
        """Reads the fixed parts of all groups; a `LayoutError` if one is wrong."""
        header = self._header = read_header(self.path, self.descriptor)
        self._usual = layout.HEADER.pack(*header._replace(turn=DRIVER, command=Command.STEP, message_bytes=0))
        groups = layout.read_groups(self.read, header, self._source)
        self._count = self.read(layout.AREA_AT - 4 + header.capacity, 4)
        for group in groups:
            self.groups[group.spec.name] = group
            self._fixed[group.spec.name] = self.read(group.base, group.offsets["n"] - group.base)

    def rows(self) -> dict[str, Rows]:
        """The rows of all groups that have some; a `LayoutError` if one is wrong, or something fixed has changed."""
        assert self._header is not None, "`take` was called"
        whole = self.read(0, self._header.length) if self._header.length <= _WHOLE else None

        def read(offset: int, count: int) -> bytes:
            return self.read(offset, count) if whole is None else whole[offset : offset + count]

        def read_rows(offset: int, count: int) -> bytes | NDArray[np.uint8]:
            if whole is not None or count < _LARGE:
                return read(offset, count)
            data = np.empty(count, np.uint8)
            if os.preadv(self.descriptor, [data.data], offset) < count:
                raise self._cut()
            self.bytes_read += count
            return data

        at = layout.AREA_AT - 4 + self._header.capacity
        if read(at, 4) != self._count:
            expected = f"{len(self.groups)} as before; a group is registered in a new file"
            raise LayoutError(at, "groups", _I32.unpack(read(at, 4))[0], expected, source=self._source)
        found = {}
        for name, group in self.groups.items():
            start, n_at = group.base, group.offsets["n"]
            part = read(start, n_at + 4 - start)
            if part[:-4] != self._fixed[name]:
                before, sizes = self._fixed[name], dict(group.spec.sizes())
                place = start + next(index for index in range(len(before)) if part[index] != before[index])
                field, first = max((item for item in group.offsets.items() if item[1] <= place), key=itemgetter(1))
                if sizes[field] % 4 == 0 and field != "name":
                    first += (place - first) // 4 * 4
                    values = [_I32.unpack_from(data, first - start)[0] for data in (part, before)]
                else:
                    span = slice(first - start, first - start + sizes[field])
                    values = [data[span].strip(b"\0") for data in (part, before)]
                expected = f"{values[1]} as before"
                raise LayoutError(first, f"{name}.{field}", values[0], expected, source=self._source)
            n = layout.read_count(part[-4:], group.spec, n_at, self._source)
            if n:
                old_release = self._masks_at_max_step
                found[name] = layout.read_rows(read_rows, group, n, self._source, masks_at_max_step=old_release)
        return found

    def give(self, command: Command, turn: int, messages: bytes = b"") -> None:
        """Hands the turn over; messages that fit are written, and those that were read are removed."""
        if messages or self._unread:
            self.write(layout.AREA_AT, messages.ljust(self._unread, b"\0"))
            self.write(layout.MESSAGE_BYTES_AT, _I32.pack(len(messages)))
            self._unread = 0
        if command is not self._command:
            self.write(layout.COMMAND_AT, bytes([command]))
            self._command = command
        fence()
        self.write(layout.TURN_AT, bytes([turn]))

    def room(self) -> int:
        """The bytes of messages that fit."""
        return int(_I32.unpack(self.read(layout.CAPACITY_AT, 4))[0]) - 4

    def replace(self, capacity: int, turn: int, more: bytes = b"", added: int = 0) -> None:
        """Makes the next file with this one's groups, in the maker's turn, points to it from this one, and uses it.

        Args:
            capacity: of the next file's message area; the area is zeros.
            turn: the side that makes it.
            more: the bytes of groups that are added.

        Raises:
            NoRoom: there is no room, or there were too many changes.
            UnsafeFile: a file of that name is there.
        """
        if self._unread:  # otherwise the other side would get back the messages that this side has read
            self.write(layout.AREA_AT, bytes(self._unread))
            self.write(layout.MESSAGE_BYTES_AT, _I32.pack(0))
        length, version, _, _, old_capacity, _ = layout.HEADER.unpack(self.read(0, layout.HEADER.size))
        count_at = layout.AREA_AT - 4 + old_capacity
        (count,) = _I32.unpack(self.read(count_at, 4))
        groups = self.read(count_at + 4, length - count_at - 4) + more
        if added:
            self.write(count_at, _I32.pack(count + added))
        length = layout.AREA_AT + capacity + len(groups)
        path = next_path(self.path)
        descriptor, before = make_file(path, length), self.descriptor
        with ExitStack() as unused:  # the descriptor that is not the link's, also if a write fails
            unused.callback(os.close, descriptor)
            self.write(layout.COMMAND_AT, bytes([Command.CHANGE_FILE]))
            self._use(path, descriptor)
            unused.pop_all()
            unused.callback(os.close, before)
            header = layout.HEADER.pack(length, version, turn, Command.STEP, capacity, 0)
            self.write(0, header + bytes(capacity - 4) + _I32.pack(count + added) + groups)
            fence()
            self.write(layout.TURN_AT, bytes([1 - turn]), before)
        self.changes += 1

    def follow(self) -> None:
        """Uses the next file, which the other side has made, and removes this one.

        Raises:
            UnsafeFile: it is not there, or is not a private file of this user.
            LayoutError: its header is wrong.
            NoRoom: there were too many changes.
        """
        path = next_path(self.path)
        descriptor = open_file(path)
        try:
            read_header(path, descriptor)
        except LayoutError:
            os.close(descriptor)
            raise
        self.remove()
        self.close()
        self._use(path, descriptor)
        self.changes += 1

    def write(self, offset: int, data: bytes, descriptor: int | None = None) -> None:
        """Writes bytes; `NoRoom` if the file was cut, and the file system is full."""
        try:
            os.pwrite(self.descriptor if descriptor is None else descriptor, data, offset)
        except OSError as error:
            raise NoRoom(f"the file cannot be written: {error.strerror}", source=self._source) from error
        self.bytes_written += len(data)

    def remove(self) -> None:
        """Removes the file, which stays open."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def read(self, offset: int, count: int) -> bytes:
        """Reads bytes; a `LayoutError` if the file has become shorter."""
        data = os.pread(self.descriptor, count, offset)
        if len(data) < count:
            raise self._cut()
        self.bytes_read += count
        return data

    def _cut(self) -> LayoutError:
        """The error for a file that has become shorter: names the first field that no longer fits."""
        size = os.fstat(self.descriptor).st_size
        fields = [("length", 0, 4), ("version", 4, 4), ("turn", 8, 1), ("command", 9, 1), ("capacity", 10, 4)]
        fields.append(("message bytes", 14, 4))
        if self._header is not None:
            capacity = self._header.capacity
            fields += [("messages", layout.AREA_AT, capacity - 4), ("groups", layout.AREA_AT - 4 + capacity, 4)]
        for name, group in self.groups.items():
            fields += [(f"{name}.{field}", group.offsets[field], nbytes) for field, nbytes in group.spec.sizes()]
        fields.append(("length", 0, size + 1))
        field, offset, nbytes = next(item for item in fields if item[1] + item[2] > size)
        return LayoutError(offset, field, f"the end of the file at {size}", f"{nbytes} bytes", source=self._source)


def read_header(path: Path, descriptor: int) -> layout.Header:
    """The header of an open file; a `LayoutError` if it is wrong."""
    return layout.read_header(os.pread(descriptor, layout.HEADER.size, 0), os.fstat(descriptor).st_size, str(path))


def next_path(path: Path) -> Path:
    """The name of the file after this one; `NoRoom` if there were too many changes."""
    name = path.name + "_"
    if len(name) - len(name.rstrip("_")) > MOST_CHANGES:
        raise NoRoom(
            f"the file has changed {MOST_CHANGES} times: raise `side_channel_bytes`, or register all groups at once",
            source=str(path),
        )
    return path.with_name(name)


class TurnWait:
    """One wait for the turn: yields the core, then sleeps, longer and longer.

    The other side may need this side's core, so neither spins.

    Args:
        usual_s: mean time of recent waits; above 0.2 ms, a wait begins with a sleep of half this time, at most 0.5 ms.
    """

    def __init__(self, usual_s: float = 0.0) -> None:
        self._yields, self._pause = _YIELDS, _FIRST_PAUSE
        self._first = min(usual_s / 2, _LONGEST_PAUSE) if usual_s > _LONG else 0.0
        self._looked = self._cpu_at = time.monotonic()
        self._cpu = time.process_time()
        self.seconds = 0.0

    def look(self) -> float:
        """The seconds of this wait, without time in which this process was stopped."""
        now = time.monotonic()
        gap, self._looked = now - self._looked, now
        if gap > _GAP:
            cpu = time.process_time()
            gap, self._cpu, self._cpu_at = min(gap, _GAP + cpu - self._cpu), cpu, now
        elif now - self._cpu_at > _GAP:
            self._cpu, self._cpu_at = time.process_time(), now
        self.seconds += gap
        return self.seconds

    def skip(self) -> None:
        """Leaves out the time since the last look."""
        self._looked = self._cpu_at = time.monotonic()
        self._cpu = time.process_time()

    def pause_s(self) -> float:
        """Seconds of the next pause; 0.0: yields the core."""
        if self._first:
            first, self._first, self._yields = self._first, 0.0, 0
            return first
        if self._yields:
            self._yields -= 1
            return 0.0
        pause = self._pause
        self._pause = min(pause * _GROWTH, _LONGEST_PAUSE if self.seconds < 1.0 else _LONGEST_LATER)
        return pause

    def pause(self) -> None:
        """Yields the core, or sleeps."""
        pause = self.pause_s()
        if pause:
            time.sleep(pause)
        else:
            os.sched_yield()
