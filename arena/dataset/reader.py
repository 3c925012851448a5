"""Reads the recorded samples of a run (`record: samples`), for offline learning and off-policy estimates.

    samples = open_dataset("runs/duel")
    for episode in samples.episodes("blue"):                    whole episodes of an entity, action by action
        episode.observations, episode.actions, episode.rewards
    for match in samples.matches:
        for part in match.parts():                              the columns as stored, tick by tick
            part.rewards, part.actions[entity]

Only NumPy is needed. The files are described in `arena.dataset.format`; they are checked when they are read, and
reading runs no code. A damaged part is a `ConfigError`, and so is the name of a policy that did not play.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.config.load import load_config
from arena.dataset.batch import Batch, checked_episodes, column_names, part_arrays
from arena.dataset.format import LENGTHS, VERSION, Column, EntitySamples, Manifest, read_arrays
from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import ConfigError, nearest
from arena.game.ragged import Ragged
from arena.game.spaces import check_choices, flatten, mask_size, row, unflatten
from arena.game.units import UnitActions, UnitSpace
from arena.records import checksums
from arena.records.atomic import refuse_links
from arena.records.folder import MANIFEST, RunFolder, lanes_in, matches_in, read_manifest, start_and_lane

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
    """

    match: int  # its number in its round
    lane: int  # of the match
    number: int  # of the lane's episode, as in episodes.jsonl
    entity: str  # by name
    policy: str  # of the worker that drove the entity
    tick: NDArray[np.int64]  # [N] the ticks at which the entity acted
    observations: Any  # a batched sample [N, ...] of the observation space, before each action
    masks: Array | None  # [N, mask_size] int8, the action masks; None if the entity has none
    actions: Any  # a batched sample [N, ...] of the action space
    rewards: NDArray[np.float64]  # [N] from each action until the next one or the end
    rewards_before: float  # the sum of rewards before the first action
    final_observation: Any  # the last one, a sample of the observation space
    terminated: bool  # ended by the game's rules
    truncated: bool  # ended otherwise, such as by a limit
    cut: bool  # ended by the end of a leg, not by the game: its return is incomplete
    idle_ticks: int  # number of the entity's turns at which no worker acted for it
    round: int = 0  # of the run; the first one is 0
    learning: bool = False  # whether the policy was training: then its actions come from changing weights
    given: Flags | None = None  # [N] an external game has chosen these actions by itself; None: not an external game
    void: Flags | None = None  # [N] likewise: nothing is to be learned from the results of these actions

    @property
    def undiscounted(self) -> float:
        """The sum of all rewards."""
        return self.rewards_before + float(self.rewards.sum())


