"""What a run with `record: samples` has written down, read back: for learning and estimating without a game.

    samples = read_samples("runs/duel")
    for episode in samples.episodes("blue"):                    whole episodes of one entity, action by action
        episode.observations, episode.actions, episode.rewards
    for match in samples.matches:
        for part in match.parts():                              the columns as they are on the disk, tick by tick
            part.rewards, part.actions[entity]

Only numpy is needed. How the files look is in `arena.dataset.format`; what is read is held against it, and no
code is ever run from it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.config.load import load_config
from arena.dataset.format import (
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
from arena.errors import ConfigError, nearest
from arena.game.spaces import check_choices, row, unflatten
from arena.records.folder import RunFolder

Array = NDArray[Any]
Leaves = tuple[Array, ...]
Flags = NDArray[np.bool_]


class Part(NamedTuple):
    """Some ticks of some lanes of a match: `T` ticks, `L` lanes, `E` entities."""

    tick: NDArray[np.int64]  # [T], one after the other; the first of a run is 1
    lane: NDArray[np.int64]  # [L] numbers of the lanes
    episode: NDArray[np.int64]  # [T, L] the number of the lane's episode, as in episodes.jsonl
    begins: Flags  # [T, L] an episode begins before this tick
    cut: Flags  # [T, L] the arena has ended the episode on this tick, because the leg was over
    active: Flags  # [T, L, E] who was to act
    idle: Flags  # [T, E] for whom nobody spoke: the no-op was played
    rewards: NDArray[np.float64]  # [T, L, E]
    terminated: Flags  # [T, L, E]
    truncated: Flags  # [T, L, E]
    observations: tuple[Leaves, ...]  # per entity the leaves [T, L, ...] of what it saw before it acted
    masks: tuple[Array | None, ...]  # per entity [T, L, mask_size] int8; None where it has none
    actions: tuple[Leaves, ...]  # per entity the leaves [T, L, ...] of what it did
    ends: tuple[tuple[NDArray[np.int64], NDArray[np.int64], Leaves], ...]
    """Per entity tick [K], lane [K] and leaves [K, ...] of what it saw last in the episodes that it has ended."""

    @property
    def acted(self) -> Flags:
        """[T, L, E] where an action was taken by the entity's policy."""
        return self.active & ~self.idle[:, None]


