"""A file of a link, as one side uses it: reads the turn, takes it, and gives it, through the descriptor alone.

The file is never mapped: the other side may cut it at any moment, and reading a mapping beyond the end is a signal
(SIGBUS) that would kill the process, while a short read is an error like any other.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Mapping
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


class LinkFile:
    """An open file of a link.

    Args:
        descriptor: open for reading and writing; closed by `close`.

    Attributes:
        groups: by name; read at the first `take`.
    """

    def __init__(self, path: Path, descriptor: int, *, masks_at_max_step: bool = False) -> None:
        self.path = path
        self.descriptor = descriptor
        self._masks_at_max_step = masks_at_max_step
        self._source = str(path)
        self._header: layout.Header | None = None
        self.groups: dict[str, PlacedGroup] = {}
        self._fixed: dict[str, bytes] = {}  # by group, the bytes before n
        self._count = b""  # the number of groups
        self._usual = b""  # the header of a hand-over without messages
        self._command = Command.STEP  # in the file, as far as this side knows
        self._unread = 0  # bytes of messages that were read, and are to be set to zero
        self.bytes_read = self.bytes_written = 0

    @classmethod
    def make(cls, path: Path, capacity: int, **options: Any) -> LinkFile:
        """The first file of a link: no message, no group, the driver's turn.

        Raises:
            UnsafeFile, NoRoom: as `make_file`.
        """
        data = layout.encode(layout.FileImage(area=bytes(capacity - 4)))
        file = cls(path, make_file(path, len(data)), **options)
        file.write(0, data)
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

    def check_header(self) -> layout.Header:
        """The header.

        Raises:
            LayoutError: it is wrong.
        """
        size = os.fstat(self.descriptor).st_size
        return layout.read_header(os.pread(self.descriptor, layout.HEADER.size, 0), size, self._source)

    def read_groups(self) -> None:
        """Reads the fixed parts of all groups.

        Raises:
            LayoutError: one is wrong.
        """
        header = self._header = self.check_header()
        self._usual = layout.HEADER.pack(*header._replace(turn=DRIVER, command=Command.STEP, message_bytes=0))
        groups = layout.read_groups(self.read, header, self._source)
        layout.check_length(header, groups, self._source)
        self._count = self.read(layout.AREA_AT - 4 + header.capacity, 4)
        for group in groups:
            self.groups[group.spec.name] = group
            self._fixed[group.spec.name] = self.read(group.base, group.offsets["n"] - group.base)

    def rows(self) -> dict[str, Rows]:
        """The rows of all groups that have some; `take` was called.

        Raises:
            LayoutError: as `layout.read_rows`, or something fixed has changed.
        """
        assert self._header is not None, "`take` has read the header"
        read: layout.Read = self.read
        read_own: layout.ReadRows = self._read_own
        if self._header.length <= _WHOLE:
            data = self.read(0, self._header.length)

            def read(offset: int, count: int) -> bytes:
                return data[offset : offset + count]

            read_own = read

        at = layout.AREA_AT - 4 + self._header.capacity
        if read(at, 4) != self._count:
            expected = f"{len(self.groups)} as before; a group is registered in a new file"
            raise LayoutError(at, "groups", _I32.unpack(read(at, 4))[0], expected, source=self._source)
        found = {}
        for name, group in self.groups.items():
            start, n_at = group.base, group.offsets["n"]
            part = read(start, n_at + 4 - start)
            if part[:-4] != self._fixed[name]:
                raise self._changed(group, part[:-4])
            n = layout.read_count(part[-4:], group.spec, n_at, self._source)
            if n:
                found[name] = layout.read_rows(
                    read_own, group, n, self._source, masks_at_max_step=self._masks_at_max_step
                )
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
        (capacity,) = _I32.unpack(self.read(layout.CAPACITY_AT, 4))
        return int(capacity) - 4

    def replace(self, capacity: int, turn: int, more: bytes = b"", added: int = 0) -> LinkFile:
        """Makes the next file with this one's groups, points to it from this one, and closes this one.

        Args:
            capacity: of the next file's message area; the area is zeros.
            turn: the side that makes it.

        Returns:
            the next file, in the maker's turn.

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
        area = bytes(capacity - 4)
        header = layout.HEADER.pack(layout.AREA_AT + capacity + len(groups), version, turn, Command.STEP, capacity, 0)
        path = next_path(self.path)
        following = LinkFile(
            path, make_file(path, layout.AREA_AT + capacity + len(groups)), masks_at_max_step=self._masks_at_max_step
        )
        following.write(0, header + area + _I32.pack(count + added) + groups)
        following.bytes_read, following.bytes_written = self.bytes_read, self.bytes_written
        self.write(layout.COMMAND_AT, bytes([Command.CHANGE_FILE]))
        fence()
        self.write(layout.TURN_AT, bytes([1 - turn]))
        self.close()
        return following

    def follow(self) -> LinkFile:
        """Opens the next file, which the other side has made, and removes this one.

        Raises:
            UnsafeFile: it is not there, or is not a private file of this user.
            LayoutError: its header is wrong.
            NoRoom: there were too many changes.
        """
        path = next_path(self.path)
        following = LinkFile(path, open_file(path), masks_at_max_step=self._masks_at_max_step)
        following.bytes_read, following.bytes_written = self.bytes_read, self.bytes_written
        try:
            following.check_header()
        except LayoutError:
            following.close()
            raise
        self.remove()
        self.close()
        return following

    def write(self, offset: int, data: bytes) -> None:
        """Writes bytes.

        Raises:
            NoRoom: the file was cut, and the file system is full.
        """
        try:
            os.pwrite(self.descriptor, data, offset)
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
        """Reads bytes.

        Raises:
            LayoutError: the file has become shorter.
        """
        data = os.pread(self.descriptor, count, offset)
        if len(data) < count:
            raise self._cut()
        self.bytes_read += count
        return data

    def _read_own(self, offset: int, count: int) -> bytes | NDArray[np.uint8]:
        """As `read`; many bytes are read into a new array."""
        if count < _LARGE:
            return self.read(offset, count)
        data = np.empty(count, np.uint8)
        if os.preadv(self.descriptor, [data.data], offset) < count:
            raise self._cut()
        self.bytes_read += count
        return data

    def _cut(self) -> LayoutError:
        """The error for a file that has become shorter: names the first field that no longer fits."""
        size = os.fstat(self.descriptor).st_size
        header = self._header
        fields = {"length": (0, 4), "version": (4, 4), "turn": (8, 1), "command": (9, 1), "capacity": (10, 4)}
        fields["message bytes"] = (14, 4)
        if header is not None:
            fields["messages"] = (layout.AREA_AT, header.capacity - 4)
            fields["groups"] = (layout.AREA_AT - 4 + header.capacity, 4)
        for name, group in self.groups.items():
            for (field, nbytes), offset in zip(group.spec.sizes(), group.offsets.values(), strict=True):
                fields[f"{name}.{field}"] = (offset, nbytes)
        for field, (offset, nbytes) in fields.items():
            if offset + nbytes > size:
                return LayoutError(
                    offset, field, f"the end of the file at {size}", f"{nbytes} bytes", source=self._source
                )
        return LayoutError(0, "length", f"a file of {size} bytes", "a longer one", source=self._source)

    def _changed(self, group: PlacedGroup, part: bytes) -> LayoutError:
        """The error for a fixed part that has changed: names the first field that differs."""
        name = group.spec.name
        before = self._fixed[name]
        place = group.base + next(index for index in range(len(part)) if part[index] != before[index])
        field, at = max((item for item in group.offsets.items() if item[1] <= place), key=lambda item: item[1])
        sizes: Mapping[str, int] = dict(group.spec.sizes())
        if sizes[field] % 4 == 0 and field != "name":
            at += (place - at) // 4 * 4
            values = [_I32.unpack_from(data, at - group.base)[0] for data in (part, before)]
        else:
            span = slice(at - group.base, at - group.base + sizes[field])
            values = [data[span].strip(b"\0") for data in (part, before)]
        return LayoutError(at, f"{name}.{field}", values[0], f"{values[1]} as before", source=self._source)


def next_path(path: Path) -> Path:
    """The name of the file after this one.

    Raises:
        NoRoom: there were too many changes.
    """
    name = path.name + "_"
    if len(name) - len(name.rstrip("_")) > MOST_CHANGES:
        raise NoRoom(
            f"the file has changed {MOST_CHANGES} times: raise `side_channel_bytes`, or register all groups at once",
            source=str(path),
        )
    return path.with_name(name)