@dataclass(frozen=True)
class MatchSamples:
    """The samples of one match."""

    path: Path  # the match's folder
    match: int  # its number in its round
    env: str  # the name of its game in the configuration
    entities: tuple[EntitySamples, ...]  # of the game, in its order
    round: int = 0  # of the run; the first one is 0
    learning: frozenset[str] = frozenset()  # the policies that were training, if the run's configuration is available
    external: bool = False  # whether its games are external

    def parts(self) -> Iterator[Part]:
        """All parts, block by block of lanes, each in the order of ticks."""
        columns = Manifest(self.match, self.env, self.entities, external=self.external).columns()
        for path in sorted(lanes_in(self.path, "npz"), key=lambda path: start_and_lane(path)[::-1]):
            arrays = read_arrays(path)
            try:
                if arrays.keys() != columns.keys():
                    odd = sorted(arrays.keys() ^ columns.keys())
                    raise ValueError(f"missing or unknown columns {', '.join(odd)}")
                sizes = {"entity": len(self.entities)}
                for name, column in columns.items():
                    array = arrays[name]
                    if column.ragged:
                        _check_ragged(name, array, arrays[name + LENGTHS], column)
                        continue
                    axes = zip(column.axes, array.shape, strict=False)
                    shape = (*(sizes.setdefault(axis, size) for axis, size in axes), *column.shape)
                    dimensions = len(column.axes) + len(column.shape)
                    if array.ndim != dimensions or array.dtype != column.dtype or array.shape != shape:
                        raise ValueError(
                            f"the column {name!r} has the shape {array.shape} and type {array.dtype}, expected {shape} "
                            f"and {column.dtype}"
                        )
                part = _part_of({name: arrays[name] for name in columns}, len(self.entities))
                if not len(part.tick) or not len(part.lane) or (np.diff(part.tick) != 1).any():
                    raise ValueError("its ticks are not consecutive")
                if len(set(part.lane.tolist())) < len(part.lane):
                    raise ValueError("a lane is in it twice")
                if (int(part.tick[0]) - 1, int(part.lane[0])) != start_and_lane(path):
                    raise ValueError(
                        f"it begins with tick {part.tick[0]} of lane {part.lane[0]}, which does not match its name"
                    )
                for index, entity in enumerate(self.entities):
                    _check_entity(part, index, entity)
            except ValueError as error:
                raise ConfigError(f"is damaged, or not a part of this match: {error}", source=str(path)) from error
            yield part

    def episodes(self, policy: str | None = None) -> Iterator[Episode]:
        """All episodes from beginning to end, or those of one policy; also those that were cut at the end of a leg."""
        driven = [e for e, entity in enumerate(self.entities) if policy in (None, entity.policy)]
        begun: dict[tuple[int, int], list[_Piece]] = {}  # (lane, entity) -> pieces of its unfinished episode
        before = 0
        for part in self.parts():
            if part.tick[0] != before + 1:
                begun.clear()  # another leg or block of lanes, or a lost part: no episode continues here
            before = int(part.tick[-1])
            for position, lane in enumerate(part.lane.tolist()):
                for e in driven:
                    for pieces in _pieces(part, position, e, begun.pop((lane, e), [])):
                        if pieces[-1].ended:
                            yield self._episode(pieces)
                        else:
                            begun[lane, e] = pieces

    def _episode(self, pieces: list[_Piece]) -> Episode:
        last, e = pieces[-1], pieces[-1].entity
        entity, tick, lane = self.entities[e], last.part.tick[last.end - 1], int(last.part.lane[last.lane])

        def joined(column: Callable[[Any], Any]) -> Any:
            """The ticks of the pieces in a column [T, L, ...] of their parts, or in a `Ragged` of T * L rows."""
            found: list[Any] = []
            for piece in pieces:
                ticks = np.arange(piece.begin, piece.end)
                read = column(piece.part)
                is_ragged = isinstance(read, Ragged)
                found.append(read[ticks * len(piece.part.lane) + piece.lane] if is_ragged else read[ticks, piece.lane])
            return Ragged.concat(found) if isinstance(found[0], Ragged) else np.concatenate(found)

        acted = joined(lambda part: part.acted[:, :, e])
        idle = joined(lambda part: part.active[:, :, e]) & ~acted
        rewards = joined(lambda part: part.rewards[:, :, e])
        turns = np.flatnonzero(acted)
        given = void = None
        if last.part.given is not None:
            given = joined(lambda part: part.given[:, :, e])[turns]
            voids = joined(lambda part: part.void[:, :, e])
            void = np.logical_or.reduceat(voids, turns) if len(turns) else np.zeros(0, np.bool_)
        observations, actions = (
            [joined(lambda part: getattr(part, name)[e][number])[turns] for number in range(len(leaves))]  # noqa: B023
            for name, leaves in (("observations", last.part.observations[e]), ("actions", last.part.actions[e]))
        )
        end_tick, end_lane, end_leaves = last.part.ends[e]
        (at,) = np.flatnonzero((end_tick == tick) & (end_lane == lane))
        final = unflatten(entity.observation_space, [leaf[at : at + 1] for leaf in end_leaves])
        return Episode(
            match=self.match,
            lane=lane,
            number=int(last.part.episode[last.end - 1, last.lane]),
            entity=entity.name,
            policy=entity.policy,
            tick=np.concatenate([piece.part.tick[piece.begin : piece.end] for piece in pieces])[turns],
            observations=unflatten(entity.observation_space, observations),
            masks=None if last.part.masks[e] is None else joined(lambda part: part.masks[e])[turns],
            actions=unflatten(entity.action_space, actions),
            rewards=np.add.reduceat(rewards, turns) if len(turns) else np.zeros(0),
            rewards_before=float(rewards[: turns[0] if len(turns) else None].sum()),
            final_observation=row(entity.observation_space, final, 0),
            terminated=bool(last.part.terminated[last.end - 1, last.lane, e]),
            truncated=bool(last.part.truncated[last.end - 1, last.lane, e]),
            cut=bool(last.part.cut[last.end - 1, last.lane]),
            idle_ticks=int(idle.sum()),
            round=self.round,
            learning=entity.policy in self.learning,
            given=given,
            void=void,
        )


