"""Reads the recorded samples of a run (`record: samples`), for offline learning and off-policy estimates.

    samples = open_dataset("runs/duel")
    for episode in samples.episodes("blue"):                    whole episodes of an entity, action by action
        episode.observations, episode.actions, episode.rewards
    for match in samples.matches:
        for part in match.parts():                              the columns as stored, tick by tick
            part.rewards, part.actions[entity]

Only NumPy is needed. The files are described in `arena.dataset.format`; they are checked when they are read, and
reading runs no code.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.config.load import load_config
from arena.dataset.batch import Batch, batches_of
from arena.dataset.format import (
    LENGTHS,
    MANIFEST,
    VERSION,
    Column,
    EntitySamples,
    Manifest,
    lane_of,
    matches_in,
    parts_in,
    read_arrays,
    start_of,
)
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, nearest
from arena.game.ragged import Ragged
from arena.game.spaces import check_choices, row, unflatten
from arena.game.units import UnitActions, UnitSpace
from arena.records import checksums
from arena.records.atomic import refuse_links
from arena.records.folder import RunFolder

_MOST_EMPTY_ITEMS = 2**26  # of a column: more than are ever in a part

Array = NDArray[Any]
Leaves = tuple[Any, ...]
"""Arrays, and a `Ragged` in the place of each ragged leaf: in a `Part` with T * L rows in the order (tick, lane)."""
Flags = NDArray[np.bool_]


class Part(NamedTuple):
    """Some ticks of some lanes of a match: `T` ticks, `L` lanes, `E` entities."""

    tick: NDArray[np.int64]  # [T], consecutive; the first of a run is 1
    lane: NDArray[np.int64]  # [L] numbers of the lanes
    episode: NDArray[np.int64]  # [T, L] the number of the lane's episode, as in episodes.jsonl
    begins: Flags  # [T, L] an episode begins before this tick
    cut: Flags  # [T, L] the arena ended the episode at this tick, the last one of a leg
    active: Flags  # [T, L, E] the entities that were to act
    idle: Flags  # [T, E] no worker acted for the entity: it played the no-op
    rewards: NDArray[np.float64]  # [T, L, E]
    terminated: Flags  # [T, L, E]
    truncated: Flags  # [T, L, E]
    observations: tuple[Leaves, ...]  # per entity the leaves [T, L, ...] of its observations before it acted
    masks: tuple[Array | None, ...]  # per entity [T, L, mask_size] int8; None if it has none
    actions: tuple[Leaves, ...]  # per entity the leaves [T, L, ...] of its actions
    ends: tuple[tuple[NDArray[np.int64], NDArray[np.int64], Leaves], ...]
    """Per entity tick [K], lane [K] and leaves [K, ...] of the last observations of its ended episodes."""
    given: Flags | None = None  # [T, L, E] of external games: the game has acted by itself
    void: Flags | None = None  # [T, L, E] likewise: nothing is to be learned from the transition that ends here

    @property
    def acted(self) -> Flags:
        """[T, L, E] true where the entity's policy chose an action."""
        return self.active & ~self.idle[:, None]


@dataclass(frozen=True)
class Episode:
    """One episode of one entity, action by action: the `N` ticks at which its policy chose an action.

    In a turn-based game, rewards of other entities' turns belong to the action before them.

    Args:
        match: the match's number in its round.
        lane: of the match.
        number: of the lane's episode, as in episodes.jsonl.
        entity: by name.
        policy: of the worker that drove it.
        tick: [N] the ticks at which it acted.
        observations: a batched sample [N, ...] of the observation space, before each action.
        masks: [N, mask_size] int8, its action masks; None if it has none.
        actions: a batched sample [N, ...] of the action space.
        rewards: [N] float64, from each action until the next one or the end.
        rewards_before: the sum of rewards before its first action.
        final_observation: its last one, a sample of the observation space.
        terminated: ended by the game's rules.
        truncated: ended from outside.
        cut: ended by the end of a leg, not by the game: its return is incomplete.
        idle_ticks: number of its turns at which no worker acted for it.
        round: of the run; the first one is 0.
        learning: whether its policy was training: then its actions come from changing weights.
        given: [N] the game has chosen these actions by itself; None: a game that the arena steps, which chooses none.
        void: [N] nothing is to be learned from the results of these actions; None likewise.
    """

    match: int
    lane: int
    number: int
    entity: str
    policy: str
    tick: NDArray[np.int64]
    observations: Any
    masks: Array | None
    actions: Any
    rewards: NDArray[np.float64]
    rewards_before: float
    final_observation: Any
    terminated: bool
    truncated: bool
    cut: bool
    idle_ticks: int
    round: int = 0
    learning: bool = False
    given: Flags | None = None
    void: Flags | None = None

    @property
    def undiscounted(self) -> float:
        """The sum of all rewards."""
        return self.rewards_before + float(self.rewards.sum())


