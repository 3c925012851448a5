"""Reads the replays of a run (`record: replays`): its episodes and their actions.

    replays = read_replays("runs/duel")
    for match in replays.matches:
        for episode in match.episodes():             those that have ended
            episode.lane, episode.number, episode.length

`arena.replay.verify` plays them again. The files are described in `arena.replay.format`; they are checked when they
are read, and reading runs no code. A damaged file is a `ConfigError`, and so is what is asked for and not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.config import Config, load_config
from arena.config.named import check_texts
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.game.ragged import Ragged
from arena.records.atomic import refuse_links
from arena.records.folder import MANIFEST, NAMES, lanes_in, manifest_path, manifests_in, matches_in, start_and_lane
from arena.registry import EXTERNAL
from arena.replay.format import Begin, Leaves, Manifest, chunks_in, damaged, manifest_in

MOST_PLAYED = 20_000  # ticks that may be played again for pictures of a newest episode: about a minute


@dataclass(frozen=True)
class Recording:
    """One file: the `T` ticks of a leg in `L` lanes."""

    path: Path  # of the file
    manifest: Manifest  # of its leg
    lanes: range  # their numbers in the match
    start: int  # number of ticks played before
    begins: tuple[Begin, ...]  # of episodes, in their order
    failed: frozenset[int]  # the ticks at which the game failed, which were not played
    actions: tuple[Leaves, ...]
    """Per entity the leaves [T, L, ...], zeros for entities that were not to act; a ragged leaf is a `Ragged` of T * L
    rows in the order (tick, lane), without items for these."""
    digests: NDArray[np.uint16]  # [T, L], see `arena.replay.digests`

    @property
    def ticks(self) -> int:
        return len(self.digests)


class Episode(NamedTuple):
    """An episode that has ended."""

    lane: int
    number: int
    begin: int  # ticks of the match before its first one
    end: int  # its last tick
    place: int  # index of its begin in the recording's `begins`
    game: int  # likewise of the begin for which its game was made: from there it is played again
    recording: Recording

    @property
    def length(self) -> int:
        """Its ticks."""
        return self.end - self.begin

    @property
    def played(self) -> int:
        """The ticks to play, from where its game was made."""
        return self.end - self.recording.begins[self.game].tick


@dataclass(frozen=True)
class MatchReplays:
    """The replays of one match."""

    path: Path  # its folder
    manifests: Mapping[int, Manifest]  # by the tick after which the first leg of each begins, in their order

    @property
    def manifest(self) -> Manifest:
        """The newest one."""
        return self.manifests[max(self.manifests)]

    def _start_of_manifest(self, start: int) -> int:
        """The tick after which the manifest of the leg after tick `start` begins."""
        return max(first for first in self.manifests if first <= start)

    @property
    def place(self) -> tuple[int, int]:
        """Its round, and its number in it."""
        return self.manifest.round, self.manifest.match

    @cached_property
    def _config(self) -> Config:
        return load_config(self.path.parents[2] / "config.yaml")

    def playable(self, recording: Recording) -> Manifest:
        """The manifest, with which this can be played again: its game is the one that config.yaml names."""
        manifest, config = recording.manifest, self._config
        place = str(manifest_path(self.path, self._start_of_manifest(recording.start)))
        env = config.envs.get(manifest.env)
        added = [name for name in manifest.imports if name not in config.imports]
        known: dict[str, Any] = {"imports": config.imports if added else manifest.imports}
        known |= {} if env is None else {"make": env.make, "wrappers": env.wrapped_in, "screen": env.screen}
        for key in ("make", "wrappers", "screen", "imports"):
            if json.dumps(found := getattr(manifest, key)) != json.dumps(known.get(key)):
                why = f"found {found!r:.200}, but config.yaml, which alone can name code, has {known.get(key)!r:.200}"
                remedy = "with the configuration of that time the replays can be played"
                raise ConfigError(f"{why}; {remedy}", path=key, source=place)
        free = config.curriculum is not None or bool(config.callbacks)
        check_texts(manifest.kwargs, config, free=free and manifest.make not in EXTERNAL, path="kwargs", source=place)
        return manifest

    @cached_property
    def recordings(self) -> tuple[Recording, ...]:
        """All files, in the order of ticks and lanes."""
        found = (
            _recording(path, self.manifests[self._start_of_manifest(start_and_lane(path)[0])])
            for path in lanes_in(self.path, "replay")
        )
        return tuple(recording for recording in found if recording is not None)

    def episodes(self) -> list[Episode]:
        """The episodes that have ended, by lane and number; also those that were cut at the end of a leg."""
        found = {}
        for recording in self.recordings:
            last: dict[int, tuple[int, int, int, int]] = {}
            game = 0
            for place, begin in enumerate(recording.begins):
                game = place if begin.new_game else game
                for position, number in zip(begin.lanes, begin.episodes, strict=True):
                    before, tick, at, made = last.get(position, (number, 0, 0, 0))
                    if number > before:  # the next episode in a lane has a higher number
                        lane = recording.lanes[position]
                        found[lane, before] = Episode(lane, before, tick, begin.tick, at, made, recording)
                    last[position] = (number, begin.tick, place, game)
        return [found[key] for key in sorted(found)]

    def newest(self) -> Episode | None:
        """The newest episode: first of those that play within `MOST_PLAYED` ticks, then of those that were not cut."""
        return max(
            self.episodes(),
            key=lambda one: (one.played <= MOST_PLAYED, one.end < one.recording.start + one.recording.ticks, one.end),
            default=None,
        )

    def episode(self, number: int, *, lane: int) -> Episode:
        """One episode."""
        known = [one for one in self.episodes() if one.lane == lane]
        for one in known:
            if one.number == number:
                return one
        self.check_lane(lane)
        raise self._absent(f"episode {number} of lane {lane}; {_there([one.number for one in known])}")

    def check_lane(self, lane: int) -> None:
        """Checks that a lane was recorded."""
        if lane not in self.lanes:
            raise self._absent(f"lane {lane}; {_there(self.lanes)}")

    @property
    def lanes(self) -> Sequence[int]:
        """The numbers of the recorded lanes."""
        return sorted({lane for recording in self.recordings for lane in recording.lanes})

    def _absent(self, what: str) -> ConfigError:
        return ConfigError(f"match {self.manifest.match} has no {what}", source=str(self.path))


@dataclass(frozen=True)
class Replays:
    """The replays of a run, by rounds and matches."""

    path: Path
    matches: tuple[MatchReplays, ...]

    def match(self, number: int, *, round: int = 0) -> MatchReplays:
        """One match."""
        rounds = sorted({match.manifest.round for match in self.matches})
        if round not in rounds:
            raise ConfigError(f"there is no round {round}; {_there(rounds)}", source=str(self.path))
        known = {match.manifest.match: match for match in self.matches if match.manifest.round == round}
        if number not in known:
            there = _there(sorted(known))
            raise ConfigError(f"round {round} has no match {number}; {there}", source=str(self.path))
        return known[number]


def read_replays(path: Path | str) -> Replays:
    """Opens the replays of a run folder; the files of a match are read on access.

    Raises:
        ConfigError: there are none, or a manifest is missing, damaged, or comes from a newer arena.
    """
    path = anchored(path)
    refuse_links(path, NAMES)
    home = path / "replays"
    matches = []
    for folder in matches_in(home):
        files, manifest = lanes_in(folder, "replay"), folder / MANIFEST  # the manifest is written before the first file
        if files and not manifest.exists():
            raise damaged(manifest, "it is missing, but there are replay files in its folder")
        if manifest.exists():
            read = {start: manifest_in(path) for start, path in manifests_in(folder).items()}
            matches.append(MatchReplays(folder, read))
    if not matches:
        raise ConfigError(
            "no replays here: name the folder of a run whose configuration says `record: replays`", source=str(path)
        )
    return Replays(home, tuple(sorted(matches, key=lambda match: match.place)))


def _recording(path: Path, manifest: Manifest) -> Recording | None:
    """The content of a file; None if its writer was killed before it wrote anything."""
    chunks = list(chunks_in(path))
    if not chunks:
        return None
    start, lane = start_and_lane(path)
    first = chunks[0]
    if (first.tick, first.lane) != (start, lane):
        raise damaged(path, f"it begins after tick {first.tick} with lane {first.lane}, which does not match its name")
    stored: list[Any] = []  # per chunk the digests, and the leaves of all actions
    for chunk in chunks:
        written = iter(chunk.actions)
        try:
            if min(chunk.ticks, chunk.lanes) < 1:
                raise ValueError("no ticks or no lanes")
            leaves: list[Any] = [np.frombuffer(chunk.digests, np.uint16).reshape(chunk.ticks, chunk.lanes)]
            for column in (column for of_entity in manifest.columns() for column in of_entity):
                data = next(written)
                if not column.ragged:
                    array = np.frombuffer(data, column.dtype)
                    leaves.append(array.reshape(chunk.ticks, chunk.lanes, *column.shape))
                    continue
                items = next(written)
                counts = np.frombuffer(data, np.uint32).astype(np.int64)
                if len(counts) != chunk.ticks * chunk.lanes:
                    raise ValueError(f"{len(counts)} lengths for {chunk.ticks} ticks of {chunk.lanes} lanes")
                if (expected := int(counts.sum()) * column.item_bytes) != len(items):
                    raise ValueError(f"lengths ask for {expected} bytes, but there are {len(items)}")
                values = np.frombuffer(items, column.dtype) if column.item_bytes else np.zeros(0, column.dtype)
                leaves.append(Ragged(values.reshape(int(counts.sum()), *column.shape), counts))
            if len(list(written)):
                raise ValueError("too many columns")
        except (ValueError, StopIteration) as error:
            why = "a column is missing" if isinstance(error, StopIteration) else error
            raise damaged(path, f"the columns after tick {chunk.tick} do not fit: {why}") from error
        stored.append(leaves)
    for before, chunk in pairwise(chunks):
        if (chunk.tick, chunk.lane, chunk.lanes) != (before.tick + before.ticks, first.lane, first.lanes):
            raise damaged(path, f"its ticks or lanes do not continue after tick {before.tick + before.ticks}")
    begins = tuple(begin for chunk in chunks for begin in chunk.begins)
    if not begins or not begins[0].new_game or begins[0].tick != first.tick:
        raise damaged(path, "the begin of its first episodes is missing")
    if any(after.tick < before.tick for before, after in pairwise(begins)):
        raise damaged(path, "its begins of episodes are not in order")
    for begin in begins:
        sizes = {len(begin.lanes), len(begin.episodes), len(begin.digests), len(begin.seeds or begin.lanes)}
        whole = not begin.new_game or begin.lanes == list(range(first.lanes))
        if len(sizes) > 1 or not whole or not set(begin.lanes) <= set(range(first.lanes)):
            raise damaged(path, f"the begin after tick {begin.tick} does not fit its lanes")
    joined: list[Any] = [
        Ragged.concat(columns) if isinstance(columns[0], Ragged) else np.concatenate(columns)
        for columns in zip(*stored, strict=True)
    ]
    remaining = iter(joined[1:])
    return Recording(
        path=path,
        manifest=manifest,
        lanes=range(lane, lane + first.lanes),
        start=start,
        begins=begins,
        failed=frozenset(tick for chunk in chunks for tick in chunk.failed),
        actions=tuple(tuple(next(remaining) for _ in columns) for columns in manifest.columns()),
        digests=joined[0],
    )


def _there(numbers: Sequence[int]) -> str:
    """`there are 0 to 3, 7`, `there is only 0`, `there is none`."""
    if len(numbers) < 2:
        return f"there is only {numbers[0]}" if numbers else "there is none"
    edges = [index for index in range(1, len(numbers)) if numbers[index] != numbers[index - 1] + 1]
    parts = [numbers[start:end] for start, end in pairwise([0, *edges, len(numbers)]) if start < end]
    spans = ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
    return f"there are {spans}"
