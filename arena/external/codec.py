"""Frames of a socket between the arena and external games: a length (u32, little-endian) and one MessagePack array.

The first item of the array is the kind of frame. Observations, masks and actions are bytes: the leaves in the order of
`arena.game.spaces.leaves_of`, little-endian, in C order, without padding; a bool is one byte, a mask int8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.external.interface import Code, ExternalError
from arena.game.api import Info, Interface
from arena.game.arrays import is_finite, lost_value
from arena.game.spaces import check_choices, flatten, leaves_of, row, unflatten
from arena.records.space_json import space_from_json, space_to_json

VERSION = 1
MAX_BODY = 64 * 2**20
"""Bytes of a frame, unless the configuration says otherwise."""

_MOST_EXTRA = 2**16  # bytes of an info, or of a list of names: small values take far more memory once decoded
_MOST_NAME = 256  # characters of the name of an entity
Kind = TypeVar("Kind")
_LENGTH = struct.Struct("<I")


class _Frame(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Base of all frames."""


class Hello(_Frame, tag="hello"):
    """The first frame of a client."""

    version: int
    token: str | None
    client: str


class Start(_Frame, tag="start"):
    """A game begins."""

    id: str
    entities: msgspec.Raw  # list of names, or nil
    training: bool


class Ask(_Frame, tag="ask"):
    """An entity wants an action, or says which one it has taken."""

    id: str
    entity: str
    reward: float
    observation: memoryview
    mask: memoryview | None
    given: memoryview | None
    info: msgspec.Raw


class Pay(_Frame, tag="pay"):
    """A reward between two requests."""

    id: str
    entity: str
    reward: float


class End(_Frame, tag="end"):
    """The episode of an entity, or of all that have not ended, is over."""

    id: str
    entity: str | None
    reward: float
    observation: memoryview | None
    truncated: bool
    info: msgspec.Raw


class Ping(_Frame, tag="ping"):
    """Is answered at once."""

    number: int


class Welcome(_Frame, tag="hello"):
    """The first frame of the server."""

    version: int
    match: dict[str, Any]


class Started(_Frame, tag="started"):
    """A game has a slot."""

    id: str
    slot: int


class Action(_Frame, tag="action"):
    """What the policy has chosen."""

    id: str
    entity: str
    action: memoryview
    version: int


class Ended(_Frame, tag="ended"):
    """All entities of a game have ended."""

    id: str


class Pong(_Frame, tag="pong"):
    """The answer to `Ping`."""

    number: int


class Error(_Frame, tag="error"):
    """A frame is refused."""

    id: str | None
    code: str
    detail: str


class Dropped(_Frame, tag="dropped"):
    """The arena has given a game up."""

    id: str
    reason: str


FromClient = Hello | Start | Ask | Pay | End | Ping
FromServer = Welcome | Started | Action | Ended | Pong | Error | Dropped

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def check_id(name: str) -> None:
    """Raises `bad_frame` unless this may be the id of a game."""
    if not isinstance(name, str):
        raise ExternalError("bad_frame", f"the id {name!r}: expected text")
    if not 1 <= len(name) <= 256 or not all("\x21" <= letter <= "\x7e" for letter in name):
        raise ExternalError("bad_frame", f"the id {name[:32]!r}: expected 1 to 256 visible ASCII characters")


def check_entity(name: str | None) -> None:
    """Raises `bad_frame` if this is too long for the name of an entity."""
    if name is not None and len(name) > _MOST_NAME:
        raise ExternalError("bad_frame", f"the entity {name[:32]!r}: a name of {len(name)} characters")


def raw(value: Any) -> msgspec.Raw:
    """A value as a field of type Raw."""
    return msgspec.Raw(_encoder.encode(value))


def framed(frame: _Frame) -> bytes:
    """The bytes of a frame, with its length."""
    body = _encoder.encode(frame)
    return _LENGTH.pack(len(body)) + body


def from_client(body: bytearray | bytes | memoryview) -> FromClient:
    """The frame of a client; its views are of `body`.

    Raises:
        ExternalError: `bad_frame`.
    """
    try:
        return _from_client.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise ExternalError("bad_frame", str(error)) from None


def from_server(body: bytearray | bytes | memoryview) -> FromServer:
    """The frame of a server; its views are of `body`.

    Raises:
        ExternalError: `bad_frame`.
    """
    try:
        return _from_server.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise ExternalError("bad_frame", str(error)) from None


