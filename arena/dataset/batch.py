"""Recorded samples as columns of equal length, one row per action, under the published names.

    samples = open_dataset("runs/teacher")
    batch = samples.batch("blue")               whole episodes, one after the other
    batch["obs"], batch["actions"], batch["rewards"], batch["new_obs"], batch["dones"]
    for part in batch.minibatches(256, rng): ...

    obs, new_obs       the observation before the action, and before the next one; in a last row the final observation
    actions, rewards   as of an `Episode`
    terminateds, truncateds, dones    [N] of the row's action; `dones` is either of them
    eps_id             [N] int64, the number of the episode of an entity, unique in the run
    t                  [N] int64, the number of the action in its episode, from 0
    agent_index        [N] int64, the entity's place in its game
    action_mask        where there are masks

A part of a composite space is a column of its own: `obs.camera`, `actions.0`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.dataset.format import EntitySamples, Manifest, read_arrays, write_arrays
from arena.dataset.writer import ticks_of_part
from arena.errors import ConfigError
from arena.game.arrays import lost_value
from arena.game.spaces import leaves_of, mask_size
from arena.records import checksums
from arena.records.atomic import make_folder, replacing
from arena.records.folder import MANIFEST, lanes_path, match_path

Array = NDArray[Any]


class Batch(Mapping[str, Array]):
    """Columns of equal length; a mapping from their names to arrays [N, ...]. `len` is the number of rows N.

    Columns of other lengths are a ValueError, which names them.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns: dict[str, Array] = {name: np.asarray(column) for name, column in columns.items()}
        lengths = {name: column.shape[0] if column.ndim else -1 for name, column in self._columns.items()}
        if len({*lengths.values()}) > 1 or -1 in lengths.values():
            found = ", ".join(f"{name} {size if size >= 0 else 'is no array'}" for name, size in lengths.items())
            raise ValueError(f"columns of a batch have equal lengths; found {found}")
        self._rows = next(iter(lengths.values()), 0)

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return self._rows

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch) or self._columns.keys() != other._columns.keys():
            return False
        return all(np.array_equal(column, other[name]) for name, column in self._columns.items())

    __hash__ = None  # type: ignore[assignment]  # its arrays can change

    def __repr__(self) -> str:
        return f"Batch({self._rows} rows: {', '.join(self._columns)})"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every row, as a mapping from names to values."""
        for number in range(self._rows):
            yield {name: column[number] for name, column in self._columns.items()}

    def slice(self, start: int, end: int) -> Batch:
        """The rows from `start` to before `end`; they share memory with this batch."""
        return Batch({name: column[start:end] for name, column in self._columns.items()})

    def take(self, rows: Any) -> Batch:
        """These rows, by their numbers or by a mask; a copy."""
        return Batch({name: column[rows] for name, column in self._columns.items()})

    def shuffled(self, rng: np.random.Generator) -> Batch:
        """All rows in a random order, the same for every column."""
        return self.take(rng.permutation(self._rows))

    def minibatches(self, size: int, rng: np.random.Generator) -> Iterator[Batch]:
        """The rows in a random order, in batches of `size`; the last one may have fewer. One pass."""
        order = rng.permutation(self._rows)
        for start in range(0, self._rows, size):
            yield self.take(order[start : start + size])

    def split_by_episode(self) -> list[Batch]:
        """The runs of equal `eps_id`, in order; KeyError if there is no such column."""
        ids = self._columns["eps_id"]
        edges = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist(), self._rows]
        return [self.slice(start, end) for start, end in pairwise(edges) if end > start]

    @classmethod
    def concat(cls, batches: Sequence[Batch]) -> Batch:
        """The rows of all batches, one after the other; ValueError, which names them, if their columns differ."""
        if not batches:
            return cls({})
        first = batches[0]
        for number, other in enumerate(batches):
            if odd := sorted(first.keys() ^ other.keys()):
                raise ValueError(f"batches 0 and {number} have other columns: {', '.join(odd)} is not in both")
        return cls({name: np.concatenate([batch[name] for batch in batches]) for name in first})

    def save(self, path: Path | str) -> None:
        """Writes the columns as an NPZ file without objects, at once or not at all.

        Raises:
            ValueError: a column holds objects.
            WriteError: the file cannot be written.
        """
        for name, column in self._columns.items():
            if column.dtype.hasobject:
                raise ValueError(f"the column {name!r} holds objects, which cannot be saved without pickle")
        with replacing(Path(path)) as file:
            write_arrays(file, self._columns)

    @classmethod
    def load(cls, path: Path | str) -> Batch:
        """Reads what `save` has written, and runs no code; ConfigError if it is damaged, or another file."""
        return cls(read_arrays(Path(path)))


def column_names(name: str, space: Space[Any]) -> list[str]:
    """The name of the column of each leaf of a space."""
    return [".".join([name, *map(str, leaf.path)]) for leaf in leaves_of(space)]


def write_samples(
    folder: Path | str,
    policy: str,
    observation_space: Space[Any],
    action_space: Space[Any],
    episodes: Iterable[Mapping[str, Any]],
) -> Path:
    """Writes episodes from elsewhere as a folder that `open_dataset` and the option `data` of `bc` take; returns it.

    Args:
        folder: of the samples; it must not hold any.
        policy: the name under which they are read.
        observation_space: of the observations.
        action_space: of the actions.
        episodes: columns each, as of a `Batch` of one episode: `obs`, `new_obs`, `actions`, `rewards`, `terminateds`,
            `truncateds`, and `action_mask` in all episodes or in none; others are left out. The last row of `new_obs`
            is the final observation; each other row is the observation of the next action.

    Raises:
        ValueError: there is no episode; or one lacks a column, is empty, has rows of other lengths or shapes, values
            that the space's dtype does not hold, or a `new_obs` that is not the next `obs`; or its last row alone does
            not end it. The message says which.
        ConfigError: the folder holds samples already.
        WriteError: the folder cannot be written.
    """
    checked = [*checked_episodes(episodes, observation_space, action_space)]
    size = mask_size(action_space) if "action_mask" in checked[0] else 0
    manifest = Manifest(0, "elsewhere", (EntitySamples("agent", policy, 0, observation_space, action_space, size),))
    home = Path(folder)
    place = match_path(home, 0)
    if place.exists():
        raise ConfigError("holds samples already; name another folder", source=str(home))
    home.parent.mkdir(parents=True, exist_ok=True)
    make_folder(home)
    make_folder(place)
    checksums.replace(place / MANIFEST, json.dumps(manifest.to_json(), indent=1, allow_nan=False).encode() + b"\n")
    every_row = Batch.concat(checked)
    most = ticks_of_part(manifest.columns(), lanes=1, entities=1)
    for start in range(0, len(every_row), most):  # the rows are the ticks of one lane
        arrays = part_arrays(every_row.slice(start, start + most), start, observation_space, action_space)
        with replacing(lanes_path(place, "npz", start=start, lane=0)) as file:
            write_arrays(file, arrays)
    return home


def part_arrays(part: Batch, start: int, observation_space: Space[Any], action_space: Space[Any]) -> dict[str, Array]:
    """The arrays of a part whose one lane has these rows, of `checked_episodes`, from the tick after `start` on."""
    ended = part["terminateds"] | part["truncateds"]
    tick = np.arange(start + 1, start + len(part) + 1)
    yes, no = np.ones((len(part), 1), np.bool_), np.zeros((len(part), 1), np.bool_)
    arrays: dict[str, Array] = {
        "lane": np.zeros(1, np.int64),
        "tick": tick,
        "episode": part["episode"][:, None],
        "begins": part["begins"][:, None],
        "cut": no,
        "active": yes[..., None],
        "idle": no,
        "rewards": part["rewards"][:, None, None],
        "terminated": part["terminateds"][:, None, None],
        "truncated": part["truncateds"][:, None, None],
        "0/end/tick": tick[ended],
        "0/end/lane": np.zeros(int(ended.sum()), np.int64),
    }
    for leaf_number, name in enumerate(column_names("obs", observation_space)):
        arrays[f"0/observation/{leaf_number}"] = part[name][:, None]
        arrays[f"0/end/observation/{leaf_number}"] = part[f"new_{name}"][ended]
    for leaf_number, name in enumerate(column_names("actions", action_space)):
        arrays[f"0/action/{leaf_number}"] = part[name][:, None]
    if "action_mask" in part:
        arrays["0/mask"] = part["action_mask"].astype(np.int8)[:, None]
    return arrays


def checked_episodes(
    episodes: Iterable[Mapping[str, Any]], observation_space: Space[Any], action_space: Space[Any]
) -> Iterator[Batch]:
    """The episodes with the dtypes of the spaces; raises what `write_samples` says."""
    spaces = {"obs": observation_space, "new_obs": observation_space, "actions": action_space}
    names = [name for kind, space in spaces.items() for name in column_names(kind, space)]
    masks, number = False, -1
    for number, episode in enumerate(episodes):
        masks = "action_mask" in episode if number == 0 else masks
        required = [*names, "rewards", "terminateds", "truncateds", *(["action_mask"] if masks else [])]
        if missing := [name for name in required if name not in episode]:
            raise ValueError(f"episode {number} lacks {', '.join(missing)}")
        columns = dict(Batch({name: episode[name] for name in required}))
        count = len(columns["rewards"])
        if not count:
            raise ValueError(f"episode {number} is empty")
        for kind, space in spaces.items():
            for name, leaf in zip(column_names(kind, space), leaves_of(space), strict=True):
                rows = columns[name]
                if rows.shape[1:] != leaf.shape:
                    raise ValueError(
                        f"episode {number}: {name} has rows of the shape {rows.shape[1:]}, the space {leaf.shape}"
                    )
                if (lost := lost_value(rows, leaf.dtype)) is not None:
                    raise ValueError(f"episode {number}: {name} has the value {lost}, which {leaf.dtype} does not hold")
                columns[name] = rows.astype(leaf.dtype)
        for name in column_names("obs", observation_space):
            if not np.array_equal(columns[f"new_{name}"][:-1], columns[name][1:]):
                raise ValueError(f"episode {number}: new_{name} of a row is not {name} of the next one")
        for name in ("terminateds", "truncateds"):
            columns[name] = columns[name].astype(np.bool_)
        ended = columns["terminateds"] | columns["truncateds"]
        if ended[:-1].any() or not ended[-1]:
            raise ValueError(f"episode {number} does not end at its last row, where one of its flags is true")
        columns["rewards"] = columns["rewards"].astype(np.float64)
        yield Batch({**columns, "episode": np.full(count, number), "begins": np.arange(count) == 0})
    if number < 0:
        raise ValueError("there is no episode")
