"""The pen of one block of lanes: what is played is kept in columns, and written down part by part.

    begin       first observations of some lanes: an episode begins before the next tick
    add         a tick: actions, rewards, who ended, what is seen then
    truncate    the tick that was added last has ended episodes after all
    flush       the ticks since the last part become a file; so does a part that is full, when a tick more is added

A leg ends with a flush, so a part never holds ticks of two legs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.dataset.format import (
    MANIFEST,
    Column,
    EntitySamples,
    Manifest,
    folder_of,
    part_path,
    parts_in,
    read_arrays,
    start_of,
    write_arrays,
)
from arena.errors import ConfigError
from arena.game.api import Frame, Step
from arena.game.spaces import flatten
from arena.records.atomic import make_folder, replacing

_MOST_TICKS = 4096  # of a part
_MOST_BYTES = 16 * 2**20  # of a part in memory, unless a single tick needs more

Array = NDArray[Any]


class SampleWriter:
    """Writes the samples of some lanes of a match.

    Args:
        samples: the folder of the run's samples; made, as those in it, when the first part is written.
        manifest: what the columns hold.
        lanes: by their numbers in the match.

    Raises:
        ConfigError: the folder has samples of another match under this number.
    """

    def __init__(self, samples: Path, manifest: Manifest, lanes: range) -> None:
        self._samples = samples
        self._folder = folder_of(samples, manifest.match, round=manifest.round)
        self._manifest = json.dumps(manifest.to_json(), indent=1, allow_nan=False).encode() + b"\n"
        _check_manifest(self._folder / MANIFEST, self._manifest)
        self._lanes = np.array(lanes)
        columns = manifest.columns()
        self._ticks = ticks_of_part(columns, lanes=len(lanes), entities=len(manifest.entities))
        self._columns = _allocated(columns, self._ticks, len(lanes), len(manifest.entities))
        self._entities = [
            _EntityColumns(entity, index, self._columns) for index, entity in enumerate(manifest.entities)
        ]
        self._played = 0  # ticks since the last part

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Takes the first observations of the lanes [L] in which an episode begins."""
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
        """Takes a tick.

        Args:
            tick: its number; the first of a run is 1.
            actions: per entity a batched sample, leading axis L.
            step: what the game said; its arrays are copied.
            idle: the entities for which nobody spoke.
            episodes: the number of each lane's episode [L].
            cut: whether the arena has ended it now [L].

        Raises:
            Unwritable: a part that was full cannot be written.
        """
        if self._played == self._ticks:
            self.flush()
        t, columns = self._played, self._columns
        columns["tick"][t], columns["episode"][t], columns["cut"][t] = tick, episodes, cut
        columns["idle"][t] = False
        columns["idle"][t, list(idle)] = True
        columns["rewards"][t] = step.rewards
        columns["terminated"][t], columns["truncated"][t] = step.terminated, step.truncated
        active = columns["active"][t]
        resting = None if active.all() else ~active  # [L, E]
        for index, (entity, action) in enumerate(zip(self._entities, actions, strict=True)):
            entity.act(t, action, None if resting is None else resting[:, index])
        self._played = t + 1
        columns["begins"][t + 1] = False
        self._see(t + 1, step.frame, slice(None))
        self._end(step.terminated | step.truncated)

    def truncate(self, playing: NDArray[np.bool_]) -> None:
        """Ends the episodes of all who are still `playing` [L, E] with the tick that was added last."""
        self._columns["truncated"][self._played - 1] |= playing
        self._columns["cut"][self._played - 1] |= playing.any(axis=1)
        self._end(playing)

    def flush(self) -> None:
        """Writes the ticks since the last part, if there are any, and begins the next part with what is seen now.

        Raises:
            Unwritable: the disk is full, or the folder has gone.
        """
        if self._played == 0:
            return
        self._make_folders()
        first = int(self._columns["tick"][0])
        with replacing(part_path(self._folder, start=first - 1, lane=int(self._lanes[0]))) as file:
            write_arrays(file, self._part())
        for column in self._columns.values():  # where it was to be the next tick, it is the first one
            column[0] = column[self._played]
        for entity in self._entities:
            entity.ends.clear()
        self._played = 0

    def _see(self, t: int, frame: Frame, lanes: Any) -> None:
        self._columns["active"][t, lanes] = frame.active[lanes]
        for entity, observed, mask in zip(self._entities, frame.observations, frame.masks, strict=True):
            entity.see(t, observed, mask, lanes)

    def _end(self, ended: NDArray[np.bool_]) -> None:
        """Keeps the last observations of those who have ended [L, E] with the tick that was added last."""
        if not np.count_nonzero(ended):
            return
        for index, entity in enumerate(self._entities):
            rows = np.flatnonzero(ended[:, index])
            if len(rows):
                entity.end(self._played, rows)

    def _part(self) -> dict[str, Array]:
        """The columns as they are written."""
        part = {"lane": self._lanes}
        part |= {name: column[: self._played] for name, column in self._columns.items()}
        for index, entity in enumerate(self._entities):
            part |= {f"{index}/end/{name}": array for name, array in entity.ended(part["tick"], self._lanes).items()}
        return part

    def _make_folders(self) -> None:
        for folder in (self._samples, self._folder.parent, self._folder):
            make_folder(folder)
        if not (self._folder / MANIFEST).exists():
            with replacing(self._folder / MANIFEST) as file:
                file.write(self._manifest)


