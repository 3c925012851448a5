"""Writes the samples of one block of lanes as columns, part by part.

    begin       first observations of some lanes: an episode begins before the next tick
    add         a tick: actions, rewards, ends, and the observations after it; ragged leaves are kept tick by tick
    truncate    marks the running episodes as ended by the last added tick
    flush       writes the ticks since the last part as a file; `add` does so when a part is full

A leg ends with a flush, so a part never holds ticks of two legs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.dataset.format import (
    LENGTHS,
    MANIFEST,
    Column,
    EntitySamples,
    Manifest,
    folder_of,
    part_path,
    parts_in,
    read_arrays,
    start_and_lane,
    write_arrays,
)
from arena.errors import ConfigError
from arena.game.api import Frame, Step
from arena.game.ragged import Ragged
from arena.game.spaces import Leaf, flatten, leaves_of
from arena.records import checksums
from arena.records.atomic import make_folder, replacing

_MOST_TICKS = 4096  # of a part
_MOST_BYTES = 16 * 2**20  # of a part in memory, unless a single tick needs more

Array = NDArray[Any]


class SampleWriter:
    """Writes the samples of some lanes, given by their numbers, of a match.

    The folder of the run's samples is created with the first part.
    """

    def __init__(self, samples: Path, manifest: Manifest, lanes: range) -> None:
        self._samples = samples
        self._folder = folder_of(samples, manifest.match, round=manifest.round)
        self._manifest = json.dumps(manifest.to_json(), indent=1, allow_nan=False).encode() + b"\n"
        path = self._folder / MANIFEST
        if path.exists() and path.read_bytes() != self._manifest:
            raise ConfigError(
                "holds samples of other entities, policies or spaces than this match has now (matches are renumbered "
                "when copies change): restore the earlier configuration, move the samples folder away, or start a new "
                "run",
                source=str(path),
            )
        self._lanes = np.array(lanes)
        columns = manifest.columns()
        self._ticks = ticks_of_part(columns, lanes=len(lanes), entities=len(manifest.entities))
        # Zeros for the columns with a tick axis: one tick more than is stored, for the last tick's observations.
        sizes = {"tick": self._ticks + 1, "lane": len(lanes), "entity": len(manifest.entities)}
        self._columns = {
            name: np.zeros((*(sizes[axis] for axis in column.axes), *column.shape), column.dtype)
            for name, column in columns.items()
            if column.axes[0] == "tick" and not column.ragged and name.removesuffix(LENGTHS) == name
        }
        self._entities = [
            _EntityColumns(entity, index, self._columns, len(lanes)) for index, entity in enumerate(manifest.entities)
        ]
        self._played = 0  # ticks since the last part

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Adds the first observations of the lanes [L] in which an episode begins."""
        self._see(self._played, frame, lanes)
        self._columns["begins"][self._played, lanes] = True

    def add(
        self,
        tick: int,
        actions: Sequence[Any],
        step: Step,
        *,
        idle: Iterable[int],
        episodes: NDArray[np.int64],
        cut: NDArray[np.bool_],
    ) -> None:
        """Adds a tick; the first of a run is 1.

        `actions` are per entity a batched sample [L, ...], `idle` the entities for which no worker acted; `episodes`
        [L] are the numbers of the lanes' episodes, which the arena ends now where `cut` [L]. Arrays are copied.
        """
        if self._played == self._ticks or sum(entity.ragged_bytes for entity in self._entities) > _MOST_BYTES:
            self.flush()
        t, columns = self._played, self._columns
        columns["tick"][t], columns["episode"][t], columns["cut"][t] = tick, episodes, cut
        columns["idle"][t] = False
        columns["idle"][t, list(idle)] = True
        columns["rewards"][t] = step.rewards
        columns["terminated"][t], columns["truncated"][t] = step.terminated, step.truncated
        external = step.frame.external
        if external is not None:
            columns["void"][t] = external.void
        active = columns["active"][t]
        resting = None if active.all() else ~active  # [L, E] the entities that were not to act
        for index, (entity, action) in enumerate(zip(self._entities, actions, strict=True)):
            entity.act(t, action, None if resting is None else resting[:, index])
        self._played = t + 1
        columns["begins"][t + 1] = False
        self._see(t + 1, step.frame, slice(None))
        self._end(step.terminated | step.truncated)

    def truncate(self, playing: NDArray[np.bool_]) -> None:
        """Truncates the episodes of all entities still `playing` [L, E] at the last added tick."""
        self._columns["truncated"][self._played - 1] |= playing
        self._columns["cut"][self._played - 1] |= playing.any(axis=1)
        self._end(playing)

    def flush(self) -> None:
        """Writes the ticks since the last part, if any; the next part begins with the current observations."""
        if self._played == 0:
            return
        for folder in (self._samples, self._folder.parent, self._folder):
            make_folder(folder)
        if not (self._folder / MANIFEST).exists():
            checksums.replace(self._folder / MANIFEST, self._manifest)
        first = int(self._columns["tick"][0])
        with replacing(part_path(self._folder, start=first - 1, lane=int(self._lanes[0]))) as file:
            # The columns as they are stored.
            part = {"lane": self._lanes}
            part |= {name: column[: self._played] for name, column in self._columns.items()}
            for index, entity in enumerate(self._entities):
                active = part["active"][:, :, index].ravel()
                part |= {
                    f"{index}/{name}": array for name, array in entity.ragged_columns(self._played, active).items()
                }
                part |= {
                    f"{index}/end/{name}": array for name, array in entity.ended(part["tick"], self._lanes).items()
                }
            write_arrays(file, part)
        for column in self._columns.values():  # the observations for the next tick become the first ones
            column[0] = column[self._played]
        for entity in self._entities:
            entity.begin_part(self._played)
        self._played = 0

    def _see(self, t: int, frame: Frame, lanes: Any) -> None:
        self._columns["active"][t, lanes] = frame.active[lanes]
        if frame.external is not None:
            self._columns["given"][t, lanes] = frame.external.given[lanes]
        for entity, observed, mask in zip(self._entities, frame.observations, frame.masks, strict=True):
            entity.see(t, observed, mask, lanes)

    def _end(self, ended: NDArray[np.bool_]) -> None:
        """Stores the last observations of the entities that ended [L, E] at the last added tick."""
        if not np.count_nonzero(ended):
            return
        for index, entity in enumerate(self._entities):
            rows = np.flatnonzero(ended[:, index])
            if len(rows):
                entity.end(self._played, rows)


