"""Plays a recorded match again: the same game, seeds and actions.

    with Playback(manifest, recording, lanes=[0]) as playback:
        for event in playback.events():        begins of episodes, and ticks
            event.same                         the lanes that are as recorded

Neither policies nor MPI are needed. The game is imported by the names in the manifest, so that only one that is known
to name the run's own game may be given: `MatchReplays.playable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena import registry
from arena.errors import ArenaError, ConfigError
from arena.game.api import BatchedEnv, Frame, Step
from arena.game.context import EnvContext
from arena.game.ragged import Ragged
from arena.game.spaces import unflatten
from arena.replay.digests import Digests
from arena.replay.format import Begin, Manifest
from arena.replay.reader import Recording

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Event(NamedTuple):
    """Results of the game in the `L` lanes of the playback. Arrays are valid until the next event."""

    tick: int  # ticks played by the match
    place: int  # index of the last begin in the recording's `begins`
    lanes: Flags  # [L] the lanes in which an episode begins; on a tick, all
    episodes: Numbers  # [L] the numbers of their episodes
    begun: Numbers  # [L] ticks played before these episodes
    frame: Frame
    same: Flags  # [L] true for lanes that are as recorded
    step: Step | None = None  # None: episodes begin
    actions: Sequence[Any] = ()  # of the tick: per entity a batched sample [L, ...]


@dataclass(frozen=True)
class Difference:
    """Where a playback differs from its recording."""

    match: int  # number of the match
    tick: int  # of the match; if the first observation of an episode differs, the tick before the episode
    lane: int | None = None  # number of the lane; None: the game failed in all lanes
    episode: int | None = None  # of the lane
    played: int = 0  # ticks of the episode, this one included; 0: the first observation differs
    error: str = ""  # the exception of the game

    def __str__(self) -> str:
        if self.error:
            return f"match {self.match}: the game fails at tick {self.tick}, where it did not fail before: {self.error}"
        where = f"match {self.match}, lane {self.lane}, episode {self.episode}"
        if not self.played:
            return f"{where}: the first observation, after tick {self.tick}, differs from the recording"
        return f"{where}: tick {self.tick}, number {self.played} of the episode, differs from the recording"


class ReplayDiffers(ArenaError):
    """A playback differs from its recording; `difference` says where."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


