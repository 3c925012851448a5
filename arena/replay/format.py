"""Replays on the disk: what is needed to play a match again, and digests to see that it is the same.

    replays/round-0000/match-0003/
    ├── manifest.json                      format version, how the game is made, its entities with policies and spaces
    ├── 000000000000.lane-0000.replay      what some lanes have played in the leg that begins after tick 0
    └── 000000010000.lane-0000.replay      the same lanes in the next leg

A file is a row of chunks, appended while the leg is played. A chunk has a head of three numbers (uint32, little
endian): the bytes of its body, the body's CRC-32, and the CRC-32 of these two numbers; its body is a `Chunk` as
MessagePack, compressed by zlib. What a kill leaves of the last chunk is skipped by readers.

Seeds are given to a game when it is made, at the beginning of a leg or after it has failed; later episodes go on with
its random streams, as they did when they were played. So an episode is played again from there. That keeps a run with
replays, to the bit, the run that it is without, and costs little: a game alone is much faster than one that learns.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.spaces import leaves_of
from arena.records.atomic import replacing
from arena.records.space_json import space_from_json, space_to_json

VERSION = 1
MANIFEST = "manifest.json"
_HEAD = struct.Struct("<III")
_CHECKED = struct.Struct("<II")  # the part of the head that its own checksum is of
_MOST_BYTES = 2**28  # of a chunk that is unpacked: a file that asks for more is not ours
_FILE = re.compile(r"([0-9]+)\.lane-([0-9]+)\.replay", re.ASCII)

Array = NDArray[Any]
Leaves = tuple[Array, ...]


class EntityReplays(NamedTuple):
    """Whose actions stand in the columns of one entity."""

    name: str  # of the entity in its game
    policy: str  # whose worker drove it
    seat: int  # that it belonged to
    action_space: Space[Any]


class Manifest(NamedTuple):
    """How a match is made, and what its chunks hold."""

    round: int
    match: int
    env: str  # the game, as the configuration calls it
    make: str  # what makes it
    kwargs: dict[str, Any]  # with these arguments
    wrappers: tuple[tuple[str, Any], ...]  # name and argument of each, the innermost first
    entities: tuple[EntityReplays, ...]

    def columns(self) -> tuple[tuple[Column, ...], ...]:
        """Per entity the columns of its actions' leaves."""
        return tuple(tuple(_columns(entity.action_space)) for entity in self.entities)

    def layouts(self) -> list[tuple[np.dtype[Any], tuple[int, ...]]]:
        """The types and shapes of all columns, in the order of the entities."""
        return [(column.dtype, column.shape) for columns in self.columns() for column in columns]

    def to_bytes(self) -> bytes:
        """The content of the file."""
        entities = [
            {**entity._asdict(), "action_space": space_to_json(entity.action_space)} for entity in self.entities
        ]
        return json.dumps({"version": VERSION, **self._asdict(), "entities": entities}, indent=1).encode() + b"\n"


class Column(NamedTuple):
    """How one leaf of an action is written: choices count from 0 in the least type that holds them."""

    dtype: np.dtype[Any]  # on the disk
    shape: tuple[int, ...]  # of an item
    low: Any  # the first choice; None: no choices, any number is written as it is
    given: np.dtype[Any]  # in the game

    @property
    def item_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def packed(self, array: Array) -> Array:
        """Actions [L, ...] as they are written."""
        counted = array if self.low is None else array - self.low
        return counted.astype(self.dtype, copy=False)

    def unpacked(self, array: Array) -> Array:
        """Actions as they were."""
        found = array.astype(self.given)
        return found if self.low is None else (found + self.low).astype(self.given, copy=False)


class Begin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Episodes begin in some lanes.

    Args:
        tick: after which one.
        lanes: by their places in the file's lanes.
        episodes: their numbers, as in episodes.jsonl; one whose number comes again was dropped.
        digests: of what was seen first.
        seeds: that were given to these lanes; None: none.
        options: of the reset.
        lost: what options there were that could not be written down; empty where all are here.
        anew: the game was made for this; all lanes begin.
    """

    tick: int
    lanes: list[int]
    episodes: list[int]
    digests: list[Annotated[int, msgspec.Meta(ge=0, lt=2**16)]]
    seeds: list[int | None] | None = None
    options: dict[str, Any] | None = None
    lost: str = ""
    anew: bool = False


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Some ticks of some lanes: `T` ticks, `L` lanes.

    Args:
        lane: the number of the first of the lanes.
        lanes: how many there are.
        tick: how many ticks were played before.
        ticks: how many there are here.
        begins: in the order in which they came.
        failed: the ticks at which the game has failed, which it did not play.
        actions: per entity and leaf the columns [T, L, ...], zeros for who was not to act.
        digests: uint16 [T, L], see `arena.replay.digests`.
    """

    lane: int
    lanes: int
    tick: int
    ticks: int
    begins: list[Begin]
    failed: list[int]
    actions: list[bytes]
    digests: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Chunk)


def folder_of(replays: Path, *, round: int, match: int) -> Path:
    """Where the replays of a match are."""
    return replays / f"round-{round:04d}" / f"match-{match:04d}"


def file_path(folder: Path, *, start: int, lane: int) -> Path:
    """The file of the leg that begins after tick `start`, of the lanes of which `lane` is the first."""
    return folder / f"{start:012d}.lane-{lane:04d}.replay"


def files_in(folder: Path) -> list[Path]:
    """The files of a match by ticks and lanes."""
    return sorted((path for path in folder.glob("*.replay") if _FILE.fullmatch(path.name)), key=start_and_lane)


