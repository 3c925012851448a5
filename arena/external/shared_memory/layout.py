"""The layout of the shared file, version 0 of the published protocol: its fields and their checks.

header    length, version, turn, command, capacity C, message bytes                     18 bytes
messages  C - 4 bytes
groups    their number (4 bytes), then for each group
            fixed    name, agents M, continuous, action size A, branches, observation count, shapes
            moving   n, observations [M, ...] one after the other, reward, done, max_step, id, mask, action

Integers and floats are little-endian, nothing is aligned. Only rows 0 to n - 1 of a block mean anything. This module is
pure: it neither opens files nor waits. Every fault is a `LayoutError`; before memory is allocated for a count that was
read, the counted bytes are checked to lie in the file.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.errors import ActionError, LayoutError, VersionError
from arena.game.arrays import lost_value

VERSION = 0
TURN_AT, COMMAND_AT, CAPACITY_AT, MESSAGE_BYTES_AT, AREA_AT = 8, 9, 10, 14, 18
HEADER = struct.Struct("<iiBBii")
LEAST_BYTES = 22
MOST_GROUPS = 4096
NAME_BYTES = 64
_I32 = struct.Struct("<i")
_FEW = 128  # up to this number of bytes, Python finds the largest one faster than NumPy
_F4, _I4 = np.dtype("<f4"), np.dtype("<i4")
_GUID_BYTES = 16

Read = Callable[[int, int], bytes]
ReadRows = Callable[[int, int], "bytes | NDArray[np.uint8]"]  # an array is the caller's own
"""Bytes of a file: `read(offset, count)`; the caller has checked that they are there."""


class Command(IntEnum):
    """What the side that gives the turn asks for."""

    STEP = 0
    RESET = 1
    CHANGE_FILE = 2
    CLOSE = 3


@dataclass(frozen=True)
class GroupSpec:
    """What is fixed about a group of agents; exactly one of `continuous` and `branches` is given.

    Raises:
        ValueError: a value is not allowed.
    """

    name: str  # 1 to 63 characters of printable ASCII
    agents: int  # the most rows M of a hand-over
    observations: tuple[tuple[int, ...], ...]  # shapes, each of one to three sizes
    continuous: int | None = None  # the numbers of an action
    branches: tuple[int, ...] | None = None  # the choices of each branch of an action

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) < NAME_BYTES or not (self.name.isascii() and self.name.isprintable()):
            raise ValueError(f"name {self.name!r}: 1 to 63 printable ASCII characters are allowed")
        if self.agents < 1:
            raise ValueError(f"group {self.name!r}: {self.agents} agents; at least 1 is allowed")
        if (self.continuous is None) == (self.branches is None):
            raise ValueError(f"group {self.name!r} needs exactly one of `continuous` and `branches`")
        if self.continuous is not None and self.continuous < 0:
            raise ValueError(f"group {self.name!r}: {self.continuous} continuous actions; at least 0 are allowed")
        if self.branches is not None and (not self.branches or min(self.branches) < 1):
            raise ValueError(f"group {self.name!r}: branches {self.branches}; each has at least 1 choice")
        for shape in self.observations:
            if not 1 <= len(shape) <= 3 or min(shape) < 1:
                raise ValueError(f"group {self.name!r}: shape {shape}; one to three sizes of at least 1 are allowed")

    @property
    def action_size(self) -> int:
        """The numbers or branches of an action."""
        return len(self.branches) if self.branches is not None else self.continuous or 0

    @property
    def choices(self) -> int:
        """The length of a row of the mask."""
        return sum(self.branches or ())

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """Of the actions in the file."""
        return _F4 if self.branches is None else _I4

    @cached_property
    def nbytes(self) -> int:
        """The bytes of the group in a file."""
        return sum(nbytes for _, nbytes in self.sizes())

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The fields of the group with their bytes, in the order of the file."""
        rows = self.agents
        yield "name", NAME_BYTES
        yield "agents", 4
        yield "continuous", 1
        yield "action size", 4
        if self.branches is not None:
            yield "branches", 4 * len(self.branches)
        yield "observation count", 4
        for number in range(len(self.observations)):
            yield f"shape {number}", 12
        yield "n", 4
        for number, shape in enumerate(self.observations):
            yield f"observation {number}", 4 * rows * prod(shape)
        yield "reward", 4 * rows
        yield "done", rows
        yield "max_step", rows
        yield "id", 4 * rows
        if self.branches is not None:
            yield "mask", rows * self.choices
        yield "action", 4 * rows * self.action_size

    def offsets(self, base: int) -> dict[str, int]:
        """The offset of each field, for a group that begins at `base`."""
        found = {}
        for name, nbytes in self.sizes():
            found[name] = base
            base += nbytes
        return found


