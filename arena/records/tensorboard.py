"""TensorBoard files of scalars, written without TensorBoard, protobuf or torch.

The usual writers import torch as soon as it is installed, which the root process must never pay for. A scalar needs
little: a file of framed records (TFRecord), each holding an `Event` protocol buffer.

    record  = length u64 | masked crc32c of the length u32 | event | masked crc32c of the event u32
    Event   = 1: wall_time double | 2: step int64 | 3: file_version string | 5: Summary | 7: SessionLog
    Summary = 1: Value {1: tag string | 2: simple_value float}

Sources: tensorflow/core/util/event.proto, core/framework/summary.proto, core/lib/io/record_writer; CRC-32C of
RFC 3720, appendix B.4. All integers are little endian.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from arena.records.atomic import make_folder, private, writing

_START = 1  # SessionLog.START: TensorBoard forgets the points of older files from this step on


class ScalarFile:
    """Appends scalars to a new event file in a folder, whose files are shown as one curve.

    Args:
        folder: made if it is not there.
        first_step: the step from which this file replaces what older files in the folder say, for a resumed run.
        now: the wall time in seconds that the points get.
    """

    def __init__(self, folder: Path, *, first_step: int | None = None, now: Callable[[], float] = time.time) -> None:
        make_folder(folder)
        self._now = now
        # The number in a file's name must rise: TensorBoard reads files by name, and clocks may be set back.
        names = (path.name.split(".") for path in folder.glob("events.out.tfevents.*"))
        known = (int(parts[3]) for parts in names if len(parts) > 3 and parts[3].isdigit())
        number = max([int(now()), *(1 + other for other in known)])
        self._path = folder / f"events.out.tfevents.{number:010d}.{os.getpid()}"
        with writing(self._path):
            self._file: IO[bytes] = open(self._path, "ab", opener=private)  # noqa: SIM115 - closed by close()
        self._write(_field(3, b"brain.Event:2"))
        if first_step is not None:
            self._write(_step(first_step) + _field(7, _varint_field(1, _START)))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Adds one point to each of these curves, as one event."""
        values = b""
        for tag, value in scalars.items():
            try:
                number = struct.pack("<f", value)
            except OverflowError:  # larger than a float32 can be
                number = struct.pack("<f", math.copysign(math.inf, value))
            values += _field(1, _field(1, tag.encode()) + _key(2, 5) + number)
        self._write(_step(step) + _field(5, values))

    def reopen(self) -> None:
        """Opens the file again, at its end, after `close`."""
        with writing(self._path):
            self._file = open(self._path, "ab", opener=private)  # noqa: SIM115 - closed by close()

    def flush(self) -> None:
        """Hands the points to the operating system, where TensorBoard can see them."""
        with writing(self._path):
            self._file.flush()

    def close(self) -> None:
        """Flushes and closes; a second call does nothing."""
        with writing(self._path):
            self._file.close()

    def _write(self, event: bytes) -> None:
        event = _key(1, 1) + struct.pack("<d", self._now()) + event
        length = struct.pack("<Q", len(event))
        with writing(self._path):
            self._file.write(length + _masked_crc(length) + event + _masked_crc(event))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _varint_field(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _step(step: int) -> bytes:
    return _varint_field(2, step)


_CRC_TABLE = list(range(256))
for _ in range(8):
    _CRC_TABLE = [
        byte >> 1 ^ (0x82F63B78 if byte & 1 else 0) for byte in _CRC_TABLE
    ]  # Castagnoli's polynomial, reflected


def _masked_crc(data: bytes) -> bytes:
    """CRC-32C, rotated and offset as TFRecord wants it, so that a CRC of data with CRCs in it stays a good one."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
