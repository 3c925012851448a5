"""Writes the samples of one block of lanes as columns, part by part.

    begin       first observations of some lanes: an episode begins before the next tick
    add         a tick: actions, rewards, ends, and the observations after it
    truncate    marks the running episodes as ended by the last added tick
    flush       writes the ticks since the last part as a file; `add` does so when a part is full

A leg ends with a flush, so a part never holds ticks of two legs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.dataset.format import LENGTHS, Column, Manifest, write_arrays
from arena.errors import ConfigError
from arena.game.api import Frame, Step
from arena.game.ragged import Ragged
from arena.game.spaces import flatten, leaves_of
from arena.records import checksums
from arena.records.atomic import make_folder, replacing
from arena.records.folder import MANIFEST, lanes_path, match_path

_MOST_TICKS = 4096  # of a part
_MOST_BYTES = 16 * 2**20  # of a part in memory, unless a single tick needs more

Array = NDArray[Any]


class SampleWriter:
    """Writes the samples of some lanes, given by their numbers, of a match.

    The folder of the run's samples is created with the first part.
    """

    def __init__(self, samples: Path, manifest: Manifest, lanes: range) -> None:
        self._samples = samples
        self._folder = match_path(samples, manifest.match, round=manifest.round)
        self._manifest = json.dumps(manifest.to_json(), indent=1, allow_nan=False).encode() + b"\n"
        path = self._folder / MANIFEST
        if path.exists() and path.read_bytes() != self._manifest:
            raise ConfigError(
                "holds samples of other entities, policies or spaces than this match has now (matches are renumbered "
                "when copies change): restore the earlier configuration, go on without samples (--set record=nothing), "
                "move the samples folder away, or start a new run",
                source=str(path),
            )
        self._lanes = np.array(lanes)
        self._entities = manifest.entities
        self._columns = manifest.columns()
        self._most = ticks_of_part(self._columns, lanes=len(lanes), entities=len(manifest.entities))
        #: By column, of the ticks since the last part, and of the one that is played next: what is seen before it.
        self._ticks: list[dict[str, Any]] = []
        self._next: dict[str, Any] = {
            name: Ragged.empty(len(lanes), column.dtype, column.shape)
            if column.ragged
            else np.zeros(
                (len(lanes), *[len(manifest.entities)] * ("entity" in column.axes), *column.shape), column.dtype
            )
            for name, column in self._columns.items()
            if name in ("begins", "active", "given")
            or ("/observation/" in name and "/end/" not in name)
            or "/mask" in name
        }
        self._ragged_bytes = 0
        self._ends: list[list[tuple[int, NDArray[np.intp], list[Any]]]]  # per entity tick, lanes, last observations
        self._ends = [[] for _ in manifest.entities]
        actors = [leaves_of(entity.observation_space, ragged=True) for entity in manifest.entities]
        self._of_actors = {
            f"{index}/observation/{number}": index
            for index, leaves in enumerate(actors)
            for number, leaf in enumerate(leaves)
            if leaf.ragged and leaf.of_actors
        }

    def begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Adds the first observations of the lanes [L] in which an episode begins."""
        self._next["begins"] |= lanes
        for name, leaf in self._seen(frame):
            if isinstance(leaf, Ragged):
                self._next[name] = self._next[name].replaced(leaf.astype(self._columns[name].dtype), lanes)
            else:
                self._next[name][lanes] = leaf[lanes]

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
        if len(self._ticks) == self._most or self._ragged_bytes > _MOST_BYTES:
            self.flush()
        played = {
            **self._next,
            "tick": np.int64(tick),
            "episode": episodes.copy(),
            "cut": cut.copy(),
            "idle": np.isin(np.arange(len(self._entities)), [*idle]),
            "rewards": np.array(step.rewards, np.float64),
            "terminated": step.terminated.copy(),
            "truncated": step.truncated.copy(),
        }
        if step.frame.external is not None:
            played["void"] = step.frame.external.void.copy()
        everywhere = played["active"].all()
        for index, (entity, action) in enumerate(zip(self._entities, actions, strict=True)):
            for number, leaf in enumerate(flatten(entity.action_space, action)):
                name = f"{index}/action/{number}"
                if not isinstance(leaf, Ragged):
                    played[name] = self._stored(name, leaf)
                    if not everywhere:
                        played[name][~played["active"][:, index]] = 0
                else:
                    played[name] = self._stored(name, leaf.kept(played["active"][:, index]))
        self._ticks.append(played)
        ragged = [column for column in played.values() if isinstance(column, Ragged)]
        self._ragged_bytes += sum(column.values.nbytes or column.total for column in ragged)  # also without features
        self._next = {name: self._stored(name, leaf) for name, leaf in self._seen(step.frame)}
        self._next["begins"] = np.zeros(len(self._lanes), np.bool_)
        self._end(step.terminated | step.truncated)

    def truncate(self, playing: NDArray[np.bool_]) -> None:
        """Truncates the episodes of all entities still `playing` [L, E] at the last added tick."""
        self._ticks[-1]["truncated"] |= playing
        self._ticks[-1]["cut"] |= playing.any(axis=1)
        self._end(playing)

    def flush(self) -> None:
        """Writes the ticks since the last part, if any; the next part begins with the current observations."""
        ticks = self._ticks
        if not ticks:
            return
        for folder in (self._samples, self._folder.parent, self._folder):
            make_folder(folder)
        if not (self._folder / MANIFEST).exists():
            checksums.replace(self._folder / MANIFEST, self._manifest)
        part: dict[str, Array] = {"lane": self._lanes}
        for name, column in self._columns.items():
            if column.axes[0] != "tick" or name.endswith(LENGTHS):
                continue
            if not column.ragged:
                part[name] = np.stack([played[name] for played in ticks])
                continue
            rows = Ragged.concat([played[name] for played in ticks])
            if name in self._of_actors:  # rows that are not active have no actors, as workers saw them
                rows = rows.kept(np.stack([played["active"][:, self._of_actors[name]] for played in ticks]).ravel())
            part |= {name: rows.values, name + LENGTHS: rows.lengths.astype(np.int32).reshape(len(ticks), -1)}
        for index, ends in enumerate(self._ends):
            at = np.concatenate([*(np.full(len(lanes), tick) for tick, lanes, _ in ends), np.zeros(0, np.int64)])
            lanes = np.concatenate([*(lanes for _, lanes, _ in ends), np.zeros(0, np.intp)])
            part |= {f"{index}/end/tick": at, f"{index}/end/lane": self._lanes[lanes]}
            for number in range(len(leaves_of(self._entities[index].observation_space, ragged=True))):
                name, parts = f"{index}/end/observation/{number}", [last[number] for _, _, last in ends]
                seen = ticks[0][f"{index}/observation/{number}"]
                if isinstance(seen, Ragged):
                    rows = Ragged.concat([*parts, seen[:0]])
                    part |= {name: rows.values, name + LENGTHS: rows.lengths.astype(np.int32)}
                else:
                    part[name] = np.concatenate([*parts, seen[:0]])
            ends.clear()
        path = lanes_path(self._folder, "npz", start=int(part["tick"][0]) - 1, lane=int(self._lanes[0]))
        with replacing(path) as file:
            write_arrays(file, part)
        self._ticks, self._ragged_bytes = [], 0

    def _seen(self, frame: Frame) -> Iterator[tuple[str, Any]]:
        """The columns of what is seen before a tick, not copied."""
        yield "active", frame.active
        if frame.external is not None:
            yield "given", frame.external.given
        for index, entity in enumerate(self._entities):
            for number, leaf in enumerate(flatten(entity.observation_space, frame.observations[index])):
                yield f"{index}/observation/{number}", leaf
            if entity.mask_size:
                mask = frame.masks[index]
                yield f"{index}/mask", np.zeros((len(self._lanes), entity.mask_size), np.int8) if mask is None else mask

    def _stored(self, name: str, leaf: Any) -> Any:
        """A copy of a leaf [L, ...], as its column stores it."""
        if not isinstance(leaf, Ragged):
            return np.array(leaf, self._columns[name].dtype)
        return leaf.astype(self._columns[name].dtype).copy()

    def _end(self, ended: NDArray[np.bool_]) -> None:
        """Stores the last observations of the entities that ended [L, E] at the last added tick."""
        for index in np.flatnonzero(ended.any(axis=0)).tolist():
            lanes, leaves = (
                np.flatnonzero(ended[:, index]),
                leaves_of(self._entities[index].observation_space, ragged=True),
            )
            last = [self._next[f"{index}/observation/{number}"][lanes] for number in range(len(leaves))]
            self._ends[index].append((int(self._ticks[-1]["tick"]), lanes, last))


def ticks_of_part(columns: dict[str, Column], *, lanes: int, entities: int) -> int:
    """The number of ticks of a full part; depends only on the match."""
    sizes = {"lane": lanes, "entity": entities}
    played = [column for column in columns.values() if column.axes[0] == "tick" and not column.ragged]
    tick_bytes = sum(column.item_bytes * int(np.prod([sizes[axis] for axis in column.axes[1:]])) for column in played)
    return max(1, min(_MOST_TICKS, _MOST_BYTES // tick_bytes))