class Rows(NamedTuple):
    """Rows 0 to n - 1 of a group in one hand-over; own, writable arrays."""

    ids: NDArray[np.int32]  # [n]
    observations: tuple[NDArray[np.float32], ...]  # [n, *shape] each
    rewards: NDArray[np.float32]  # [n]
    done: NDArray[np.bool_]  # [n]
    max_step: NDArray[np.bool_]  # [n]
    masks: NDArray[np.bool_] | None = None  # [n, sum(branches)], true: forbidden; None if continuous


class Header(NamedTuple):
    """The first fields of a file; `turn` as the byte that was found."""

    length: int
    version: int
    turn: int
    command: int
    capacity: int
    message_bytes: int


class PlacedGroup(NamedTuple):
    """A group of a file, where it is."""

    spec: GroupSpec
    base: int
    offsets: dict[str, int]


class GroupContent(NamedTuple):
    """A group of a file with its rows and their actions."""

    spec: GroupSpec
    offsets: dict[str, int]
    rows: Rows
    actions: NDArray[Any]  # [n, A] float32 or int32


class FileContent(NamedTuple):
    """The content of a file; one with the command `CHANGE_FILE` has no groups."""

    header: Header
    messages: list[tuple[uuid.UUID, bytes]]
    groups: tuple[GroupContent, ...]


def read_header(data: bytes, size: int, source: str = "", *, from_simulator: bool = False) -> Header:
    """The checked header; a `LayoutError` names the first fault.

    Args:
        data: the first bytes of the file, 18 of them if it has so many.
        from_simulator: whether the simulator has given the turn; it may not reset.
    """
    if size < LEAST_BYTES:
        raise LayoutError(0, "length", f"a file of {size} bytes", f"at least {LEAST_BYTES}", source=source)
    header = Header(*HEADER.unpack(data[: HEADER.size]))
    if header.version != VERSION:
        found = "release 0.3.x" if (header.length, header.version) == (0, 3) else header.version
        raise VersionError(4, "version", found, f"{VERSION}", source=source)
    if not LEAST_BYTES <= header.length <= size:
        raise LayoutError(0, "length", header.length, f"{LEAST_BYTES} to {size}, the file's size", source=source)
    if header.command > Command.CLOSE or (from_simulator and header.command == Command.RESET):
        allowed = "0, 2 or 3 from the simulator" if from_simulator else "0 to 3"
        raise LayoutError(COMMAND_AT, "command", header.command, allowed, source=source)
    most = header.length - AREA_AT
    if not 4 <= header.capacity <= most:
        raise LayoutError(CAPACITY_AT, "capacity", header.capacity, f"4 to {most}", source=source)
    if not 0 <= header.message_bytes <= header.capacity - 4:
        allowed = f"0 to {header.capacity - 4}"
        raise LayoutError(MESSAGE_BYTES_AT, "message bytes", header.message_bytes, allowed, source=source)
    return header