@dataclass(frozen=True)
class MatchSamples:
    """The samples of one match.

    Args:
        path: the match's folder.
        match: its number in its round.
        env: the name of its game in the configuration.
        entities: of the game, in its order: name, policy, seat, spaces.
        round: of the run; the first one is 0.
        learning: the policies that were training, if the run's configuration is available.
        external: whether its games are external.
    """

    path: Path
    match: int
    env: str
    entities: tuple[EntitySamples, ...]
    round: int = 0
    learning: frozenset[str] = frozenset()
    external: bool = False

    def parts(self) -> Iterator[Part]:
        """All parts, block by block of lanes, each in the order of ticks.

        Raises:
            ConfigError: a part is damaged.
        """
        columns = Manifest(self.match, self.env, self.entities, external=self.external).columns()
        for path in parts_in(self.path):
            arrays = read_arrays(path)
            try:
                _check_columns(arrays, columns, len(self.entities))
                part = _of_columns({name: arrays[name] for name in columns}, len(self.entities))
                # Checks that ticks and lanes are valid and match the file's name.
                if not len(part.tick) or not len(part.lane) or (np.diff(part.tick) != 1).any():
                    raise ValueError("its ticks are not consecutive")
                if len(set(part.lane.tolist())) < len(part.lane):
                    raise ValueError("a lane is in it twice")
                if (int(part.tick[0]) - 1, int(part.lane[0])) != (start_of(path), lane_of(path)):
                    raise ValueError(
                        f"it begins with tick {part.tick[0]} of lane {part.lane[0]}, which does not match its name"
                    )
                for index, entity in enumerate(self.entities):
                    _check_entity(part, index, entity)
            except ValueError as error:
                raise ConfigError(f"is damaged, or not a part of this match: {error}", source=str(path)) from error
            yield part

    def episodes(self, policy: str | None = None) -> Iterator[Episode]:
        """All episodes that are recorded from beginning to end; also those that were cut at the end of a leg.

        Args:
            policy: only episodes of entities that it drove; None: all.

        Raises:
            ConfigError: a part is damaged.
        """
        wanted = [e for e, entity in enumerate(self.entities) if policy in (None, entity.policy)]
        begun: dict[tuple[int, int], list[_Piece]] = {}  # (lane, entity) -> pieces of its unfinished episode
        before = 0
        for part in self.parts():
            if part.tick[0] != before + 1:
                begun.clear()  # another leg or block of lanes, or a lost part: no episode continues here
            before = int(part.tick[-1])
            for position, lane in enumerate(part.lane.tolist()):
                for e in wanted:
                    for pieces in _split(part, position, e, begun.pop((lane, e), [])):
                        if pieces[-1].ended:
                            yield self._episode(pieces)
                        else:
                            begun[lane, e] = pieces

    def _episode(self, pieces: list[_Piece]) -> Episode:
        last, e = pieces[-1], pieces[-1].entity
        about, tick, lane = self.entities[e], last.part.tick[last.end - 1], int(last.part.lane[last.lane])
        acted = np.concatenate([piece.of(piece.part.acted)[:, e] for piece in pieces])
        waited = np.concatenate([piece.of(piece.part.active)[:, e] for piece in pieces]) & ~acted
        rewards = np.concatenate([piece.of(piece.part.rewards)[:, e] for piece in pieces])
        turns = np.flatnonzero(acted)
        given = void = None
        if last.part.given is not None and last.part.void is not None:
            given = np.concatenate([piece.of(piece.part.given)[:, e] for piece in pieces])[turns]
            voids = np.concatenate([piece.of(piece.part.void)[:, e] for piece in pieces])
            void = np.logical_or.reduceat(voids, turns) if len(turns) else np.zeros(0, np.bool_)
        masks = None if last.part.masks[e] is None else _joined(pieces, [p.part.masks[e] for p in pieces])[turns]
        ends = last.part.ends[e]
        (at,) = np.flatnonzero((ends[0] == tick) & (ends[1] == lane))
        seen = unflatten(about.observation_space, [leaf[at : at + 1] for leaf in ends[2]])
        return Episode(
            match=self.match,
            lane=lane,
            number=int(last.of(last.part.episode)[-1]),
            entity=about.name,
            policy=about.policy,
            tick=np.concatenate([piece.part.tick[piece.begin : piece.end] for piece in pieces])[turns],
            observations=unflatten(about.observation_space, _taken(pieces, "observations", turns)),
            masks=masks,
            actions=unflatten(about.action_space, _taken(pieces, "actions", turns)),
            rewards=np.add.reduceat(rewards, turns) if len(turns) else np.zeros(0),
            rewards_before=float(rewards[: turns[0] if len(turns) else None].sum()),
            final_observation=row(about.observation_space, seen, 0),
            terminated=bool(last.of(last.part.terminated)[-1, e]),
            truncated=bool(last.of(last.part.truncated)[-1, e]),
            cut=bool(last.of(last.part.cut)[-1]),
            idle_ticks=int(waited.sum()),
            round=self.round,
            learning=about.policy in self.learning,
            given=given,
            void=void,
        )