_infos: msgspec.msgpack.Decoder[dict[str, Any] | None] = msgspec.msgpack.Decoder(dict[str, Any] | None)
_names: msgspec.msgpack.Decoder[list[str] | None] = msgspec.msgpack.Decoder(list[str] | None)


def info_of(field: msgspec.Raw) -> Info | None:
    """The info in a frame: nil, or a map with texts as keys.

    Raises:
        ExternalError: `bad_frame`.
    """
    return _decoded(_infos, field, "info")


def names_of(field: msgspec.Raw) -> list[str] | None:
    """The names of entities in a frame: nil, or a list of texts.

    Raises:
        ExternalError: `bad_frame`.
    """
    return _decoded(_names, field, "entities")


def _decoded(decoder: msgspec.msgpack.Decoder[Kind], field: msgspec.Raw, what: str) -> Kind:
    size = len(memoryview(field))
    if size > _MOST_EXTRA:
        raise ExternalError("bad_frame", f"{what} has {size} bytes; at most {_MOST_EXTRA} are taken")
    try:
        return decoder.decode(field)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise ExternalError("bad_frame", f"{what}: {error}") from None


class FrameReader:
    """Cuts a stream of bytes into frames; buffers at most one frame, and allocates only what has come.

    Args:
        max_body: the largest frame that is taken; may be changed.
    """

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self.max_body = max_body
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[memoryview]:
        """Takes received bytes; yields the bodies of the frames that are complete.

        Raises:
            ExternalError: `too_large`, `bad_frame`.
        """
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer, at)
            if size > self.max_body and self._buffer[at : at + _LENGTH.size] == b"HTTP":
                raise ExternalError("bad_frame", "the other side speaks HTTP; `make: socket` is expected")
            if size > self.max_body:
                raise ExternalError("too_large", f"a frame of {size} bytes; at most {self.max_body} are taken")
            if size == 0:
                raise ExternalError("bad_frame", "a frame of 0 bytes")
            begin, end = at + _LENGTH.size, at + _LENGTH.size + size
            if len(self._buffer) < end:
                break
            if at == 0 and len(self._buffer) == end:  # the usual case, without a copy
                whole, self._buffer = self._buffer, bytearray()
                yield memoryview(whole)[begin:]
                return
            body = memoryview(bytes(memoryview(self._buffer)[begin:end]))
            at = end
            yield body
        if at:
            del self._buffer[:at]