def read_groups(read: Read, header: Header, source: str = "") -> tuple[PlacedGroup, ...]:
    """The fixed parts of all groups; a `LayoutError` if one is wrong, or the file does not end after the last one."""
    length, at = header.length, AREA_AT + header.capacity
    name = ""  # of the group that is read

    def fault(field: str, found: object, expected: str, offset: int) -> LayoutError:
        return LayoutError(offset, f"{name}.{field}", found, expected, source=source)

    def skip(field: str, nbytes: int) -> int:
        nonlocal at
        if at + nbytes > length:
            raise fault(field, f"the end of the file at {length}", f"{nbytes} bytes", at)
        at += nbytes
        return at - nbytes

    def integer(field: str, least: int) -> int:
        value: int = _I32.unpack(read(skip(field, 4), 4))[0]
        if value < least:
            raise fault(field, value, f"at least {least}", at - 4)
        return value

    (count,) = _I32.unpack(read(at - 4, 4))
    if not 0 <= count <= MOST_GROUPS:
        raise LayoutError(at - 4, "groups", count, f"0 to {MOST_GROUPS}", source=source)
    groups: list[PlacedGroup] = []
    for number in range(count):
        name, base = f"group {number}", at
        text = read(skip("name", NAME_BYTES), NAME_BYTES)
        size, letters = text[0], text[1 : 1 + text[0]]
        if not 1 <= size < NAME_BYTES or any(not 0x20 <= one <= 0x7E for one in letters) or any(text[1 + size :]):
            raise fault("name", text.rstrip(b"\0"), "a length of 1 to 63, as many ASCII characters, zeros", base)
        name = letters.decode("ascii")
        agents = integer("agents", 1)
        kind = read(skip("continuous", 1), 1)[0]
        if kind > 1:
            raise fault("continuous", kind, "0 or 1", at - 1)
        size = integer("action size", 1 - kind)
        branches = None if kind else tuple(integer("branches", 1) for _ in range(size))
        shapes = []
        for index in range(integer("observation count", 0)):
            sizes = struct.unpack("<3i", read(skip(f"shape {index}", 12), 12))
            used = max((place + 1 for place, value in enumerate(sizes) if value), default=1)
            for place in range(used):
                if sizes[place] < 1:
                    raise fault(f"shape {index}", sizes, "sizes of at least 1, then zeros", at - 12 + 4 * place)
            shapes.append(sizes[:used])
        spec = GroupSpec(name, agents, tuple(shapes), size if kind else None, branches)
        fields = iter(spec.sizes())
        next(field for field, _ in fields if field == "n")
        read_count(read(skip("n", 4), 4), spec, at - 4, source)
        for field, nbytes in fields:
            skip(field, nbytes)
        groups.append(PlacedGroup(spec, base, spec.offsets(base)))
    names: set[str] = set()
    for group in groups:
        if group.spec.name in names:
            where = f"{group.spec.name}.name"
            raise LayoutError(group.base, where, group.spec.name, "a name that no other group has", source=source)
        names.add(group.spec.name)
    if length != at:
        raise LayoutError(0, "length", length, f"{at}, the sum of all parts", source=source)
    return tuple(groups)


def read_count(data: bytes, spec: GroupSpec, offset: int, source: str = "") -> int:
    """The number of rows n of a group; a `LayoutError` if it is not 0 to M."""
    n: int = _I32.unpack(data)[0]
    if not 0 <= n <= spec.agents:
        raise LayoutError(offset, f"{spec.name}.n", n, f"0 to {spec.agents}", source=source)
    return n


def read_rows(read: ReadRows, group: PlacedGroup, n: int, source: str = "", *, masks_at_max_step: bool = False) -> Rows:
    """Rows 0 to n - 1 of a group.

    Args:
        masks_at_max_step: whether discrete groups are written as by programs of release 0.2: masks lie at `max_step`,
            over the ids; ids are then the numbers of the rows, and `max_step` is false.

    Raises:
        LayoutError: a flag is neither 0 nor 1, or two rows have the id of the same living agent.
    """
    spec, at = group.spec, group.offsets

    def flags(field: str, count: int) -> NDArray[np.bool_]:
        data = read(at[field], count)
        if count and (max(data) if count <= _FEW else np.frombuffer(data, np.uint8).max()) > 1:
            index = next(index for index, byte in enumerate(data) if byte > 1)
            raise LayoutError(at[field] + index, f"{spec.name}.{field}", data[index], "0 or 1", source=source)
        return np.frombuffer(data, np.bool_).copy()

    observations = []
    for number, shape in enumerate(spec.observations):
        array = np.frombuffer(read(at[f"observation {number}"], 4 * n * prod(shape)), _F4).reshape(n, *shape)
        is_copy = array.flags.writeable and array.dtype == np.float32  # it was read into memory of its own
        observations.append(array if is_copy else array.astype(np.float32))
    rewards = np.frombuffer(read(at["reward"], 4 * n), _F4).astype(np.float32)
    done = flags("done", n)
    overwritten = masks_at_max_step and spec.branches is not None
    if overwritten:
        max_step, ids = np.zeros(n, np.bool_), np.arange(n, dtype=np.int32)
    else:
        max_step, ids = flags("max_step", n), np.frombuffer(read(at["id"], 4 * n), _I4).astype(np.int32)
        numbers = ids.tolist()
        if len(set(numbers)) < n:
            living: set[int] = set()
            for row, number in enumerate(numbers):
                if number in living:
                    expected = "an id that no earlier row has, unless that is done"
                    raise LayoutError(at["id"] + 4 * row, f"{spec.name}.id", number, expected, source=source)
                if not done[row]:
                    living.add(number)
    masks = None
    if spec.branches is not None:
        masks = flags("max_step" if overwritten else "mask", n * spec.choices).reshape(n, spec.choices)
    return Rows(ids, tuple(observations), rewards, done, max_step, masks)