def start_and_lane(path: Path) -> tuple[int, int]:
    """How many ticks were played before a file, and the first of its lanes: its name says it."""
    match = _FILE.fullmatch(path.name)
    assert match is not None, f"{path} is no replay"
    return int(match[1]), int(match[2])


def framed(chunk: Chunk) -> bytes:
    """A chunk as it stands in a file."""
    body = zlib.compress(_encoder.encode(chunk))
    checked = _CHECKED.pack(len(body), zlib.crc32(body))
    return checked + zlib.crc32(checked).to_bytes(4, "little") + body


def chunks_in(path: Path) -> Iterator[Chunk]:
    """The whole chunks of a file; what a kill has left of another one is not looked at.

    Raises:
        ConfigError: the file cannot be read, or is damaged before its end.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from error
    at = 0
    while len(data) - at >= _HEAD.size:
        size, checksum, of_head = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + size]
        if zlib.crc32(data[at : at + _CHECKED.size]) != of_head:
            raise damaged(path, f"at byte {at} no chunk begins")
        if len(body) < size:
            return
        if zlib.crc32(body) != checksum:
            raise damaged(path, f"the chunk at byte {at} does not have its checksum")
        yield _chunk(path, body)
        at += _HEAD.size + size


def discard_after(folder: Path, tick: int) -> None:
    """Brings the replays of a match back to what they were at a tick; does nothing where there are none.

    Nobody may be writing here.

    Args:
        folder: of the match.
        tick: what was played after it is forgotten.
    """
    newest: dict[int, Path] = {}  # of what stays, by its first lane: files before it have no later ticks
    for path in files_in(folder):
        start, first = start_and_lane(path)
        if start >= tick:
            path.unlink()
        else:
            newest[first] = path
    for path in newest.values():
        _cut(path, tick)
    if not files_in(folder):  # so whoever plays next under this number may be another match
        (folder / MANIFEST).unlink(missing_ok=True)


def damaged(path: Path, why: str) -> ConfigError:
    """What to raise for a file that nobody has written so."""
    return ConfigError(f"is no replay, or is damaged: {why}", source=str(path))


def manifest_of(path: Path) -> Manifest:
    """What a manifest's file says.

    Raises:
        ConfigError: it cannot be read, is damaged, or of a newer arena.
    """
    try:
        written = json.loads(path.read_bytes())
        if written.pop("version") > VERSION:
            raise ConfigError(
                f"has another format version than this arena, which reads up to {VERSION}: install a newer one",
                source=str(path),
            )
        written["entities"] = tuple(
            EntityReplays(**{**entity, "action_space": space_from_json(entity["action_space"])})
            for entity in written["entities"]
        )
        written["wrappers"] = tuple((name, argument) for name, argument in written["wrappers"])
        return _checked(Manifest(**written))
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError) as error:
        raise ConfigError(f"is no manifest of replays, or is damaged: {error}", source=str(path)) from error


def _checked(manifest: Manifest) -> Manifest:
    kinds = {"round": int, "match": int, "env": str, "make": str, "kwargs": dict}
    wrong = [name for name, kind in kinds.items() if type(getattr(manifest, name)) is not kind]
    for entity in manifest.entities:
        fits = zip((entity.name, entity.policy, entity.seat), (str, str, int), strict=True)
        wrong += [f"entities: {entity.name!r}"] if not all(type(value) is kind for value, kind in fits) else []
    if wrong or not manifest.entities:
        raise ValueError(f"not as it is written: {', '.join(wrong) or 'no entities'}")
    return manifest


def _chunk(path: Path, body: bytes) -> Chunk:
    unpacking = zlib.decompressobj()
    try:
        chunk = _decoder.decode(unpacking.decompress(body, _MOST_BYTES))
    except (zlib.error, msgspec.MsgspecError, MemoryError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    return chunk


def _cut(path: Path, tick: int) -> None:
    """Forgets the ticks of a file that are later than a tick; one that is damaged stays so: its readers say it."""
    try:
        chunks = list(chunks_in(path))
        kept = [_until(chunk, tick) for chunk in chunks if chunk.tick < tick]
    except (ConfigError, ZeroDivisionError):
        return
    if kept == chunks:
        return
    with replacing(path) as file:
        file.write(b"".join(map(framed, kept)))


def _until(chunk: Chunk, tick: int) -> Chunk:
    """The part of a chunk that is not later than a tick."""
    ticks = min(chunk.ticks, tick - chunk.tick)
    return Chunk(
        chunk.lane,
        chunk.lanes,
        chunk.tick,
        ticks,
        [begin for begin in chunk.begins if begin.tick <= tick],
        [failed for failed in chunk.failed if failed <= tick],
        [column[: len(column) // chunk.ticks * ticks] for column in chunk.actions],
        chunk.digests[: len(chunk.digests) // chunk.ticks * ticks],
    )


def _columns(space: Space[Any]) -> Iterator[Column]:
    """The columns of an action space, in the order of its leaves."""
    if isinstance(space, spaces.Dict):
        for part in space.spaces.values():
            yield from _columns(part)
    elif isinstance(space, spaces.Tuple):
        for part in space.spaces:
            yield from _columns(part)
    else:
        (leaf,) = leaves_of(space)
        low, count = _choices(space)
        dtype = leaf.dtype if low is None else np.min_scalar_type(max(count - 1, 0))
        yield Column(dtype, leaf.shape, low, leaf.dtype)


def _choices(space: Space[Any]) -> tuple[Any, int]:
    """The first choice, and how many there are at most; no first one in a Box."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, int(space.nvec.max())
    return (0, 2) if isinstance(space, spaces.MultiBinary) else (None, 0)
