"""Records what a block of lanes plays: as samples for offline learning, or as replays (the `record` key)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.game.spaces import copy_rows, is_ragged
from arena.plan.plan import MatchPlan, SeatPlan
from arena.roles.environment.episodes import EpisodeTracker
from arena.roles.environment.game_tracker import GameTracker
from arena.roles.environment.restart import Reset
from arena.roles.run import Run

if TYPE_CHECKING:
    from arena.dataset.writer import SampleWriter
    from arena.replay.writer import ReplayWriter

Lanes = NDArray[np.bool_]


class Recording(Protocol):
    """Where a block of lanes records."""

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        """Records the first observations of the lanes [L] that begin an episode, and how they were reset."""

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        """Records a tick, before the next episodes begin.

        Args:
            tick: the tick.
            actions: per entity.
            step: the result as the workers receive it; the end of a leg truncates.
            played: the result of the game; None: the game has failed.
            idle: the entities that got the idle action.
        """

    def truncate(self, playing: NDArray[np.bool_]) -> None:
        """Marks the last tick of these lanes and entities [L, E] as truncated."""

    def flush(self) -> None:
        """Writes what is recorded.

        Raises:
            WriteError: the files cannot be written.
        """

    def close(self) -> None:
        """Writes what is recorded at the end of a leg.

        Raises:
            WriteError: the files cannot be written.
        """


def open_recording(
    run: Run,
    match: MatchPlan,
    interface: Interface,
    tracker: EpisodeTracker | GameTracker,
    *,
    lanes: range,
    seat_entities: Sequence[tuple[int, ...]],
) -> Recording | None:
    """The recording that the configuration asks for, None if it asks for none.

    Args:
        run: the run.
        match: the match.
        interface: the interface of its game.
        tracker: the tracker of the lanes' episodes.
        lanes: the lanes, by their numbers in the match.
        seat_entities: per seat, the indices of its entities in the game.
    """
    seats = {entity: seat for seat, entities in zip(match.seats, seat_entities, strict=True) for entity in entities}
    if run.plan.config.record == "samples" and run.episodes is None:
        writer = _sample_writer(run, match, interface, seats, lanes, external=isinstance(tracker, GameTracker))
        return _Samples(writer, tracker, interface.action_spaces)
    if run.plan.config.record == "replays":
        return _Replays(_replay_writer(run, match, interface, seats, lanes), tracker)
    return None


def _sample_writer(
    run: Run, match: MatchPlan, interface: Interface, seats: dict[int, SeatPlan], lanes: range, *, external: bool
) -> SampleWriter:
    # Imported here: runs that record nothing do not need it.
    from arena.dataset.format import EntitySamples, Manifest
    from arena.dataset.writer import SampleWriter

    entities = tuple(
        EntitySamples(
            name,
            seats[e].policy,
            seats[e].index,
            interface.observation_spaces[e],
            interface.action_spaces[e],
            interface.mask_sizes[e],
        )
        for e, name in enumerate(interface.entities)
    )
    of_round = run.plan.round if run.plan.config.rounds > 1 else None
    manifest = Manifest(match.match, match.env, entities, round=of_round, external=external)
    return SampleWriter(run.folder.samples, manifest, lanes)


def _replay_writer(
    run: Run, match: MatchPlan, interface: Interface, seats: dict[int, SeatPlan], lanes: range
) -> ReplayWriter:
    from arena.replay.format import VERSION, EntityReplays, Manifest
    from arena.replay.writer import ReplayWriter

    entities = tuple(
        EntityReplays(name, seats[e].policy, seats[e].index, interface.action_spaces[e])
        for e, name in enumerate(interface.entities)
    )
    ragged = any(map(is_ragged, (*interface.observation_spaces, *interface.action_spaces)))
    manifest = Manifest(
        run.plan.round,
        match.match,
        match.env,
        match.game.make,
        match.game.kwargs,
        match.game.wrapped_in,
        entities,
        version=VERSION if ragged else 1,
        entry=match.entry,
        copy=match.copy,
        lanes=match.lanes,
        imports=run.plan.config.imports,
        screen=match.game.screen,
    )
    return ReplayWriter(run.folder.replays, manifest, interface, lanes=lanes, start=run.leg.start)


class _Samples:
    """Observations, actions, rewards and ends of every tick."""

    def __init__(
        self, writer: SampleWriter, tracker: EpisodeTracker | GameTracker, spaces: Sequence[Space[Any]]
    ) -> None:
        self._writer, self._spaces = writer, spaces
        self._tracker = tracker
        self.truncate = writer.truncate
        self.flush = self.close = writer.flush
        self._given: list[tuple[Lanes, Any] | None] | None = None  # by entity: lanes where the game acts, and actions

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        self._writer.begin(frame, lanes)
        if self._given is None:  # the first frame of a leg; later frames come with steps
            self._see_given(frame)

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        episodes, cut = self._tracker.episodes, self._tracker.cut_now
        taken = list(actions)
        for entity, given in enumerate(self._given or ()):
            if given is not None:
                taken[entity] = copy.deepcopy(actions[entity])
                copy_rows(self._spaces[entity], given[1], taken[entity], given[0])
        self._writer.add(tick, taken, step, idle=idle, episodes=episodes, cut=cut)
        self._see_given(step.frame)

    def _see_given(self, frame: Frame) -> None:
        """Keeps the actions that external games have taken by themselves: the next requests overwrite them."""
        outside = frame.outside
        if outside is None:
            return
        self._given = [
            (outside.given[:, entity].copy(), copy.deepcopy(actions)) if outside.given[:, entity].any() else None
            for entity, actions in enumerate(outside.given_actions)
        ]


class _Replays:
    """Seeds and actions, from which the match can be played again."""

    def __init__(self, writer: ReplayWriter, tracker: EpisodeTracker | GameTracker) -> None:
        self._writer = writer
        self._tracker = tracker
        self.flush, self.close = writer.flush, writer.close

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        self._writer.begin(
            frame,
            lanes,
            episodes=self._tracker.episodes,
            seeds=reset.seeds,
            options=reset.options,
            anew=reset.new_game,
        )

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        self._writer.add(actions, played)

    def truncate(self, playing: NDArray[np.bool_]) -> None:
        pass  # a replay finds the ends of episodes by playing