@dataclass(frozen=True)
class Samples:
    """The recorded samples of a run."""

    path: Path
    matches: tuple[MatchSamples, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """All policies that played."""
        return tuple(sorted({entity.policy for match in self.matches for entity in match.entities}))

    def entity(self, policy: str) -> EntitySamples:
        """The first entity that a policy drove, for its spaces.

        Raises:
            ConfigError: the policy did not play.
        """
        found = [entity for match in self.matches for entity in match.entities if entity.policy == policy]
        if not found:
            known = nearest(policy, self.policies)
            raise ConfigError(f"no samples of the policy {policy!r}; {known}", source=str(self.path))
        return found[0]

    def episodes(self, policy: str | None = None) -> Iterator[Episode]:
        """The episodes of all matches, see `MatchSamples.episodes`.

        Raises:
            ConfigError: a part is damaged, or the policy did not play.
        """
        if policy is not None:
            self.entity(policy)
        return itertools.chain.from_iterable(match.episodes(policy) for match in self.matches)

    def batch(self, policy: str, *, cut: bool = False) -> Batch:
        """The episodes of a policy as columns, one row per action; see `arena.dataset.batch`.

        Args:
            policy: the name of the policy.
            cut: whether to include episodes that were cut at the end of a leg.

        Raises:
            ConfigError: a part is damaged, or the policy did not play.
        """
        self.entity(policy)
        return batches_of(self.matches, cut=cut, policy=policy).get(policy, Batch({}))

    def batches(self, *, cut: bool = False) -> dict[str, Batch]:
        """The episodes of every policy as columns; see `batch`.

        Raises:
            ConfigError: a part is damaged.
        """
        return batches_of(self.matches, cut=cut)

    def check(self, policy: str | None = None) -> None:
        """Reads all parts once, to find damaged ones early.

        Args:
            policy: only the matches in which it played; None: all.

        Raises:
            ConfigError: a part is damaged.
        """
        for match in self.matches:
            if any(policy in (None, entity.policy) for entity in match.entities):
                for _ in match.parts():
                    pass


def has_files(path: Path | str) -> bool:
    """Whether anything is where samples are to be read."""
    return anchored(path).exists()


def open_dataset(path: Path | str) -> Samples:
    """Opens the samples of a run; the parts are read on access.

    Args:
        path: a run folder, or the folder of its samples.

    Raises:
        ConfigError: there are no samples, a manifest is damaged or comes from a newer arena, or the run's configuration
            cannot be read.
    """
    path = anchored(path)
    of_run = any((path / name).exists() for name in ("samples", "config.yaml"))
    refuse_links(path, {"samples": None, "config.yaml": None} if of_run else None)
    home = path / "samples" if (path / "samples").is_dir() else path
    # A manifest is written before the first part.
    found = [folder / MANIFEST for folder in matches_in(home) if parts_in(folder) or (folder / MANIFEST).exists()]
    if not found:
        raise ConfigError(
            "no recorded samples here: name a run folder whose configuration says `record: samples`, or the folder "
            "`samples` in it",
            source=str(path),
        )
    if home.name == "samples" and (home.parent / "config.yaml").is_file():
        checksums.check_folder(home.parent)
    # The policies that were training in the run of these samples; empty if its configuration is missing.
    file = RunFolder(home.parent).config
    if not file.is_file():
        learning: frozenset[str] = frozenset()
    else:
        learning = frozenset(name for name, policy in load_config(file).policies.items() if policy.learns)
    return Samples(home, tuple(_match(file, learning) for file in found))


def _match(path: Path, learning: frozenset[str]) -> MatchSamples:
    checksums.check(path)
    try:
        written = json.loads(path.read_bytes())
        if written["version"] > VERSION:
            raise ConfigError(
                f"has format version {written['version']}, this arena reads up to {VERSION}: install a newer one",
                source=str(path),
            )
        manifest = Manifest.from_json(written)
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise ConfigError(f"is not a manifest of recorded samples, or is damaged: {error}", source=str(path)) from error
    return MatchSamples(
        path.parent,
        manifest.match,
        manifest.env,
        manifest.entities,
        round=manifest.round or 0,
        learning=learning,
        external=manifest.external,
    )


def _of_columns(arrays: Mapping[str, Array], entities: int) -> Part:
    """The part with these columns, in the order of the manifest."""

    def leaves(prefix: str) -> tuple[Leaves, ...]:
        return tuple(
            tuple(
                Ragged(array, arrays[name + LENGTHS].ravel()) if name + LENGTHS in arrays else array
                for name, array in arrays.items()
                if name.startswith(f"{e}/{prefix}/") and not name.endswith(LENGTHS)
            )
            for e in range(entities)
        )

    ends = (tuple(arrays[f"{e}/end/{name}"] for name in ("tick", "lane")) for e in range(entities))
    return Part(
        **{name: arrays[name] for name in Part._fields if name in arrays},
        observations=leaves("observation"),
        masks=tuple(arrays.get(f"{e}/mask") for e in range(entities)),
        actions=leaves("action"),
        ends=tuple((*end, seen) for end, seen in zip(ends, leaves("end/observation"), strict=True)),  # type: ignore[misc]
    )


def _check_columns(arrays: Mapping[str, Array], columns: Mapping[str, Column], entities: int) -> None:
    """Checks names, shapes and dtypes of columns."""
    if arrays.keys() != columns.keys():
        odd = sorted(arrays.keys() ^ columns.keys())
        raise ValueError(f"missing or unknown columns {', '.join(odd)}")
    sizes = {"entity": entities}
    for name, column in columns.items():
        array = arrays[name]
        if column.ragged:
            _check_ragged(name, array, arrays[name + LENGTHS], column)
            continue
        axes = zip(column.axes, array.shape, strict=False)
        shape = (*(sizes.setdefault(axis, size) for axis, size in axes), *column.shape)
        if array.ndim != len(column.axes) + len(column.shape) or array.dtype != column.dtype or array.shape != shape:
            raise ValueError(
                f"the column {name!r} has the shape {array.shape} and type {array.dtype}, expected {shape} and "
                f"{column.dtype}"
            )


def _check_ragged(name: str, array: Array, lengths: Array, column: Column) -> None:
    if array.ndim != 1 + len(column.shape) or array.dtype != column.dtype or array.shape[1:] != column.shape:
        raise ValueError(
            f"the column {name!r} has the shape {array.shape} and type {array.dtype}, expected items {column.shape} of "
            f"{column.dtype}"
        )
    if lengths.dtype.kind not in "iu":
        raise ValueError(f"the column {name + LENGTHS!r} is of the type {lengths.dtype}, expected int32")
    if lengths.size and (least := lengths.min()) < 0:
        raise ValueError(f"the column {name + LENGTHS!r} has a negative length, {least}")
    if (total := int(lengths.sum(dtype=np.int64))) != len(array):
        raise ValueError(f"the lengths of the column {name!r} add up to {total}, but it has {len(array)} items")
    if not column.item_bytes and total > _MOST_EMPTY_ITEMS:  # these items take no bytes in the file
        raise ValueError(f"the column {name!r} has {total} items without features, more than {_MOST_EMPTY_ITEMS}")


def _check_entity(part: Part, e: int, entity: EntitySamples) -> None:
    """Checks that an entity's values are in its spaces, and that its ends fit its flags."""
    end_tick, end_lane, seen_last = part.ends[e]
    t, position = np.nonzero(part.terminated[:, :, e] | part.truncated[:, :, e])
    ended = zip(part.tick[t].tolist(), part.lane[position].tolist(), strict=True)
    if sorted(ended) != sorted(zip(end_tick.tolist(), end_lane.tolist(), strict=True)):
        raise ValueError(f"the columns `end` of {entity.name!r} do not fit the ends of its episodes")
    for space, leaves, rows in (
        (entity.observation_space, part.observations[e], part.active[:, :, e]),
        (entity.observation_space, seen_last, None),
        (entity.action_space, part.actions[e], part.acted[:, :, e]),
    ):
        try:
            check_choices(space, unflatten(space, leaves), rows)
            if isinstance(space, UnitSpace):
                _check_units(space, leaves, end_tick.shape if rows is None else rows.shape)
            if isinstance(space, UnitActions) and isinstance(entity.observation_space, UnitSpace):
                seen: Any = unflatten(entity.observation_space, part.observations[e])
                space.check_choices(unflatten(space, leaves), seen["actions"])
        except ValueError as error:
            raise ValueError(f"values of {entity.name!r} are not in its space {space}: {error}") from error


def _check_units(space: UnitSpace, leaves: Leaves, axes: tuple[int, ...]) -> None:
    """Checks the rules of observations of units, in the rows of these axes."""
    rows = [leaf if isinstance(leaf, Ragged) else leaf.reshape(-1, *leaf.shape[len(axes) :]) for leaf in leaves]
    breach = space.breach(unflatten(space, rows))
    if breach is not None:
        raise ValueError(breach.text)


class _Piece(NamedTuple):
    """Consecutive ticks of one lane of a part, in one episode of one entity."""

    part: Part
    lane: int  # index of the lane in the part
    entity: int
    begin: int
    end: int
    ended: bool  # whether the entity's episode ends with it

    def of(self, column: Any) -> Any:
        """These ticks [t, ...] of a column [T, L, ...], or of a `Ragged` with T * L rows."""
        if isinstance(column, Ragged):
            return column[np.arange(self.begin, self.end) * len(self.part.lane) + self.lane]
        return column[self.begin : self.end, self.lane]


def _split(part: Part, lane: int, entity: int, begun: list[_Piece]) -> Iterator[list[_Piece]]:
    """The episodes of an entity in a lane of a part; only episodes whose beginning is recorded.

    Args:
        begun: the earlier pieces of the episode that continues in this part, if any.
    """
    ends = np.flatnonzero(part.terminated[:, lane, entity] | part.truncated[:, lane, entity]).tolist()
    begins = np.flatnonzero(part.begins[:, lane]).tolist()
    edges = [0, *(t for t in begins if t > 0), len(part.tick)]
    for begin, until in itertools.pairwise(edges):
        before = begun if begin == 0 and begin not in begins else []
        if not before and begin not in begins:
            continue
        end = next((t + 1 for t in ends if begin <= t < until), None)
        if end is not None or until == len(part.tick):  # otherwise a reset ended the episode, which is dropped
            yield [*before, _Piece(part, lane, entity, begin, end or until, ended=end is not None)]


def _taken(pieces: list[_Piece], field: str, turns: NDArray[np.intp]) -> list[Any]:
    """The leaves [N, ...] of observations or actions at an entity's turns."""
    leaves = zip(*(getattr(piece.part, field)[piece.entity] for piece in pieces), strict=True)
    return [_joined(pieces, columns)[turns] for columns in leaves]


def _joined(pieces: list[_Piece], columns: Any) -> Any:
    parts = [piece.of(column) for piece, column in zip(pieces, columns, strict=True)]
    return Ragged.concat(parts) if isinstance(parts[0], Ragged) else np.concatenate(parts)