@dataclass(frozen=True)
class Samples:
    """The recorded samples of a run; `ConfigError`: a part is damaged, or a policy that is named did not play."""

    path: Path  # of the samples
    matches: tuple[MatchSamples, ...]  # of all rounds

    @property
    def policies(self) -> tuple[str, ...]:
        """All policies that played."""
        return tuple(sorted({entity.policy for match in self.matches for entity in match.entities}))

    def entity(self, policy: str) -> EntitySamples:
        """The first entity that a policy drove, for its spaces."""
        found = [entity for match in self.matches for entity in match.entities if entity.policy == policy]
        if not found:
            known = nearest(policy, self.policies)
            raise ConfigError(f"no samples of the policy {policy!r}; {known}", source=str(self.path))
        return found[0]

    def episodes(self, policy: str | None = None) -> Iterator[Episode]:
        """The episodes of all matches, see `MatchSamples.episodes`."""
        if policy is not None:
            self.entity(policy)
        return itertools.chain.from_iterable(match.episodes(policy) for match in self.matches)

    def batch(self, policy: str, *, cut: bool = False) -> Batch:
        """The episodes of a policy as columns, one row per action; see `arena.dataset.batch`.

        `cut` includes episodes that were cut at the end of a leg.
        """
        self.entity(policy)
        return self.batches(cut=cut, of=policy).get(policy, Batch({}))

    def batches(self, *, cut: bool = False, of: str | None = None) -> dict[str, Batch]:
        """The episodes of every policy as columns, or `of` one; see `batch`."""
        found: dict[str, list[Batch]] = {}
        number = -1
        for match in self.matches:
            places = {entity.name: place for place, entity in enumerate(match.entities)}
            for episode in match.episodes():
                number += 1
                count = len(episode.tick)
                if of not in (None, episode.policy) or (episode.cut and not cut) or not count:
                    continue
                entity = match.entities[places[episode.entity]]
                names = column_names("obs", entity.observation_space)
                observed = flatten(entity.observation_space, episode.observations)
                final = flatten(entity.observation_space, episode.final_observation)
                actions = flatten(entity.action_space, episode.actions)
                last = np.arange(count) == count - 1
                columns = {
                    **dict(zip(names, observed, strict=True)),
                    **{
                        f"new_{name}": np.concatenate([column[1:], end[None]])
                        for name, column, end in zip(names, observed, final, strict=True)
                    },
                    **dict(zip(column_names("actions", entity.action_space), actions, strict=True)),
                    "rewards": episode.rewards,
                    "terminateds": last & episode.terminated,
                    "truncateds": last & episode.truncated,
                    "dones": last & (episode.terminated or episode.truncated),
                    "eps_id": np.full(count, number, np.int64),
                    "t": np.arange(count, dtype=np.int64),
                    "agent_index": np.full(count, places[episode.entity], np.int64),
                    **({} if episode.masks is None else {"action_mask": episode.masks}),
                }
                found.setdefault(episode.policy, []).append(Batch(columns))
        return {name: Batch.concat(batches) for name, batches in found.items()}

    def check(self, policy: str | None = None) -> None:
        """Reads all parts once, or those of the matches in which a policy played, to find damaged ones early."""
        for match in self.matches:
            if any(policy in (None, entity.policy) for entity in match.entities):
                for _ in match.parts():
                    pass


def has_files(path: Path | str) -> bool:
    """Whether anything is where samples are to be read."""
    return (_minari_path(str(path)) if str(path).startswith(MINARI) else anchored(path)).exists()


def open_dataset(path: Path | str) -> Samples:
    """Opens the samples of a run folder, of the folder of its samples, or of Minari; the parts are read on access.

    Args:
        path: of either folder.

    Raises:
        ConfigError: there are no samples, a manifest is damaged or comes from a newer arena, or the run's configuration
            cannot be read; or the extra `minari` is missing.
    """
    check_path(path, "the path of a run folder, or minari:ID")
    if str(path).startswith(MINARI):
        return _open_minari(str(path))
    path = anchored(path)
    of_run = any((path / name).exists() for name in ("samples", "config.yaml"))
    refuse_links(path, {"samples": None, "config.yaml": None} if of_run else None)
    home = path / "samples" if (path / "samples").is_dir() else path
    # A manifest is written before the first part.
    found = [folder for folder in matches_in(home) if lanes_in(folder, "npz") or (folder / MANIFEST).exists()]
    if not found:
        raise ConfigError(
            "no recorded samples here: name a run folder whose configuration says `record: samples`, or the folder "
            "`samples` in it",
            source=str(path),
        )
    if home.name == "samples" and (home.parent / "config.yaml").is_file():
        checksums.check_folder(home.parent)
    # The policies that were training in the run of these samples; none if its configuration is missing.
    file = RunFolder(home.parent).config
    policies = load_config(file).policies if file.is_file() else {}
    learning = frozenset(name for name, policy in policies.items() if policy.learns)
    matches = []
    for path in found:
        manifest = read_manifest(path / MANIFEST, Manifest.from_json, newest=VERSION, what="recorded samples")
        matches.append(
            MatchSamples(
                path,
                manifest.match,
                manifest.env,
                manifest.entities,
                round=manifest.round or 0,
                learning=learning,
                external=manifest.external,
            )
        )
    return Samples(home, tuple(matches))


MINARI = "minari:"
"""The beginning of a name of Minari's, in the place of a path."""


def _minari_path(name: str) -> Path:
    """The folder of a data set of Minari, by its name, as `minari:cartpole/expert-v0`."""
    home = os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets"
    return Path(home) / name.removeprefix(MINARI)


