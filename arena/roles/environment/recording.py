"""Records what a block of lanes plays: as samples for offline learning, or as replays (the `record` key)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.plan.plan import MatchPlan, SeatPlan
from arena.roles.environment.episodes import EpisodeTracker
from arena.roles.environment.game_tracker import GameTracker
from arena.roles.environment.restart import Reset
from arena.run.run import Run

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
    if run.plan.record == "samples" and run.episodes is None:
        return _Samples(_sample_writer(run, match, interface, seats, lanes), tracker)
    if run.plan.record == "replays":
        return _Replays(_replay_writer(run, match, interface, seats, lanes), tracker)
    return None


def _sample_writer(
    run: Run, match: MatchPlan, interface: Interface, seats: dict[int, SeatPlan], lanes: range
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
    manifest = Manifest(match.match, match.env, entities, round=run.plan.round if run.plan.rounds > 1 else None)
    return SampleWriter(run.folder.samples, manifest, lanes)


def _replay_writer(
    run: Run, match: MatchPlan, interface: Interface, seats: dict[int, SeatPlan], lanes: range
) -> ReplayWriter:
    from arena.replay.format import EntityReplays, Manifest
    from arena.replay.writer import ReplayWriter

    entities = tuple(
        EntityReplays(name, seats[e].policy, seats[e].index, interface.action_spaces[e])
        for e, name in enumerate(interface.entities)
    )
    manifest = Manifest(run.plan.round, match.match, match.env, match.make, match.env_kwargs, match.wrappers, entities)
    return ReplayWriter(run.folder.replays, manifest, interface, lanes=lanes, start=run.leg.start)


class _Samples:
    """Observations, actions, rewards and ends of every tick."""

    def __init__(self, writer: SampleWriter, tracker: EpisodeTracker | GameTracker) -> None:
        self._writer = writer
        self._tracker = tracker
        self.truncate = writer.truncate
        self.flush = self.close = writer.flush

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        self._writer.begin(frame, lanes)

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        episodes, cut = self._tracker.episodes, self._tracker.cut_now
        self._writer.add(tick, actions, step, idle=idle, episodes=episodes, cut=cut)


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
