"""Records what a block of lanes plays: as samples for offline learning, or as replays (the `record` key)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.game.spaces import copy_rows, is_ragged
from arena.plan.plan import MatchPlan, SeatPlan
from arena.roles.environment.episodes import EpisodeTracker, GameTracker
from arena.roles.environment.restart import Reset
from arena.roles.run import Run

Lanes = NDArray[np.bool_]
Tracker: TypeAlias = EpisodeTracker | GameTracker


class SampleRecording:
    """Observations, actions, rewards and ends of every tick; `seats` by entity of the game."""

    def __init__(
        self,
        run: Run,
        match: MatchPlan,
        interface: Interface,
        tracker: Tracker,
        lanes: range,
        seats: Mapping[int, SeatPlan],
    ) -> None:
        from arena.dataset.format import EntitySamples, Manifest  # not needed by runs that record nothing
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
        of_round, external = run.plan.round if run.plan.config.rounds > 1 else None, isinstance(tracker, GameTracker)
        manifest = Manifest(match.match, match.env, entities, round=of_round, external=external)
        self._writer = SampleWriter(run.folder.samples, manifest, lanes)
        self._tracker, self._spaces = tracker, interface.action_spaces
        self.truncate = self._writer.truncate
        self.flush = self.close = self._writer.flush
        self._given: list[tuple[Lanes, Any] | None] | None = None  # by entity: lanes where the game acts, and actions

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        """Records the first observations of the lanes [L] that begin an episode, and how they were reset."""
        self._writer.begin(frame, lanes)
        if self._given is None:  # the first frame of a leg; later frames come with steps
            self._keep_given(frame)

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        """Records a tick, before the next episodes begin.

        Args:
            tick: of the match.
            actions: per entity.
            step: the result as the workers receive it; the end of a leg truncates.
            played: the result of the game; None: the game has failed.
            idle: the entities that got the idle action.
        """
        taken = list(actions)
        for entity, given in enumerate(self._given or ()):
            if given is not None:
                taken[entity] = copy.deepcopy(actions[entity])
                copy_rows(self._spaces[entity], given[1], taken[entity], given[0])
        tracker = self._tracker
        self._writer.add(tick, taken, step, idle=idle, episodes=tracker.episodes, cut=tracker.cut_now)
        self._keep_given(step.frame)

    def _keep_given(self, frame: Frame) -> None:
        """Keeps the actions that external games have taken by themselves: the next requests overwrite them."""
        external = frame.external
        if external is not None:
            self._given = [
                (external.given[:, entity].copy(), copy.deepcopy(actions)) if external.given[:, entity].any() else None
                for entity, actions in enumerate(external.given_actions)
            ]


class ReplayRecording:
    """Seeds and actions, from which the match can be played again; arguments and methods as of `SampleRecording`."""

    def __init__(
        self,
        run: Run,
        match: MatchPlan,
        interface: Interface,
        tracker: Tracker,
        lanes: range,
        seats: Mapping[int, SeatPlan],
    ) -> None:
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
        self._writer = ReplayWriter(run.folder.replays, manifest, interface, lanes=lanes, start=run.leg.start)
        self._tracker = tracker
        self.flush, self.close = self._writer.flush, self._writer.close

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        self._writer.begin(
            frame,
            lanes,
            episodes=self._tracker.episodes,
            seeds=reset.seeds,
            options=reset.options,
            new_game=reset.new_game,
        )

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        self._writer.add(actions, played)

    def truncate(self, playing: NDArray[np.bool_]) -> None:
        """Nothing: a replay finds the ends of episodes by playing."""


def open_recording(
    run: Run,
    match: MatchPlan,
    interface: Interface,
    tracker: Tracker,
    *,
    lanes: range,
    seat_entities: Sequence[tuple[int, ...]],
) -> SampleRecording | ReplayRecording | None:
    """The recording that the configuration asks for, None if it asks for none."""
    seats = {entity: seat for seat, entities in zip(match.seats, seat_entities, strict=True) for entity in entities}
    record = run.plan.config.record
    if record == "samples" and run.episodes is None:
        return SampleRecording(run, match, interface, tracker, lanes, seats)
    return ReplayRecording(run, match, interface, tracker, lanes, seats) if record == "replays" else None