class Codec:
    """The samples of one space as bytes.

    Raises:
        ConfigError: the space has no fixed layout.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.space = space
        self.leaves = leaves_of(space)
        # Cached: looking them up for each sample would take NumPy longer than the rest of the work.
        self._sizes = [leaf.nbytes for leaf in self.leaves]
        self._wire_types = [leaf.dtype.newbyteorder("<") for leaf in self.leaves]
        self.size = sum(self._sizes)
        # One array or number: the usual case, with a fast path.
        self._is_array = isinstance(space, Box) and space.dtype.kind != "b"
        is_number = isinstance(space, Discrete) and self.leaves[0].dtype == self._wire_types[0]
        self._scalar: type[np.generic] | None = self.leaves[0].dtype.type if is_number else None

    def pack(self, sample: Any, what: str, code: Code) -> bytes:
        """The bytes of a sample.

        Raises:
            ExternalError: `code`: it does not fit into the space, or is not finite.
        """
        if self._is_array and type(sample) is np.ndarray and sample.shape == self.leaves[0].shape:
            if sample.dtype == self._wire_types[0] and is_finite(sample):
                return sample.tobytes()
        elif self._scalar is not None and isinstance(sample, self._scalar):
            return sample.tobytes()
        try:
            arrays = flatten(self.space, sample)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            found = f"{type(sample).__name__} ({type(error).__name__} {error})"
            raise ExternalError(code, f"{what}: {found}; expected a sample of {self.space}") from None
        parts = []
        for leaf, wire_type, array in zip(self.leaves, self._wire_types, arrays, strict=True):
            lost = None if array.dtype == leaf.dtype else lost_value(array, leaf.dtype)
            fits = array.shape == leaf.shape and lost is None
            if not fits or not is_finite(array):
                path = "".join(f"[{key!r}]" for key in leaf.path)
                found = f"{array.dtype} {array.shape}" if not fits else "numbers that are not finite"
                found = found if lost is None else f"the value {lost}"
                raise ExternalError(code, f"{what}{path}: {found}; expected {leaf.dtype} {leaf.shape} of {self.space}")
            parts.append(array.astype(wire_type, copy=False).tobytes())
        return b"".join(parts)

    def unpack(self, data: bytes | memoryview, what: str, code: Code) -> Any:
        """The sample in these bytes, as `arena.game.spaces.row` gives it: a copy.

        Raises:
            ExternalError: `code`: the number of bytes does not fit the space, or a bool is neither 0 nor 1.
        """
        if len(data) != self.size:
            raise ExternalError(code, f"{what}: {len(data)} bytes; a sample of {self.space} has {self.size}")
        if self._is_array:
            return np.frombuffer(data, self._wire_types[0]).astype(self.leaves[0].dtype).reshape(self.leaves[0].shape)
        arrays: list[NDArray[Any]] = []
        at = 0
        for leaf, wire_type, size in zip(self.leaves, self._wire_types, self._sizes, strict=True):
            part = data[at : at + size]
            if leaf.dtype.kind == "b" and any(byte > 1 for byte in part):
                raise ExternalError(code, f"{what}: a bool is {max(part)}; expected 0 or 1")
            array = np.frombuffer(part, wire_type)
            arrays.append(array.astype(leaf.dtype, copy=False).reshape((1, *leaf.shape)))
            at += size
        return row(self.space, unflatten(self.space, arrays), 0)


class EntityCodec:
    """Converts the observations, masks and actions of one entity to and from bytes.

    Args:
        interface: of the games.
        entity: its index.

    Raises:
        ConfigError: a space has no fixed layout.
    """

    def __init__(self, interface: Interface, entity: int) -> None:
        self.name = interface.entities[entity]
        try:
            self.observation = Codec(interface.observation_spaces[entity])
            self.action = Codec(interface.action_spaces[entity])
        except ConfigError as error:
            raise ConfigError(f"games over sockets: {self.name!r}: {error.message}") from None
        self.mask_size = interface.mask_sizes[entity]

    def pack_mask(self, mask: Any) -> bytes | None:
        """The bytes of a mask; None stays None.

        Raises:
            ExternalError: `bad_mask`.
        """
        if mask is None:
            return None
        array = np.asarray(mask)
        if not self.mask_size:
            raise ExternalError("bad_mask", f"{self.name!r} has no action masks")
        if array.shape != (self.mask_size,) or array.dtype.kind not in "biu" or not array.any():
            raise ExternalError(
                "bad_mask", f"mask of {self.name!r}: {array.dtype} {array.shape}; expected {self.mask_size} of 0 and 1"
            )
        packed: bytes = (array != 0).astype(np.int8).tobytes()
        return packed

    def unpack_mask(self, data: memoryview | None) -> NDArray[np.int8] | None:
        """The mask in these bytes; the table checks its values."""
        return None if data is None else np.frombuffer(data, np.int8).copy()

    def pack_action(self, action: Any) -> bytes:
        """The bytes of an action that a game has taken by itself.

        Raises:
            ExternalError: `bad_action`.
        """
        packed = self.action.pack(action, f"action of {self.name!r}", "bad_action")
        try:
            check_choices(self.action.space, action)
        except (TypeError, ValueError) as error:
            raise ExternalError("bad_action", str(error)) from None
        return packed


def match_to_wire(interface: Interface, policies: Sequence[str], slots: int, free: int) -> dict[str, Any]:
    """What the server says about its match in its first frame."""
    entities = [
        {
            "name": name,
            "observation": space_to_json(interface.observation_spaces[entity]),
            "action": space_to_json(interface.action_spaces[entity]),
            "mask_size": interface.mask_sizes[entity],
            "policy": policies[entity] if policies else "",
        }
        for entity, name in enumerate(interface.entities)
    ]
    return {"entities": entities, "slots": slots, "free": free}


def interface_from_wire(match: dict[str, Any]) -> Interface:
    """The interface in the first frame of a server.

    Raises:
        ExternalError: `bad_frame`.
    """
    try:
        entities = match["entities"]
        return Interface(
            tuple(str(entity["name"]) for entity in entities),
            tuple(space_from_json(entity["observation"]) for entity in entities),
            tuple(space_from_json(entity["action"]) for entity in entities),
            tuple(int(entity["mask_size"]) for entity in entities),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ExternalError("bad_frame", f"the server describes no match: {error!r}") from None