class _EntityColumns:
    """The columns of one entity; `t` counts the ticks since the last part."""

    def __init__(self, entity: EntitySamples, index: int, columns: dict[str, Array]) -> None:
        self._entity = entity
        self._observations = _leaves(columns, f"{index}/observation/")
        self._actions = _leaves(columns, f"{index}/action/")
        self._mask = columns.get(f"{index}/mask")
        self.ends: list[tuple[int, NDArray[np.intp], list[Array]]] = []  # tick, rows, what they saw last

    def see(self, t: int, observed: Any, mask: Array | None, lanes: Any) -> None:
        for leaf, array in zip(self._observations, flatten(self._entity.observation_space, observed), strict=True):
            leaf[t, lanes] = array[lanes]
        if self._mask is not None and mask is not None:
            self._mask[t, lanes] = mask[lanes]

    def act(self, t: int, action: Any, resting: NDArray[np.bool_] | None) -> None:
        for leaf, array in zip(self._actions, flatten(self._entity.action_space, action), strict=True):
            leaf[t] = array
            if resting is not None:
                leaf[t, resting] = 0

    def end(self, t: int, rows: NDArray[np.intp]) -> None:
        self.ends.append((t - 1, rows, [leaf[t, rows] for leaf in self._observations]))

    def ended(self, ticks: Array, lanes: Array) -> dict[str, Array]:
        """All ends of the part: tick and lane, and the leaves of what was seen last."""
        count = [len(rows) for _, rows, _ in self.ends]
        rows = np.concatenate([*(rows for _, rows, _ in self.ends), np.zeros(0, np.intp)])
        at = np.repeat(np.array([t for t, _, _ in self.ends], np.intp), count)
        found = {"tick": ticks[at], "lane": lanes[rows]}
        for number, leaf in enumerate(self._observations):
            parts = [leaves[number] for _, _, leaves in self.ends]
            found[f"observation/{number}"] = np.concatenate([*parts, leaf[:0, 0]])
        return found


def discard_after(folder: Path, tick: int) -> None:
    """Brings the parts of a match back to what they were at a tick; does nothing where there are none.

    Nobody may be writing here. A part that goes beyond the tick keeps its earlier ticks.

    Args:
        folder: of the match.
        tick: what was played after it is forgotten.
    """
    for path in parts_in(folder):
        if start_of(path) >= tick:
            path.unlink()
        else:
            _cut(path, tick)
    for path in folder.glob(".*.npz.part"):
        path.unlink()


def ticks_of_part(columns: dict[str, Column], *, lanes: int, entities: int) -> int:
    """How many ticks a full part has: the same for a match whenever it is played."""
    sizes = {"lane": lanes, "entity": entities}
    played = [column for column in columns.values() if column.axes[0] == "tick"]
    tick_bytes = sum(column.item_bytes * int(np.prod([sizes[axis] for axis in column.axes[1:]])) for column in played)
    return max(1, min(_MOST_TICKS, _MOST_BYTES // tick_bytes))


def _cut(path: Path, tick: int) -> None:
    """Forgets the ticks of a part that are later than a tick; one that is damaged stays so: its readers say it."""
    try:
        arrays = read_arrays(path)
        kept = {name: array[_until(tick, name, arrays)] for name, array in arrays.items()}
    except (ConfigError, KeyError, IndexError, TypeError):
        return
    if len(kept["tick"]) < len(arrays["tick"]):
        with replacing(path) as file:
            write_arrays(file, kept)


def _until(tick: int, name: str, arrays: Mapping[str, Array]) -> slice:
    """The items of a column that are not later than a tick: along its first axis, the ticks go up."""
    entity, end, _ = name.partition("/end/")
    if name == "lane":
        return slice(None)
    ticks = arrays[f"{entity}/end/tick"] if end else arrays["tick"]
    return slice(int(np.searchsorted(ticks, tick, side="right")))


def _allocated(columns: Mapping[str, Column], ticks: int, lanes: int, entities: int) -> dict[str, Array]:
    """Zeros for the columns that have a tick axis: one tick more than is written, as what is seen comes before it."""
    sizes = {"tick": ticks + 1, "lane": lanes, "entity": entities}
    return {
        name: np.zeros((*(sizes[axis] for axis in column.axes), *column.shape), column.dtype)
        for name, column in columns.items()
        if column.axes[0] == "tick"
    }


def _leaves(columns: Mapping[str, Array], prefix: str) -> list[Array]:
    return [column for name, column in columns.items() if name.startswith(prefix)]


def _check_manifest(path: Path, manifest: bytes) -> None:
    if path.exists() and path.read_bytes() != manifest:
        raise ConfigError(
            "holds samples of other entities, policies or spaces than this match has now (after copies have changed, "
            "matches have other numbers): go back to what the run had, move the folder of its samples away, or start "
            "a new run",
            source=str(path),
        )
