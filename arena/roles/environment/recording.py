"""Records what a block of lanes plays: as samples for offline learning, or as replays (the `record` key)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.game.spaces import copy_rows, is_ragged
from arena.plan.plan import MatchPlan, SeatPlan
from arena.roles.environment.episodes import EpisodeTracker, GameTracker
from arena.roles.environment.restart import Reset
from arena.roles.run import Run

Lanes = NDArray[np.bool_]


class Recorded(NamedTuple):
    """What a recording is of: a block of lanes of a match."""

    run: Run
    match: MatchPlan
    interface: Interface
    tracker: EpisodeTracker | GameTracker
    lanes: range
    seats: Mapping[int, SeatPlan]  # by entity of the game


class SampleRecording:
    """Observations, actions, rewards and ends of every tick."""

    def __init__(self, recorded: Recorded) -> None:
        from arena.dataset.format import EntitySamples, Manifest  # not needed by runs that record nothing
        from arena.dataset.writer import SampleWriter

        run, match, interface, tracker, lanes, seats = recorded
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
        of_round = run.plan.round if run.plan.config.round_count > 1 else None
        external = isinstance(tracker, GameTracker)
        manifest = Manifest(match.match, match.env, entities, round=of_round, external=external)
        self._writer = SampleWriter(run.folder.samples, manifest, lanes)
        self._tracker, self._spaces = tracker, interface.action_spaces
        self.truncate = self._writer.truncate
        self.flush = self.close = self._writer.flush
        #: By entity the lanes where the game has acted by itself, and its actions.
        self._game_actions: list[tuple[Lanes, Any] | None] | None = None

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        """Records the first observations of the lanes [L] that begin an episode, and how they were reset."""
        self._writer.begin(frame, lanes)
        if self._game_actions is None:  # the first frame of a leg; later frames come with steps
            self._keep_game_actions(frame)

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        """Records a tick, before the next episodes begin.

        `step` is the result as the workers receive it, which the end of a leg truncates; `played` that of the game,
        None if the game has failed. `idle` are the entities that got the idle action.
        """
        taken = list(actions)
        for entity, of_game in enumerate(self._game_actions or ()):
            if of_game is not None:
                taken[entity] = copy.deepcopy(actions[entity])
                copy_rows(self._spaces[entity], of_game[1], taken[entity], of_game[0])
        tracker = self._tracker
        self._writer.add(tick, taken, step, idle=idle, episodes=tracker.episodes, cut=tracker.cut_now)
        self._keep_game_actions(step.frame)

    def _keep_game_actions(self, frame: Frame) -> None:
        """Keeps the actions that external games have taken by themselves: the next requests overwrite them."""
        external = frame.external
        if external is not None:
            self._game_actions = [
                (external.given[:, entity].copy(), copy.deepcopy(actions)) if external.given[:, entity].any() else None
                for entity, actions in enumerate(external.given_actions)
            ]


class ReplayRecording:
    """Seeds and actions, from which the match can be played again; methods as of `SampleRecording`."""

    def __init__(self, recorded: Recorded) -> None:
        from arena.replay.format import VERSION, EntityReplays, Manifest
        from arena.replay.writer import ReplayWriter

        run, match, interface, tracker, lanes, seats = recorded
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
            dict(match.game.kwargs),
            match.game.wrapped_in,
            entities,
            version=VERSION if ragged else 1,
            entry=match.entry,
            copy=match.copy,
            lanes=match.lanes,
            imports=tuple(run.plan.config.imports),
            screen=match.game.screen,
        )
        self._writer = ReplayWriter(run.folder.replays, manifest, interface, lanes=lanes, start=run.leg.start)
        self._tracker = tracker
        self.flush, self.close = self._writer.flush, self._writer.close

    def begin(self, frame: Frame, lanes: Lanes, reset: Reset) -> None:
        episodes, (seeds, options, new_game) = self._tracker.episodes, reset
        self._writer.begin(frame, lanes, episodes=episodes, seeds=seeds, options=options, new_game=new_game)

    def add(self, tick: int, actions: Sequence[Any], step: Step, played: Step | None, idle: Sequence[int]) -> None:
        self._writer.add(actions, played)

    def truncate(self, playing: NDArray[np.bool_]) -> None:
        """Nothing: a replay finds the ends of episodes by playing."""


def open_recording(
    run: Run,
    match: MatchPlan,
    interface: Interface,
    tracker: EpisodeTracker | GameTracker,
    lanes: range,
    seat_entities: Sequence[tuple[int, ...]],
) -> SampleRecording | ReplayRecording | None:
    """The recording that the configuration asks for, None if it asks for none."""
    seats = {entity: seat for seat, entities in zip(match.seats, seat_entities, strict=True) for entity in entities}
    recorded, record = Recorded(run, match, interface, tracker, lanes, seats), run.plan.config.record
    if record == "samples" and run.episodes is None:
        return SampleRecording(recorded)
    return ReplayRecording(recorded) if record == "replays" else None
