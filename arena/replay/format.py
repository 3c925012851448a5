"""The files of replays: what is needed to play a match again, and digests to check that it is the same.

    replays/round-0000/match-0003/
    ├── manifest.json                      format version, how the game is made, entities, policies, spaces
    ├── 000000020000.manifest.json         the same from the leg after tick 20000 on, where something has changed
    ├── 000000000000.lane-0000.replay      the leg that begins after tick 0, of some lanes
    ├── 000000010000.lane-0000.replay      the same lanes in the next leg
    └── 000000020000.lane-0000.replay

A file is a sequence of chunks, appended while the leg is played. A chunk has a head of three numbers (uint32, little
endian): the length of its body, the body's CRC-32, and the CRC-32 of these two numbers. The body is a `Chunk` as
MessagePack, compressed by zlib. Readers skip an incomplete last chunk, which a killed process leaves.

A game is seeded when it is made, at the beginning of a leg or after it has failed; later episodes continue its random
streams. So the playback of an episode starts where its game was made. This way recording changes no bit of a run, and
playback costs little: a game alone is much faster than a run that learns.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.ragged import Ragged
from arena.game.spaces import leaf_spaces, leaves_of
from arena.records.folder import read_manifest
from arena.records.space_json import space_from_json, space_to_json

VERSION = 2  # of games with ragged leaves; those of other games have version 1
_HEAD = struct.Struct("<III")
_CHECKED = struct.Struct("<II")  # the part of the head that its checksum covers
_MOST_BYTES = 2**28  # of an unpacked chunk: a file that asks for more is not one of ours

Array = NDArray[Any]
Leaves = tuple[Any, ...]
"""Arrays [T, L, ...], and a `Ragged` of T * L rows in the order (tick, lane) in the place of each ragged leaf."""


class EntityReplays(msgspec.Struct, frozen=True):
    """The entity of some columns, with its policy and spaces."""

    name: str  # of the entity in its game
    policy: str  # of the worker that drove it
    seat: int  # of the worker
    action_space: Space[Any]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a match is made, and the content of its chunks."""

    round: int
    match: int
    env: str  # the game's name in the configuration
    make: str  # the callable that makes it
    kwargs: dict[str, Any]  # its arguments
    wrappers: tuple[tuple[str, Any], ...]  # name and argument of each wrapper, the innermost first
    entities: tuple[EntityReplays, ...]
    version: int = 1
    entry: int = 0  # number of the match's description
    copy: int = 0
    lanes: int = 0  # of the match; 0 in older files
    imports: tuple[str, ...] = ()  # modules that register the names above
    screen: Literal["xvfb"] | None = None  # the kind of virtual screen that the game needs

    def columns(self) -> tuple[tuple[Column, ...], ...]:
        """Per entity the columns of the leaves of its actions."""
        return tuple(tuple(_columns(entity.action_space)) for entity in self.entities)

    def to_bytes(self) -> bytes:
        """The content of manifest.json."""
        fields = msgspec.to_builtins(self, enc_hook=space_to_json)
        return json.dumps({"version": self.version, **fields}, indent=1).encode() + b"\n"


class Column(NamedTuple):
    """How one leaf of an action is stored: integers from 0, in the smallest dtype that holds them."""

    dtype: np.dtype[Any]  # in the file
    shape: tuple[int, ...]  # of an item
    low: Any  # the smallest integer; None: floats, stored as they are
    game_dtype: np.dtype[Any]  # in the game
    ragged: bool = False  # stored as the lengths of all rows, and the items of all rows

    @property
    def item_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def packed(self, array: Any) -> Any:
        """Actions [L, ...] as they are stored."""
        if isinstance(array, Ragged):
            return Ragged.unchecked(self.packed(array.values), array.lengths)
        counted = array if self.low is None else array - self.low
        return counted.astype(self.dtype, copy=False)

    def unpacked(self, array: Any) -> Any:
        """Stored actions as the game gets them."""
        if isinstance(array, Ragged):
            return Ragged.unchecked(self.unpacked(array.values), array.lengths)
        found = array.astype(self.game_dtype)
        return found if self.low is None else (found + self.low).astype(self.game_dtype, copy=False)


