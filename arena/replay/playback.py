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
from gymnasium.spaces import Space
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
    """Where a playback differs from its recording.

    Args:
        match: number of the match.
        tick: of the match; if the first observation of an episode differs, the tick before the episode.
        lane: number of the lane; None: the game failed in all lanes.
        episode: of the lane.
        played: ticks of the episode, this one included; 0: the first observation differs.
        error: the exception of the game.
    """

    match: int
    tick: int
    lane: int | None = None
    episode: int | None = None
    played: int = 0
    error: str = ""

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
    """Plays some lanes of a recording again.

    Args:
        manifest: of the match.
        recording: a leg of some lanes.
        lanes: indices of the lanes to play; a lane does not depend on the other lanes.
        render_mode: passed to the game; None: as recorded.

    Attributes:
        game: the current one; replaced where the game was made again in the recording.

    Raises:
        ConfigError: the game cannot be made, or its entities or actions have changed.
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
        self._digests = Digests(self.game.interface, len(self._lanes), actions=manifest.layouts())
        self._episodes = np.zeros(len(self._lanes), np.int64)
        self._begun = np.zeros(len(self._lanes), np.int64)

    def __enter__(self) -> Playback:
        return self

    def __exit__(self, *_: object) -> None:
        self.game.close()

    def events(self, *, since: int = 0) -> Iterator[Event]:
        """All events from a game's beginning to the end of the recording; may be called once.

        Args:
            since: the index in the recording's `begins` of a begin for which the game was made.

        Raises:
            ReplayDiffers: the game fails where it did not fail before.
            ConfigError: it was reset with options that were not recorded.
        """
        recording, begins = self._recording, self._recording.begins
        first = begins[since].tick
        for tick in range(first, recording.start + recording.ticks + 1):
            if (
                tick > first and tick not in recording.failed
            ):  # a failure at the first tick belongs to the previous game
                yield self._step(tick, since - 1)
            while since < len(begins) and begins[since].tick == tick:
                event = self._begin(begins[since], since)
                if event is not None:
                    yield event
                since += 1

    def _made(self) -> BatchedEnv:
        game = made(self._manifest, self._kwargs, lanes=len(self._lanes), contexts=self._contexts())
        recorded = [(entity.name, entity.action_space) for entity in self._manifest.entities]
        found = list(zip(game.interface.entities, game.interface.action_spaces, strict=True))
        if found != recorded:
            game.close()
            raise ConfigError(
                f"match {self._manifest.match}: the entities or actions of the game {self._manifest.make!r} have "
                f"changed: now {_words(found)}; recorded {_words(recorded)}"
            )
        return game

    def _contexts(self) -> list[EnvContext]:
        """The places of the lanes in the run; the first begin of a leg has the seeds of all lanes."""
        manifest, lanes = self._manifest, self._recording.lanes
        seeds = next((begin.seeds for begin in self._recording.begins if begin.anew and begin.seeds), None) or [
            0
        ] * len(lanes)
        return [
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

    def _begin(self, begin: Begin, place: int) -> Event | None:
        """Begins episodes; None if none of the playback's lanes begins one."""
        places = {position: place for place, position in enumerate(begin.lanes)}
        asked = [places.get(position) for position in self._lanes]
        lanes = np.array([place is not None for place in asked])
        if not lanes.any():
            return None
        if begin.lost:
            raise ConfigError(
                f"match {self._manifest.match}: the reset after tick {begin.tick} had options that could not be "
                f"recorded, so it cannot be played again: {begin.lost}"
            )
        frame = self._reset(begin, lanes, [None if at is None or not begin.seeds else begin.seeds[at] for at in asked])
        digests = self._digests.begin(frame, lanes)
        self._begun[lanes] = begin.tick
        for lane, at in enumerate(asked):
            self._episodes[lane] = self._episodes[lane] if at is None else begin.episodes[at]
        recorded = np.array([0 if at is None else begin.digests[at] for at in asked], np.uint16)
        return Event(begin.tick, place, lanes, self._episodes, self._begun, frame, digests == recorded)

    def _reset(self, begin: Begin, lanes: Flags, seeds: list[int | None]) -> Frame:
        if begin.anew and not self._untouched:
            self.game.close()
            self.game = self._made()
        self._untouched = False
        try:
            return self.game.reset(lanes, None if begin.seeds is None else seeds, begin.options)
        except Exception as error:
            raise self._failed(begin.tick, error) from error

    def _step(self, tick: int, place: int) -> Event:
        row = tick - self._recording.start - 1
        done = [[self._row(leaf, row) for leaf in leaves] for leaves in self._recording.actions]
        actions = [self._action(entity, leaves) for entity, leaves in enumerate(done)]
        try:
            step = self.game.step(actions)
        except Exception as error:
            raise self._failed(tick, error) from error
        digests = self._digests.add([leaf for leaves in done for leaf in leaves], step)
        same = digests == self._recording.digests[row, self._lanes]
        everywhere = np.ones(len(self._lanes), np.bool_)
        return Event(tick, place, everywhere, self._episodes, self._begun, step.frame, same, step, actions)

    def _row(self, leaf: Any, row: int) -> Any:
        """A tick of a recorded leaf, in the playback's lanes."""
        if isinstance(leaf, Ragged):
            return leaf[row * len(self._recording.lanes) + np.array(self._lanes)]
        return leaf[row, self._lanes]

    def _action(self, entity: int, leaves: Sequence[Any]) -> Any:
        space: Space[Any] = self._manifest.entities[entity].action_space
        columns = self._columns[entity]
        return unflatten(space, [column.unpacked(leaf) for column, leaf in zip(columns, leaves, strict=True)])

    def _failed(self, tick: int, error: Exception) -> ReplayDiffers:
        words = f"{type(error).__name__}: {error}{registry.where_raised(error)}"
        return ReplayDiffers(Difference(self._manifest.match, tick, error=words))


def made(
    manifest: Manifest, kwargs: Mapping[str, Any], *, lanes: int, contexts: Sequence[EnvContext] | None = None
) -> BatchedEnv:
    """Makes the game of a match.

    Raises:
        ConfigError: its constructor has raised an exception, which is the cause.
    """
    registry.import_plugins(manifest.imports)
    try:
        return registry.adapt_environment(
            manifest.make, kwargs, lanes, manifest.wrappers, contexts, screen=manifest.screen
        )
    except Exception as error:
        words = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"match {manifest.match}: the game {manifest.make!r} cannot be made with {dict(kwargs)}: {words}"
            f"{registry.where_raised(error)}"
        ) from error


def _words(entities: Sequence[tuple[str, Space[Any]]]) -> str:
    return ", ".join(f"{name} {space}" for name, space in entities)
