"""Messages of the side channels: engine configuration, float properties, environment parameters, statistics.

Each message has the GUID of its channel. Text is its length (i32) and ASCII; numbers are little-endian.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

ENGINE = uuid.UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")
PROPERTIES = uuid.UUID("60ccf7d0-4f7e-11ea-b238-784f4387d1f7")
PARAMETERS = uuid.UUID("534c891e-810f-11ea-a9d0-822485860400")
STATISTICS = uuid.UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")

_I32 = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
_AVERAGE, _MOST_RECENT, _SUM, _HISTOGRAM = range(4)  # how statistics are aggregated

Message = tuple[uuid.UUID, bytes]


class Channel(Protocol):
    """A user-defined side channel; made without arguments, once for each simulator."""

    guid: uuid.UUID

    def receive(self, data: bytes) -> None:
        """A message has come."""
        ...

    def outgoing(self) -> Sequence[bytes]:
        """The messages to send; asked for before each give."""
        ...


class Engine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engine configuration; `form: each` sends a message per setting."""

    form: Literal["single", "each"] = "single"
    width: _I32 = 80
    height: _I32 = 80
    quality: _I32 = 1
    time_scale: Annotated[float, Meta(gt=0, le=100)] = 20.0
    target_frame_rate: _I32 = -1
    capture_frame_rate: _I32 = 60

    def messages(self) -> list[Message]:
        """The messages of this configuration."""
        sizes, rate = (self.width, self.height), self.target_frame_rate
        if self.form == "single":
            return [(ENGINE, struct.pack("<iiifi", *sizes, self.quality, self.time_scale, rate))]
        parts = [
            struct.pack("<iii", 0, *sizes),
            struct.pack("<ii", 1, self.quality),
            struct.pack("<if", 2, self.time_scale),
            struct.pack("<ii", 3, rate),
            struct.pack("<ii", 4, self.capture_frame_rate),
        ]
        return [(ENGINE, part) for part in parts]


def property_message(key: str, value: float) -> Message:
    """Sets a float property."""
    return PROPERTIES, _text(key) + struct.pack("<f", value)


def parameter_message(key: str, value: float) -> Message:
    """Sets an environment parameter."""
    return PARAMETERS, _text(key) + struct.pack("<if", 0, value)


def _text(text: str) -> bytes:
    data = text.encode("ascii")
    return struct.pack("<i", len(data)) + data


class Reported:
    """What a simulator has reported since the last `take`: its float properties and statistics.

    Attributes:
        unknown: messages of channels that are not known.
    """

    def __init__(self) -> None:
        self.unknown = 0
        self._last: dict[str, float] = {}
        self._sums: dict[str, tuple[float, int]] = {}  # with the count that divides it

    def receive(self, message: Message) -> bool:
        """Takes a message; False: its channel is another one."""
        guid, data = message
        if guid not in (PROPERTIES, STATISTICS):
            return False
        try:
            (size,) = struct.unpack_from("<i", data)
            if size < 0:
                raise struct.error
            key = data[4 : 4 + size].decode("ascii")
            (value,) = struct.unpack_from("<f", data, 4 + size)
            kind = struct.unpack_from("<i", data, 8 + size)[0] if guid == STATISTICS else _MOST_RECENT
        except (struct.error, UnicodeDecodeError):
            return True  # a damaged message of a known channel is ignored
        if kind in (_AVERAGE, _HISTOGRAM):
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = total + value, count + 1
        elif kind == _SUM:
            total, _ = self._sums.get(key, (0.0, 1))
            self._sums[key] = total + value, 1
        else:
            self._last[key] = value
        return True

    def take(self) -> dict[str, float]:
        """By key, the last value, or the mean or sum since the last call."""
        found = {**self._last, **{key: total / count for key, (total, count) in self._sums.items()}}
        self._last, self._sums = {}, {}
        return found