class Begin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Episodes begin in some lanes."""

    tick: int  # number of ticks played before
    lanes: list[int]  # indices into the file's lanes
    episodes: list[int]  # their numbers, as in episodes.jsonl; an episode whose number comes again was dropped
    digests: list[Annotated[int, msgspec.Meta(ge=0, lt=2**16)]]  # of the first observations
    seeds: list[int | None] | None = None  # of these lanes; None: none were given
    options: dict[str, Any] | None = None  # of the reset
    lost: str = ""  # a description of options that could not be stored; empty if all were
    new_game: bool = False  # whether the game was made for this; then all lanes begin


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Some ticks of some lanes: `T` ticks, `L` lanes."""

    lane: int  # the number of the first of the lanes
    lanes: int  # number of lanes
    tick: int  # number of ticks played before
    ticks: int  # number of ticks in the chunk
    begins: list[Begin]  # in their order
    failed: list[int]  # the ticks at which the game failed, which were not played
    actions: list[bytes]
    """Per entity and leaf the columns [T, L, ...], zeros for entities that were not to act; of a ragged leaf two: the
    lengths uint32 [T, L], and the items of all rows."""
    digests: bytes  # uint16 [T, L], see `arena.replay.digests`


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Chunk)


def framed(chunk: Chunk) -> bytes:
    """The bytes of a chunk in a file."""
    body = zlib.compress(_encoder.encode(chunk))
    checked = _CHECKED.pack(len(body), zlib.crc32(body))
    return checked + zlib.crc32(checked).to_bytes(4, "little") + body


def chunks_in(path: Path) -> Iterator[Chunk]:
    """The complete chunks of a file; an incomplete last one is ignored."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    at = 0
    while len(data) - at >= _HEAD.size:
        size, checksum, of_head = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + size]
        if zlib.crc32(data[at : at + _CHECKED.size]) != of_head:
            raise damaged(path, f"no chunk begins at byte {at}")
        if len(body) < size:
            return
        if zlib.crc32(body) != checksum:
            raise damaged(path, f"the chunk at byte {at} has a wrong checksum")
        unpacking = zlib.decompressobj()
        try:
            chunk = _decoder.decode(unpacking.decompress(body, _MOST_BYTES))
        except (zlib.error, msgspec.MsgspecError, MemoryError, RecursionError) as error:
            raise damaged(path, str(error)) from error
        yield chunk
        at += _HEAD.size + size


def damaged(path: Path, why: str) -> ConfigError:
    """The error for a file that is not valid."""
    return ConfigError(f"is not a replay, or is damaged: {why}", source=str(path))


def manifest_in(path: Path) -> Manifest:
    """The manifest in a file; raises ConfigError as `read_manifest`."""

    def made(written: Any) -> Manifest:
        found = msgspec.convert(written, Manifest, dec_hook=lambda _, space: space_from_json(space))
        if not found.entities:
            raise ValueError("no entities")
        return found

    return read_manifest(path, made, newest=VERSION, what="replays")


def _columns(space: Space[Any]) -> Iterator[Column]:
    """The columns of an action space, in the order of its leaves."""
    for part, leaf in zip(leaf_spaces(space), leaves_of(space, ragged=True), strict=True):
        feature = part.feature_space if isinstance(part, spaces.Sequence) else part
        low: Any = None  # a Box
        count = 0
        if isinstance(feature, spaces.Discrete):
            low, count = int(feature.start), int(feature.n)
        elif isinstance(feature, spaces.MultiDiscrete):
            low, count = feature.start, int(feature.nvec.max())
        elif isinstance(feature, spaces.MultiBinary):
            low, count = 0, 2
        dtype = leaf.dtype if low is None else np.min_scalar_type(max(count - 1, 0))
        yield Column(dtype, leaf.shape, low, leaf.dtype, leaf.ragged)