class _RaggedTicks:
    """A ragged leaf, tick by tick: `_EntityColumns` holds it in place of a column [T, L, ...]."""

    def __init__(self, leaf: Leaf, lanes: int) -> None:
        self.leaf = leaf
        self._ticks = [Ragged.empty(lanes, leaf.dtype, leaf.shape)]
        self.nbytes = 0

    def put(self, t: int, batch: Ragged, lanes: Any) -> None:
        """Sets tick t of these lanes: the last one, or the one after it."""
        batch = batch.astype(self.leaf.dtype)
        if t == len(self._ticks):
            self._ticks.append(batch.copy())
        elif isinstance(lanes, slice):
            self._ticks[t] = batch.copy()
        else:
            self._ticks[t] = self._ticks[t].replaced(batch, lanes)
        self.nbytes += batch.values.nbytes or batch.total  # items without features count, too

    def at(self, t: int, rows: NDArray[np.intp] | slice) -> Ragged:
        return self._ticks[t][rows]

    def column(self, ticks: int) -> Ragged:
        """The first ticks, as rows in the order (tick, lane)."""
        return Ragged.concat(self._ticks[:ticks])

    def begin_part(self, first: int) -> None:
        """Forgets the ticks before this one."""
        self._ticks = self._ticks[first : first + 1] or [self._ticks[-1]]
        self.nbytes = self._ticks[0].values.nbytes or self._ticks[0].total