class Playback:
    """Plays some lanes, given by their indices, of a recording of a match again; a render mode of None: as recorded.

    Attributes:
        game: the current one; replaced where the game was made again in the recording.
    """

    def __init__(
        self, manifest: Manifest, recording: Recording, *, lanes: Sequence[int], render_mode: str | None = None
    ) -> None:
        self._manifest = manifest
        self._recording = recording
        self._lanes = list(lanes)
        self._kwargs = manifest.kwargs if render_mode is None else {**manifest.kwargs, "render_mode": render_mode}
        self._columns = manifest.columns()
        self.game = self._made()
        self._untouched = True  # whether the game was not reset yet
        self._digests = Digests(self.game.interface, len(self._lanes), actions=self._columns)
        self._episodes = np.zeros(len(self._lanes), np.int64)
        self._begun = np.zeros(len(self._lanes), np.int64)

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *_: object) -> None:
        self.game.close()

    def events(self, *, since: int = 0) -> Iterator[Event]:
        """All events from a game's beginning to the end of the recording; may be called once.

        `since` is the index in the recording's `begins` of a begin for which the game was made.
        """
        recording, begins = self._recording, self._recording.begins
        first = begins[since].tick
        for tick in range(first, recording.start + recording.ticks + 1):
            # A failure at the first tick belongs to the previous game.
            if tick > first and tick not in recording.failed:
                yield self._step(tick, since - 1)
            while since < len(begins) and begins[since].tick == tick:
                event = self._begin(begins[since], since)
                if event is not None:
                    yield event
                since += 1

    def _made(self) -> BatchedEnv:
        manifest, lanes = self._manifest, self._recording.lanes
        begins = self._recording.begins  # the first begin of a leg has the seeds of all lanes
        seeds = next((begin.seeds for begin in begins if begin.new_game and begin.seeds), None) or [0] * len(lanes)
        contexts = [
            EnvContext(
                manifest.match,
                manifest.entry,
                manifest.copy,
                lanes[lane],
                manifest.lanes or len(lanes),
                seeds[lane] or 0,
                manifest.round,
            )
            for lane in self._lanes
        ]
        game = made(manifest, self._kwargs, lanes=len(self._lanes), contexts=contexts)
        recorded = [(entity.name, entity.action_space) for entity in manifest.entities]
        found = list(zip(game.interface.entities, game.interface.action_spaces, strict=True))
        if found != recorded:
            game.close()
            now, before = (", ".join(f"{name} {space}" for name, space in both) for both in (found, recorded))
            raise ConfigError(
                f"match {manifest.match}: the entities or actions of the game {manifest.make!r} have changed: now "
                f"{now}; recorded {before}"
            )
        return game

    def _begin(self, begin: Begin, place: int) -> Event | None:
        """Begins episodes; None if none of the playback's lanes begins one."""
        places = {position: place for place, position in enumerate(begin.lanes)}
        of_lane = [places.get(position) for position in self._lanes]
        lanes = np.array([place is not None for place in of_lane])
        if not lanes.any():
            return None
        if begin.lost:
            raise ConfigError(
                f"match {self._manifest.match}: the reset after tick {begin.tick} had options that could not be "
                f"recorded, so it cannot be played again: {begin.lost}"
            )
        if begin.new_game and not self._untouched:
            self.game.close()
            self.game = self._made()
        self._untouched = False
        seeds = begin.seeds and [None if at is None else begin.seeds[at] for at in of_lane]
        try:
            frame = self.game.reset(lanes, seeds, begin.options)
        except Exception as error:
            raise self._failed(begin.tick, error) from error
        digests = self._digests.begin(frame, lanes)
        self._begun[lanes] = begin.tick
        self._episodes[lanes] = [begin.episodes[at] for at in of_lane if at is not None]
        recorded = np.array([0 if at is None else begin.digests[at] for at in of_lane], np.uint16)
        return Event(begin.tick, place, lanes, self._episodes, self._begun, frame, digests == recorded)

    def _step(self, tick: int, place: int) -> Event:
        row = tick - self._recording.start - 1
        rows = row * len(self._recording.lanes) + np.array(self._lanes)  # of ragged leaves
        stored, actions = [], []
        for entity, columns, recorded in zip(
            self._manifest.entities, self._columns, self._recording.actions, strict=True
        ):
            leaves = [leaf[rows] if isinstance(leaf, Ragged) else leaf[row, self._lanes] for leaf in recorded]
            unpacked = [column.unpacked(leaf) for column, leaf in zip(columns, leaves, strict=True)]
            stored += leaves
            actions.append(unflatten(entity.action_space, unpacked))
        try:
            step = self.game.step(actions)
        except Exception as error:
            raise self._failed(tick, error) from error
        same = self._digests.add(stored, step) == self._recording.digests[row, self._lanes]
        everywhere = np.ones(len(self._lanes), np.bool_)
        return Event(tick, place, everywhere, self._episodes, self._begun, step.frame, same, step, actions)

    def _failed(self, tick: int, error: Exception) -> ReplayDiffers:
        text = f"{type(error).__name__}: {error}{registry.where_raised(error)}"
        return ReplayDiffers(Difference(self._manifest.match, tick, error=text))


def made(
    manifest: Manifest, kwargs: Mapping[str, Any], *, lanes: int, contexts: Sequence[EnvContext] | None = None
) -> BatchedEnv:
    """Makes the game of a match."""
    registry.import_plugins(manifest.imports)
    try:
        return registry.adapt_environment(
            manifest.make, kwargs, lanes, manifest.wrappers, contexts, screen=manifest.screen
        )
    except Exception as error:
        text = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"match {manifest.match}: the game {manifest.make!r} cannot be made with {dict(kwargs)}: {text}"
            f"{registry.where_raised(error)}"
        ) from error