def pack_actions(spec: GroupSpec, n: int, actions: Any) -> bytes:
    """The bytes of the actions [n, A] of rows 0 to n - 1: float32 or int32, or of a dtype that keeps all values.

    Raises:
        ActionError: another shape or dtype, a number that is not finite, or a choice that is not there.
    """
    array = np.asarray(actions)
    if array.shape != (n, spec.action_size):
        raise ActionError(spec.name, f"shape {array.shape}", f"({n}, {spec.action_size})")
    if array.dtype != spec.action_dtype and lost_value(array, spec.action_dtype) is not None:
        raise ActionError(spec.name, f"{array.dtype} that does not fit", f"{spec.action_dtype.name}")
    if spec.branches is None:
        if not np.isfinite(array).all():
            raise ActionError(spec.name, "a number that is not finite", "finite numbers")
    elif n:
        wrong = (array < 0) | (array >= np.array(spec.branches))
        if wrong.any():
            row, branch = np.argwhere(wrong)[0].tolist()
            expected = f"0 to {spec.branches[branch] - 1} in branch {branch}"
            raise ActionError(spec.name, f"{array[row, branch]} in row {row}", expected)
    packed: bytes = array.astype(spec.action_dtype).tobytes()
    return packed


def no_op_actions(spec: GroupSpec, rows: Rows) -> NDArray[Any]:
    """Zeros [n, A]; of a branch the first choice that is allowed."""
    actions = np.zeros((len(rows.ids), spec.action_size), spec.action_dtype)
    if spec.branches is not None and rows.masks is not None:
        first = 0
        for branch, choices in enumerate(spec.branches):
            actions[:, branch] = np.argmin(rows.masks[:, first : first + choices], axis=1)
            first += choices
    return actions


def decode(data: bytes, *, source: str = "") -> FileContent:
    """The content of a file, given as its bytes, `data`; a `LayoutError` names the first fault, and the `source`."""

    def read(offset: int, count: int) -> bytes:
        return data[offset : offset + count]

    header = read_header(data, len(data), source)
    messages = split_messages(read(AREA_AT, header.message_bytes), source=source, base=AREA_AT)
    if header.command == Command.CHANGE_FILE:
        return FileContent(header, messages, ())
    groups = []
    for group in read_groups(read, header, source):
        spec, at = group.spec, group.offsets
        (n,) = _I32.unpack(read(at["n"], 4))
        actions = np.frombuffer(read(at["action"], 4 * n * spec.action_size), spec.action_dtype)
        rows = read_rows(read, group, n, source)
        groups.append(GroupContent(spec, at, rows, actions.reshape(n, spec.action_size)))
    return FileContent(header, messages, tuple(groups))


def fixed_part(spec: GroupSpec) -> bytes:
    """The bytes of a group before n."""
    name = spec.name.encode("ascii")
    parts = [bytes([len(name)]) + name.ljust(NAME_BYTES - 1, b"\0"), _I32.pack(spec.agents)]
    parts += [bytes([spec.branches is None]), _I32.pack(spec.action_size)]
    if spec.branches is not None:
        parts.append(np.array(spec.branches, _I4).tobytes())
    parts.append(_I32.pack(len(spec.observations)))
    parts += [struct.pack("<3i", *shape, *[0] * (3 - len(shape))) for shape in spec.observations]
    return b"".join(parts)


def split_messages(data: bytes, *, source: str = "", base: int = 0) -> list[tuple[uuid.UUID, bytes]]:
    """The messages of a message area, as pairs of a channel and bytes; a `LayoutError` if one does not fit.

    The error names the `source`, and the place of the message's length in it: `base` is where `data` begins.
    """
    found, at = [], 0
    while at < len(data):
        start = at + _GUID_BYTES + 4
        nbytes = _I32.unpack_from(data, at + _GUID_BYTES)[0] if start <= len(data) else None
        if nbytes is None or not 0 <= nbytes <= len(data) - start:
            known = f"a message of {nbytes} bytes" if nbytes is not None else f"{len(data) - at} bytes"
            expected = f"0 to {len(data) - start} bytes" if nbytes is not None else "a GUID and a length, 20 bytes"
            raise LayoutError(base + at + _GUID_BYTES, "messages", known, expected, source=source)
        found.append((uuid.UUID(bytes_le=data[at : at + _GUID_BYTES]), data[start : start + nbytes]))
        at = start + nbytes
    return found


def join_messages(messages: Iterable[tuple[uuid.UUID, bytes]]) -> bytes:
    """The bytes of messages, pairs of a channel and bytes, in a message area."""
    return b"".join(guid.bytes_le + _I32.pack(len(data)) + data for guid, data in messages)