class _EntityColumns:
    """The columns of one entity; `t` counts the ticks since the last part."""

    def __init__(self, entity: EntitySamples, index: int, columns: dict[str, Array], lanes: int) -> None:
        self._entity = entity

        def leaves(kind: str, space: Space[Any]) -> list[Any]:
            return [
                _RaggedTicks(leaf, lanes) if leaf.ragged else columns[f"{index}/{kind}/{number}"]
                for number, leaf in enumerate(leaves_of(space, ragged=True))
            ]

        self._observations = leaves("observation", entity.observation_space)
        self._actions = leaves("action", entity.action_space)
        self._mask = columns.get(f"{index}/mask")
        self.ends: list[tuple[int, NDArray[np.intp], list[Any]]] = []  # tick, rows, last observations

    @property
    def ragged_bytes(self) -> int:
        """The bytes of the ragged leaves."""
        return sum(leaf.nbytes for leaf in (*self._observations, *self._actions) if isinstance(leaf, _RaggedTicks))

    def see(self, t: int, observed: Any, mask: Array | None, lanes: Any) -> None:
        for leaf, array in zip(self._observations, flatten(self._entity.observation_space, observed), strict=True):
            if isinstance(leaf, _RaggedTicks):
                leaf.put(t, array, lanes)
            else:
                leaf[t, lanes] = array[lanes]
        if self._mask is not None and mask is not None:
            self._mask[t, lanes] = mask[lanes]

    def act(self, t: int, action: Any, resting: NDArray[np.bool_] | None) -> None:
        for leaf, array in zip(self._actions, flatten(self._entity.action_space, action), strict=True):
            if isinstance(leaf, _RaggedTicks):
                leaf.put(t, array if resting is None else array.kept(~resting), slice(None))
                continue
            leaf[t] = array
            if resting is not None:
                leaf[t, resting] = 0

    def end(self, t: int, rows: NDArray[np.intp]) -> None:
        last = [leaf.at(t, rows) if isinstance(leaf, _RaggedTicks) else leaf[t, rows] for leaf in self._observations]
        self.ends.append((t - 1, rows, last))

    def begin_part(self, played: int) -> None:
        """The observations after the last played tick become the first ones of the next part."""
        self.ends.clear()
        for leaf in (*self._observations, *self._actions):
            if isinstance(leaf, _RaggedTicks):
                leaf.begin_part(played)

    def ragged_columns(self, ticks: int, active: NDArray[np.bool_]) -> dict[str, Array]:
        """The columns of ragged leaves; rows that are not `active` [T * L] have no actors, as workers saw them."""
        found = {}
        for kind, leaves in (("observation", self._observations), ("action", self._actions)):
            for number, leaf in enumerate(leaves):
                if isinstance(leaf, _RaggedTicks):
                    rows = leaf.column(ticks)
                    found[f"{kind}/{number}"] = rows = rows.kept(active) if leaf.leaf.of_actors else rows
        return _split_columns(found, (ticks, -1))

    def ended(self, ticks: Array, lanes: Array) -> dict[str, Array]:
        """All ends in the part: tick, lane, and the leaves of the last observations."""
        count = [len(rows) for _, rows, _ in self.ends]
        rows = np.concatenate([*(rows for _, rows, _ in self.ends), np.zeros(0, np.intp)])
        at = np.repeat(np.array([t for t, _, _ in self.ends], np.intp), count)
        found = {"tick": ticks[at], "lane": lanes[rows]}
        for number, leaf in enumerate(self._observations):
            parts = [leaves[number] for _, _, leaves in self.ends]
            if isinstance(leaf, _RaggedTicks):
                joined = Ragged.concat([*parts, leaf.at(0, slice(0, 0))])
                found |= _split_columns({f"observation/{number}": joined}, (-1,))
            else:
                found[f"observation/{number}"] = np.concatenate([*parts, leaf[:0, 0]])
        return found


def _split_columns(columns: Mapping[str, Ragged], shape: tuple[int, ...]) -> dict[str, Array]:
    """Ragged columns as the two arrays that are stored, the lengths in this shape."""
    found = {}
    for name, rows in columns.items():
        found[name] = rows.values
        found[name + LENGTHS] = rows.lengths.astype(np.int32).reshape(shape)
    return found


def discard_after(folder: Path, tick: int) -> None:
    """Truncates the parts of a match to those up to a tick; does nothing if there are none.

    No process may be writing them. A part that goes beyond the tick keeps its earlier ticks. A damaged part is left for
    its readers to report.
    """

    def until(name: str, arrays: Mapping[str, Array]) -> slice:
        """The items of a column up to the tick; the ticks ascend along its first axis."""
        if name == "lane":
            return slice(None)
        if (lengths := arrays.get(name + LENGTHS)) is not None:
            return slice(int(lengths[until(name + LENGTHS, arrays)].sum()))
        entity, end, _ = name.partition("/end/")
        ticks = arrays[f"{entity}/end/tick"] if end else arrays["tick"]
        return slice(int(np.searchsorted(ticks, tick, side="right")))

    for path in parts_in(folder):
        if start_and_lane(path)[0] >= tick:
            path.unlink()
            continue
        try:
            arrays = read_arrays(path)
            kept = {name: array[until(name, arrays)] for name, array in arrays.items()}
        except (ConfigError, KeyError, IndexError, TypeError):
            continue
        if len(kept["tick"]) < len(arrays["tick"]):
            with replacing(path) as file:
                write_arrays(file, kept)
    for path in folder.glob(".*.npz.part"):
        path.unlink()


def ticks_of_part(columns: dict[str, Column], *, lanes: int, entities: int) -> int:
    """The number of ticks of a full part; depends only on the match."""
    sizes = {"lane": lanes, "entity": entities}
    played = [column for column in columns.values() if column.axes[0] == "tick" and not column.ragged]
    tick_bytes = sum(column.item_bytes * int(np.prod([sizes[axis] for axis in column.axes[1:]])) for column in played)
    return max(1, min(_MOST_TICKS, _MOST_BYTES // tick_bytes))