@dataclass(frozen=True)
class Episode:
    """One episode of one entity, action by action: `N` times it was to act and somebody spoke for it.

    In a game in turns what the others' moves bring belongs to the action before them.

    Args:
        match: the match's number in its round.
        lane: of the match.
        number: of the lane's episode, as in episodes.jsonl.
        entity: by name.
        policy: whose worker drove it.
        tick: [N] on which ticks it acted.
        observations: a batched sample [N, ...] of the observation space: what it saw before it acted.
        masks: [N, mask_size] int8, what it was allowed; None where it has none.
        actions: a batched sample [N, ...] of the action space.
        rewards: [N] float64, from each action until the next one or the end.
        rewards_before: the sum of rewards that came before its first action.
        final_observation: what it saw last, a sample of the observation space.
        terminated: ended by the game's rules.
        truncated: ended from outside.
        cut: the end of a leg has ended it, not the game: its return says nothing.
        idle_ticks: on how many of its turns nobody spoke for it.
        round: in which it was played; the first one is 0.
        learning: its policy learnt in this run: no weights are those of all its actions.
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

    @property
    def undiscounted(self) -> float:
        """The sum of all rewards."""
        return self.rewards_before + float(self.rewards.sum())


@dataclass(frozen=True)
class MatchSamples:
    """What was played in one match.

    Args:
        path: the match's folder.
        match: its number in its round.
        env: its game, as the configuration names it.
        entities: of the game, in its order: name, policy, seat, spaces.
        round: of the run; the first one is 0.
        learning: the policies that learnt meanwhile, as far as the run's configuration is there to say so.
    """

    path: Path
    match: int
    env: str
    entities: tuple[EntitySamples, ...]
    round: int = 0
    learning: frozenset[str] = frozenset()

    def parts(self) -> Iterator[Part]:
        """All parts, one block of lanes after the other, each in the order in which it was played.

        Raises:
            ConfigError: a part is damaged.
        """
        columns = Manifest(self.match, self.env, self.entities).columns()
        for path in parts_in(self.path):
            yield _part(path, columns, self.entities)

    def episodes(self, policy: str | None = None) -> Iterator[Episode]:
        """All episodes that were played from their beginning to their end, those that a leg's end has cut included.

        Args:
            policy: only those of the entities that it drove; None: of all.

        Raises:
            ConfigError: a part is damaged.
        """
        wanted = [e for e, entity in enumerate(self.entities) if policy in (None, entity.policy)]
        begun: dict[tuple[int, int], list[_Piece]] = {}  # by lane and entity what was read of the episode that goes on
        before = 0
        for part in self.parts():
            if part.tick[0] != before + 1:
                begun.clear()  # another leg, block of lanes, or what died with its process: nothing goes on here
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
        )


@dataclass(frozen=True)
class Samples:
    """What a run has recorded, match by match."""

    path: Path
    matches: tuple[MatchSamples, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """All policies that have played."""
        return tuple(sorted({entity.policy for match in self.matches for entity in match.entities}))

    def entity(self, policy: str) -> EntitySamples:
        """The first entity that a policy drove: its spaces.

        Raises:
            ConfigError: the policy has not played.
        """
        found = [entity for match in self.matches for entity in match.entities if entity.policy == policy]
        if not found:
            known = nearest(policy, self.policies)
            raise ConfigError(f"no samples of the policy {policy!r}; {known}", source=str(self.path))
        return found[0]

    def episodes(self, policy: str | None = None) -> Iterator[Episode]:
        """The episodes of all matches, see `MatchSamples.episodes`.

        Raises:
            ConfigError: a part is damaged, or the policy has not played.
        """
        if policy is not None:
            self.entity(policy)
        return itertools.chain.from_iterable(match.episodes(policy) for match in self.matches)

    def check(self, policy: str | None = None) -> None:
        """Reads everything once: what is damaged is known before it is needed.

        Args:
            policy: only the matches in which it has played; None: all.

        Raises:
            ConfigError: a part is damaged.
        """
        for match in self.matches:
            if any(policy in (None, entity.policy) for entity in match.entities):
                for _ in match.parts():
                    pass


def open_dataset(path: Path | str) -> Samples:
    """Opens the samples of a run; the parts are read when they are asked for.

    Args:
        path: a run folder, or the folder of its samples.

    Raises:
        ConfigError: nothing was recorded here, a manifest is damaged or of a newer arena, or the run's configuration
            cannot be read.
    """
    path = Path(path)
    home = path / "samples" if (path / "samples").is_dir() else path
    found = [folder / MANIFEST for folder in matches_in(home) if (folder / MANIFEST).exists()]
    if not found:
        raise ConfigError(
            "no recorded samples here: name a run folder whose configuration says `record: samples`, or the folder "
            "`samples` in it",
            source=str(path),
        )
    learning = _learning(home)
    return Samples(home, tuple(_match(file, learning) for file in found))


def _learning(home: Path) -> frozenset[str]:
    """The policies that learnt in the run of these samples; none where they lie without it."""
    file = RunFolder(home.parent).config
    if not file.is_file():
        return frozenset()
    return frozenset(name for name, policy in load_config(file).policies.items() if policy.learns)


def _match(path: Path, learning: frozenset[str]) -> MatchSamples:
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
        raise ConfigError(f"is no manifest of recorded samples, or is damaged: {error}", source=str(path)) from error
    return MatchSamples(
        path.parent, manifest.match, manifest.env, manifest.entities, round=manifest.round or 0, learning=learning
    )


def _part(path: Path, columns: Mapping[str, Column], entities: Sequence[EntitySamples]) -> Part:
    arrays = read_arrays(path)
    try:
        _check_columns(arrays, columns, len(entities))
        part = _of_columns({name: arrays[name] for name in columns}, len(entities))
        _check_place(part, path)
        for index, entity in enumerate(entities):
            _check_entity(part, index, entity)
    except ValueError as error:
        raise ConfigError(f"is damaged, or no part of this match: {error}", source=str(path)) from error
    return part


def _of_columns(arrays: Mapping[str, Array], entities: int) -> Part:
    """The part with these columns, which are in the order of the manifest."""

    def leaves(prefix: str) -> tuple[Leaves, ...]:
        of = [[array for name, array in arrays.items() if name.startswith(f"{e}/{prefix}/")] for e in range(entities)]
        return tuple(map(tuple, of))

    ends = (tuple(arrays[f"{e}/end/{name}"] for name in ("tick", "lane")) for e in range(entities))
    return Part(
        **{name: arrays[name] for name in Part._fields if name in arrays},
        observations=leaves("observation"),
        masks=tuple(arrays.get(f"{e}/mask") for e in range(entities)),
        actions=leaves("action"),
        ends=tuple((*end, seen) for end, seen in zip(ends, leaves("end/observation"), strict=True)),  # type: ignore[misc]
    )


def _check_columns(arrays: Mapping[str, Array], columns: Mapping[str, Column], entities: int) -> None:
    """Refuses columns that are not those of the match.

    Raises:
        ValueError: names the first that is wrong.
    """
    if arrays.keys() != columns.keys():
        odd = sorted(arrays.keys() ^ columns.keys())
        raise ValueError(f"missing or unknown columns {', '.join(odd)}")
    sizes = {"entity": entities}
    for name, column in columns.items():
        array = arrays[name]
        axes = zip(column.axes, array.shape, strict=False)
        shape = (*(sizes.setdefault(axis, size) for axis, size in axes), *column.shape)
        if array.ndim != len(column.axes) + len(column.shape) or array.dtype != column.dtype or array.shape != shape:
            raise ValueError(
                f"the column {name!r} has the shape {array.shape} and type {array.dtype}, expected {shape} and "
                f"{column.dtype}"
            )


def _check_place(part: Part, path: Path) -> None:
    """Refuses ticks and lanes that cannot be, or that are not those which the file's name says.

    Raises:
        ValueError: says so.
    """
    if not len(part.tick) or not len(part.lane) or (np.diff(part.tick) != 1).any():
        raise ValueError("its ticks do not follow one another")
    if len(set(part.lane.tolist())) < len(part.lane):
        raise ValueError("a lane is in it twice")
    if (int(part.tick[0]) - 1, int(part.lane[0])) != (start_of(path), lane_of(path)):
        raise ValueError(f"it begins with tick {part.tick[0]} of lane {part.lane[0]}, which its name does not say")


def _check_entity(part: Part, e: int, entity: EntitySamples) -> None:
    """Refuses choices that the entity did not have, and ends of episodes that nobody has seen.

    Raises:
        ValueError: says which.
    """
    end_tick, end_lane, seen_last = part.ends[e]
    t, position = np.nonzero(part.terminated[:, :, e] | part.truncated[:, :, e])
    ended = zip(part.tick[t].tolist(), part.lane[position].tolist(), strict=True)
    if sorted(ended) != sorted(zip(end_tick.tolist(), end_lane.tolist(), strict=True)):
        raise ValueError(f"the ends of the episodes of {entity.name!r} are not where its columns `end` are")
    for space, leaves, rows in (
        (entity.observation_space, part.observations[e], part.active[:, :, e]),
        (entity.observation_space, seen_last, None),
        (entity.action_space, part.actions[e], part.acted[:, :, e]),
    ):
        try:
            check_choices(space, unflatten(space, leaves), rows)
        except ValueError as error:
            raise ValueError(f"there are values of {entity.name!r} that its space {space} does not have") from error


class _Piece(NamedTuple):
    """A stretch of one lane of a part, that belongs to one episode of one entity."""

    part: Part
    lane: int  # its place in the part
    entity: int
    begin: int
    end: int
    ended: bool  # the entity's episode ends with it

    def of(self, column: Array) -> Array:
        """The stretch [t, ...] of a column [T, L, ...]."""
        return column[self.begin : self.end, self.lane]


def _split(part: Part, lane: int, entity: int, begun: list[_Piece]) -> Iterator[list[_Piece]]:
    """The episodes of an entity in a lane of a part, as far as they are known from their beginning.

    Args:
        begun: what was read before of the episode that goes on into this part, if there is one.
    """
    ends = np.flatnonzero(part.terminated[:, lane, entity] | part.truncated[:, lane, entity]).tolist()
    begins = np.flatnonzero(part.begins[:, lane]).tolist()
    edges = [0, *(t for t in begins if t > 0), len(part.tick)]
    for begin, until in itertools.pairwise(edges):
        before = begun if begin == 0 and begin not in begins else []
        if not before and begin not in begins:
            continue
        end = next((t + 1 for t in ends if begin <= t < until), None)
        if end is not None or until == len(part.tick):  # else a reset has ended it: it is nobody's episode
            yield [*before, _Piece(part, lane, entity, begin, end or until, ended=end is not None)]


def _taken(pieces: list[_Piece], field: str, turns: NDArray[np.intp]) -> list[Array]:
    """The leaves [N, ...] of observations or actions on an entity's turns."""
    leaves = zip(*(getattr(piece.part, field)[piece.entity] for piece in pieces), strict=True)
    return [_joined(pieces, columns)[turns] for columns in leaves]


def _joined(pieces: list[_Piece], columns: Any) -> Array:
    return np.concatenate([piece.of(column) for piece, column in zip(pieces, columns, strict=True)])