def minari_package() -> Any:
    """The package; ConfigError: it is not installed."""
    try:
        import minari
        import minari.data_collector
    except ImportError as error:
        raise ConfigError(
            "data sets of Minari need the package 'minari'; an extra brings it: pip install 'mpi-policy-arena[minari]'"
        ) from error
    return minari


def _open_minari(name: str) -> Samples:
    """The samples of a data set, by its name after `minari:`; ConfigError: it is not on this machine."""
    path = _minari_path(name)
    if not (path / "data").is_dir():
        raise ConfigError(
            f"there is no such data set of Minari; fetch it: minari download {name.removeprefix(MINARI)}",
            source=str(path),
        )
    data = minari_package().MinariDataset(path / "data")
    first = next(data.iterate_episodes(), None)
    size = mask_size(data.action_space) if first is not None and "action_mask" in (first.infos or ()) else 0
    entity = EntitySamples("agent", "minari", 0, data.observation_space, data.action_space, size)
    return Samples(path, (_MinariMatch(path, 0, name, (entity,), data=data),))


@dataclass(frozen=True, kw_only=True)
class _MinariMatch(MatchSamples):
    """A data set of Minari as the samples of a match of one entity: each episode is a part."""

    data: Any  # the `minari.MinariDataset`

    def parts(self) -> Iterator[Part]:
        """The episodes."""
        (entity,), start = self.entities, 0
        spaces = entity.observation_space, entity.action_space
        try:
            for episode in checked_episodes(map(self._columns, self.data.iterate_episodes()), *spaces):
                part = _part_of(part_arrays(episode, start, *spaces), 1)
                _check_entity(part, 0, entity)
                yield part
                start += len(episode)
        except ValueError as error:
            raise ConfigError(str(error), source=str(self.path)) from error

    def _columns(self, episode: Any) -> Mapping[str, Any]:
        """An episode as the columns of `write_samples`; without an end, it is truncated."""
        (entity,), last = self.entities, np.arange(len(episode)) == len(episode) - 1

        def columns(name: str, space: Space[Any], values: Any) -> dict[str, Any]:
            return dict(zip(column_names(name, space), flatten(space, values), strict=True))

        masks = (episode.infos or {}).get("action_mask")
        seen = columns("obs", entity.observation_space, episode.observations)
        return {
            **{name: leaf[:-1] for name, leaf in seen.items()},
            **{f"new_{name}": leaf[1:] for name, leaf in seen.items()},
            **columns("actions", entity.action_space, episode.actions),
            "rewards": episode.rewards,
            "terminateds": episode.terminations,
            "truncateds": episode.truncations | (last & ~episode.terminations),
            **({} if masks is None else {"action_mask": masks[:-1]}),
        }


def _part_of(arrays: Mapping[str, Array], entities: int) -> Part:
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
    end_tick, end_lane, end_leaves = part.ends[e]
    t, position = np.nonzero(part.terminated[:, :, e] | part.truncated[:, :, e])
    ended = zip(part.tick[t].tolist(), part.lane[position].tolist(), strict=True)
    if sorted(ended) != sorted(zip(end_tick.tolist(), end_lane.tolist(), strict=True)):
        raise ValueError(f"the columns `end` of {entity.name!r} do not fit the ends of its episodes")
    for space, leaves, rows in (
        (entity.observation_space, part.observations[e], part.active[:, :, e]),
        (entity.observation_space, end_leaves, None),
        (entity.action_space, part.actions[e], part.acted[:, :, e]),
    ):
        try:
            sample: Any = unflatten(space, leaves)
            check_choices(space, sample, rows)
            if isinstance(space, UnitSpace):
                axes = 1 if rows is None else 2  # [K] or [T, L]
                flat = [leaf if isinstance(leaf, Ragged) else leaf.reshape(-1, *leaf.shape[axes:]) for leaf in leaves]
                if (breach := space.breach(unflatten(space, flat))) is not None:
                    raise ValueError(breach.text)
            if isinstance(space, UnitActions) and isinstance(entity.observation_space, UnitSpace):
                observed: Any = unflatten(entity.observation_space, part.observations[e])
                space.check_choices(sample, observed["actions"])
        except ValueError as error:
            raise ValueError(f"values of {entity.name!r} are not in its space {space}: {error}") from error


class _Piece(NamedTuple):
    """Consecutive ticks of one lane of a part, in one episode of one entity."""

    part: Part
    lane: int  # index of the lane in the part
    entity: int
    begin: int
    end: int
    ended: bool  # whether the entity's episode ends with it


def _pieces(part: Part, lane: int, entity: int, begun: list[_Piece]) -> Iterator[list[_Piece]]:
    """The episodes of an entity in a lane of a part, whose beginnings are recorded: in this part, or in `begun`."""
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
