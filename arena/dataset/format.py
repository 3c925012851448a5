"""The files of recorded samples: all ticks of a match, as columns.

    samples/match-0003/
    ├── manifest.json                    format version, the match, its entities with policies and spaces, the columns
    ├── 000000000000.lane-0000.npz       the first part: some lanes, from tick 1 on
    └── 000000001024.lane-0000.npz       the part that begins after tick 1024

In a league the matches are numbered per round, and each round has a folder: `samples/round-0002/match-0003/`.

A part holds `T` ticks of `L` lanes with `E` entities. It is a plain NPZ file without objects, for `numpy.load`. Below,
`e` stands for the index of an entity in the manifest, `i` for a leaf of its space (see `arena.game.spaces`):

    tick [T]   lane [L]                  numbers of the ticks (the first of a run is 1) and of the lanes
    episode    [T, L]                    the number of the lane's episode, as in episodes.jsonl
    begins     [T, L]                    an episode begins with the observations before this tick
    cut        [T, L]                    the arena ended the lane's episode at this tick, the last one of a leg
    active     [T, L, E]                 the entity was to act on this tick
    idle       [T, E]                    no worker acted for the entity: it played the no-op
    rewards, terminated, truncated       [T, L, E], of this tick
    given, void                          [T, L, E], only of external games: the game has acted by itself on this tick;
                                         nothing is to be learned from the transition that ends with this tick
    e/observation/i, e/mask              [T, L, ...], the entity's observation and mask before it acted
    e/action/i                           [T, L, ...], its action; zeros where it was not active
    e/end/tick, e/end/lane               [K], where its episodes ended, in the order of the ticks
    e/end/observation/i                  [K, ...], their last observations

A ragged leaf has two columns in place of one: `e/observation/i` [M, ...], the items of all rows in the order (tick,
lane), and `e/observation/i/lengths` [T, L]. The same holds for `e/action/i`, with length 0 where the entity did not
act, and for `e/end/observation/i`, with lengths [K].

The manifest and a part are enough to read the columns. A part gets its name when it is complete and on the disk.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.spaces import leaves_of, mask_size
from arena.records.space_json import space_from_json, space_to_json
from arena.records.state_codec import read_array

VERSION = 2  # of samples of external games and of games with ragged leaves; those of other games have version 1
LENGTHS = "/lengths"  # appended to the name of a ragged column: the column with its lengths
_FLAG, _INT = np.dtype(np.bool_), np.dtype(np.int64)


class EntitySamples(msgspec.Struct, frozen=True):
    """The entity of some columns, with its policy and spaces."""

    name: str  # of the entity in its game
    policy: str  # of the worker that drove it
    seat: int  # of the worker
    observation_space: Space[Any]  # of one row
    action_space: Space[Any]  # of one row
    mask_size: int  # length of an action mask; 0 if it has none


class Column(NamedTuple):
    """One array of a part: the names of its axes, and the dtype and shape of an item."""

    axes: tuple[str, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    ragged: bool = False  # the items of all rows, one after the other; the axes are those of the rows

    @property
    def item_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Manifest(msgspec.Struct, frozen=True):
    """The content of a match's parts."""

    match: int
    env: str
    entities: tuple[EntitySamples, ...]
    round: int | None = None  # of a league; None: a run without rounds
    external: bool = False  # whether the games are external

    def columns(self) -> dict[str, Column]:
        """All arrays of a part, in the order of the file."""
        tick_lane = ("tick", "lane")
        per_entity = (*tick_lane, "entity")
        columns = {
            "tick": Column(("tick",), _INT),
            "lane": Column(("lane",), _INT),
            "episode": Column(tick_lane, _INT),
            "begins": Column(tick_lane, _FLAG),
            "cut": Column(tick_lane, _FLAG),
            "active": Column(per_entity, _FLAG),
            "idle": Column(("tick", "entity"), _FLAG),
            "rewards": Column(per_entity, np.dtype(np.float64)),
            "terminated": Column(per_entity, _FLAG),
            "truncated": Column(per_entity, _FLAG),
        }
        if self.external:
            columns |= {"given": Column(per_entity, _FLAG), "void": Column(per_entity, _FLAG)}
        for index, entity in enumerate(self.entities):
            played, end = ("tick", "lane"), (f"end {index}",)
            columns |= {f"{index}/end/tick": Column(end, _INT), f"{index}/end/lane": Column(end, _INT)}
            for kind, space, axes in (
                ("observation", entity.observation_space, played),
                ("end/observation", entity.observation_space, end),
                ("action", entity.action_space, played),
            ):
                for number, leaf in enumerate(leaves_of(space, ragged=True)):
                    name = f"{index}/{kind}/{number}"
                    columns[name] = Column(axes, leaf.dtype, leaf.shape, leaf.ragged)
                    if leaf.ragged:
                        columns[name + LENGTHS] = Column(axes, np.dtype(np.int32))
            if entity.mask_size:
                columns[f"{index}/mask"] = Column(played, np.dtype(np.int8), (entity.mask_size,))
        return columns

    def to_json(self) -> dict[str, Any]:
        """The content of manifest.json."""
        return {
            "version": VERSION if self.external or any(column.ragged for column in self.columns().values()) else 1,
            "round": self.round,
            "match": self.match,
            "env": self.env,
            **({"external": True} if self.external else {}),
            "entities": msgspec.to_builtins(self.entities, enc_hook=space_to_json),
            "columns": {
                name: {
                    "axes": list(column.axes),
                    "dtype": str(column.dtype),
                    "shape": list(column.shape),
                    **({"ragged": True} if column.ragged else {}),
                }
                for name, column in self.columns().items()
            },
        }

    @classmethod
    def from_json(cls, written: Any) -> Manifest:
        """Reads the result of `to_json`; raises ValueError if it is something else."""
        found = msgspec.convert(written, cls, dec_hook=lambda _, space: space_from_json(space))
        for entity in found.entities:
            if entity.mask_size not in (0, mask_size(entity.action_space)):
                raise ValueError(f"no mask of {entity.action_space} has {entity.mask_size} items")
        if json.loads(json.dumps(found.to_json()))["columns"] != written.get("columns"):
            raise ValueError("the columns do not fit the entities' spaces")
        return found


def write_arrays(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes a part; equal arrays give equal bytes."""
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no array is called allow_pickle


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a part, in the order of the file. Needs no more memory than the size of the file."""
    unreadable = (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, RuntimeError, KeyError)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            if packed or sum(member.file_size for member in members) > path.stat().st_size:
                raise ValueError("its members are larger than the file")
            return {member.filename.removesuffix(".npy"): read_array(archive.read(member)) for member in members}
    except (*unreadable, MemoryError) as error:
        raise ConfigError(f"is not a part of recorded samples, or is damaged: {error}", source=str(path)) from error
