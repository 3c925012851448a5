"""A block of lanes of one match, which step together: all lanes, or one half of them with `pipeline: 2`.

A block opens the links to its seats and welcomes their workers. It sends the first observations, then repeats: receive
an action from every seat, step the game, send each seat the rows of its entities. It ends with the leg's last tick, or
when all workers have left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.diagnostics.profile import Activity, Stopwatch
from arena.errors import ConfigError, GameError, WriteError
from arena.external.connection import Connection
from arena.game.api import Frame, Step
from arena.game.context import EnvContext
from arena.game.lockstep import Joint, Lockstep
from arena.game.spaces import are_allowed
from arena.plan.plan import MatchPlan, Role, RoleKind
from arena.plan.seats import check_seats
from arena.plan.seeding import reseed
from arena.preflight.examine import adapted_game, check_idle_action, check_record, constructor_errors_reported
from arena.preflight.outcomes import outcome_rule
from arena.records.metrics import EpisodeRecord
from arena.roles.environment.episodes import EpisodeTracker, GameTracker, Tracked
from arena.roles.environment.hosted_games import HostedGames
from arena.roles.environment.recording import open_recording
from arena.roles.environment.restart import Fault, RestartingGame, RestartLimit
from arena.roles.protocol import BudgetExhausted, Restarted
from arena.roles.run import Run
from arena.seat.layout import SeatDescription, link_size
from arena.seat.server import Infos, SeatServer, step_writer
from arena.transport import Endpoint, Tag
from arena.transport.pickling import pack, unpack

_log = logging.getLogger(__name__)


class LaneBlock:
    """One game object and the lanes that it plays: the block number `part` of the `parts` blocks of a match.

    Args:
        lanes: by their numbers in the match; a lane plays the same in any block.
        limit: of restarts of the match's games; None: a game that fails ends the run.
        connection: to the match's games, if they are external.

    Attributes:
        finished: records of the episodes that have ended; the environment reports and removes them.
        ends_early: whether ticks of external games are formed at once, because the leg is to end.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run: Run,
        match: MatchPlan,
        lanes: range,
        part: int,
        parts: int,
        stopwatch: Stopwatch,
        limit: RestartLimit | None = None,
        connection: Connection | None = None,
    ) -> None:
        self._endpoint, self._run, self._match, self._stopwatch = endpoint, run, match, stopwatch
        self._lanes = lanes
        self._all_lanes = np.ones(len(lanes), np.bool_)
        self._lockstep = Lockstep(len(match.seats), run.plan.ticks, run.leg.start)
        self.finished: list[EpisodeRecord] = []
        self.ends_early = False
        self._game: RestartingGame | HostedGames
        if connection is not None:
            exhausted = partial(self._send_to_root, BudgetExhausted)
            self._game = HostedGames(
                connection, endpoint, limit, lambda: self.ends_early, self._report_fault, exhausted
            )
        else:
            seeds = [run.environment_seed(match, lane) for lane in lanes]
            # Before the first tick, a constructor that fails is a mistake of the configuration.
            with constructor_errors_reported(match) if run.leg.start == 0 else nullcontext():
                contexts = [
                    EnvContext(match.match, match.entry, match.copy, lane, match.lanes, seed, run.plan.round)
                    for lane, seed in zip(lanes, seeds, strict=True)
                ]
                self._game = RestartingGame(
                    lambda: adapted_game(match, len(lanes), contexts), lanes=lanes, seeds=seeds, limit=limit
                )
        with ExitStack() as made:
            made.callback(self._game.close_quietly)
            game = self._game.interface
            self._seat_entities = check_seats(match, game)
            check_idle_action(match, game)
            check_record(run.plan.config.record, match, game)
            self._open_seats(part, parts)
            before = [run.leg.episodes.get((match.match, lane), 0) for lane in lanes]
            spaces = () if run.episodes is None else game.observation_spaces
            self.rule = outcome_rule(match, game)
            tracked = Tracked(match, self._seat_entities, lanes, before, run.plan.round, self.rule, spaces)
            self._tracker: EpisodeTracker | GameTracker = (
                GameTracker(self._game, tracked) if isinstance(self._game, HostedGames) else EpisodeTracker(tracked)
            )
            self._recording = open_recording(run, match, game, self._tracker, lanes, self._seat_entities)
            made.pop_all()

    def _open_seats(self, part: int, parts: int) -> None:
        """Opens the links to the workers of all seats, and describes their seats to them."""
        game, match = self._game.interface, self._match
        descriptions = [
            SeatDescription(
                lanes=len(self._lanes),
                interface=game.part(entities),
                alone=len(match.seats) == 1,
                part=part,
                parts=parts,
                external=isinstance(self._game, HostedGames),
                seat=seat,
            )
            for seat, entities in enumerate(self._seat_entities)
        ]
        layouts = [description.layout() for description in descriptions]
        peers = [self._run.address(Role(RoleKind.WORKER, match.match, seat)) for seat in range(len(match.seats))]
        links = self._endpoint.open_links(peers, [link_size(layout) for layout in layouts], part)
        for peer, description in zip(peers, descriptions, strict=True):
            self._endpoint.send(peer, Tag.WELCOME, pack(description))
        self._seats = [
            SeatServer(*of) for of in zip(self._seat_entities, descriptions, layouts, links.links, strict=True)
        ]
        self._write_step = step_writer(self._seats, layouts, links.outboxes)
        self._all_actions = self._joint_actions(frozenset())  # views of the received requests
        self._ragged = any(server.ragged for server in self._seats)  # then joint actions are built on each tick

    def _send_to_root(self, kind: Callable[..., object], *fields: object) -> None:
        """Sends a message about the match at its tick."""
        self._endpoint.send(0, Tag.TO_ROOT, pack(kind(self._match.match, self._lockstep.tick, *fields)))

    @property
    def tick(self) -> int:
        """Ticks played by these lanes."""
        return self._lockstep.tick

    @property
    def episodes(self) -> list[int]:
        """Per lane, the number of recorded episodes."""
        counts: list[int] = self._tracker.episodes.tolist()
        return counts

    @property
    def logged(self) -> list[int]:
        """Per seat, the last update that its worker had sent when it requested the last tick, or left."""
        return [server.request.logged for server in self._seats]

    @property
    def over(self) -> bool:
        """Whether the leg's ticks are played, or all workers have left."""
        return self._lockstep.over

    @property
    def left(self) -> bool:
        """Whether all workers have left before the leg's last tick."""
        return self.over and self.tick < self._lockstep.budget

    def play_until(self, tick: int) -> None:
        """Sets the last tick of the leg."""
        self._lockstep.budget = tick

    def begin(self) -> None:
        """Begins an episode in every lane and sends the first observations."""
        self._restart(self._all_lanes, self._game.begin())
        if isinstance(self._game, HostedGames):  # games may have ended since the last leg
            self.finished += self._tracker.finish(self._game.tick.over, self.tick)

    def move(self) -> None:
        """Waits for the requests of all seats, then plays one tick or does the reset that they have agreed on."""
        self._stopwatch.switch(Activity.WAITING_FOR_ACTIONS)
        for seat in self._lockstep.missing():
            server = self._seats[seat]
            server.link.wait()
            if server.ragged:
                server.read_actions()
            self._lockstep.put(seat, server.request.kind)
        self._stopwatch.switch(Activity.COMMUNICATION)
        if self._lockstep.over:  # the last worker has left
            return
        joint = self._lockstep.joint()
        try:
            if joint.reset is None:
                self._tick(joint)
                return
            lanes, seeds, options = unpack(self._seats[joint.reset].link.wait_extra())
            self._tracker.restart(np.flatnonzero(lanes))
            frame = self._game.reset(lanes, seeds, options)
            if frame is None:  # all episodes are dropped: the reply to a reset cannot end an episode
                lanes = self._all_lanes
                frame = self._replace_game(lanes, seeds, options)
            self._restart(lanes, frame)
        except GameError as error:
            error.tick = self.tick
            raise

    def close(self) -> None:
        """Ends the recording, the game and the links; raises WriteError if the recording cannot be written."""
        if self._recording is not None:
            self._recording.close()
        self._game.close()
        for server in self._seats:
            server.link.close()

    def abandon(self) -> None:
        """Ends game and recording of a run that has failed; further errors are only logged."""
        self._game.close_quietly()
        if self._recording is not None:
            try:
                self._recording.flush()
            except WriteError as error:
                _log.error("%s", error)

    def _tick(self, joint: Joint) -> None:
        for seat in joint.idle:
            self._tracker.add_idle(seat, self._seats[seat].reply.active)
        actions = self._joint_actions(joint.idle) if joint.idle or self._ragged else self._all_actions
        if self._run.tried:
            self._refuse_forbidden(actions, joint.idle)
        self._stopwatch.switch(Activity.ENVIRONMENT)
        played = self._game.step(actions)
        self._stopwatch.switch(Activity.COMMUNICATION)
        if played is not None:
            step = played
        else:  # the game has failed: the last observations, no rewards, no active entities
            no = np.zeros((len(self._lanes), len(self._all_actions)), np.bool_)
            observations: list[Any] = [None] * len(self._all_actions)
            for server in self._seats:
                for entity, observation in zip(server.entities, server.shown(), strict=True):
                    observations[entity] = observation
            step = Step(Frame(observations, no, (None,) * len(observations)), np.zeros(no.shape), no, no)
        if played is None or self._lockstep.over:
            step = self._tracker.cut(step)
        over, ends = self._tracker.tick(step)
        if self._recording is not None:
            idle = [entity for seat in joint.idle for entity in self._seat_entities[seat]]
            self._recording.add(self._lockstep.tick, actions, step, played, idle)
        # Also for seats whose worker has left: the masks of the reply decide their idle actions.
        self._write_step(step, ends)
        step_infos, begin_infos = step.frame.infos, None
        if ends and over.any():
            over, begin_infos = (
                self._next_episodes(over, step.frame) if played is not None else self._begin_new_game(over)
            )
            if self._run.episodes is not None and self._tracker.episodes.min() >= self._run.episodes:
                self._lockstep.end()
        tick, last, no_infos = self._lockstep.tick, self._lockstep.over, step_infos is None and begin_infos is None
        for seat in joint.listeners:
            server = self._seats[seat]
            server.post(tick, last=last, infos=None if no_infos else server.pack_infos(step_infos, begin_infos, over))

    def _refuse_forbidden(self, actions: Sequence[Any], idle: Collection[int]) -> None:
        """Raises ConfigError for an action that the mask of its entity forbids; `idle` seats chose none."""
        game = self._game.interface
        for seat, server in zip(self._match.seats, self._seats, strict=True):
            for position, entity in enumerate(server.entities if seat.index not in idle else ()):
                if (masks := server.reply.masks_by_entity[position]) is None:
                    continue
                lanes, chosen = np.flatnonzero(server.reply.active[:, position]), actions[entity]
                for lane in lanes[~are_allowed(game.action_spaces[entity], masks[lanes], chosen[lanes])].tolist():
                    text = f"chose {chosen[lane]} for {game.entities[entity]!r} on tick {self._lockstep.tick}, which "
                    text += f"the action mask {masks[lane]} of {self._match.env!r} forbids (a run gives it to the game)"
                    raise ConfigError(f"{text}: choose where the mask is 1", path=f"policies.{seat.policy}")

    def _next_episodes(self, over: NDArray[np.bool_], last: Frame) -> tuple[NDArray[np.bool_], Infos | None]:
        """Begins an episode in the lanes that are over [L]; returns where one begins, and the infos of resets."""
        finished, most = self._tracker.finish(over, self._lockstep.tick), self._run.episodes
        # Lanes that have finished early continue, but their further episodes are not counted: short ones would prevail.
        self.finished += finished if most is None else [record for record in finished if record.episode < most]
        self._stopwatch.switch(Activity.ENVIRONMENT)
        seeds: list[int | None] | None = None
        if self._run.seeded:
            places = zip(self._lanes, self._tracker.episodes.tolist(), strict=True)
            seeds = [reseed(self._run.environment_seed(self._match, lane), restarts=number) for lane, number in places]
        frame = self._game.reset(over, seeds)
        self._stopwatch.switch(Activity.COMMUNICATION)
        if frame is None:
            playing = self._tracker.playing & ~over[:, None]
            for server in self._seats:
                server.write_cut(last, playing)
            if self._recording is not None:
                self._recording.truncate(playing)
            return self._begin_new_game(~over)
        self._begin_episodes(frame, over)
        return over, frame.infos

    def _begin_episodes(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Writes and records the first observations of the lanes [L] in which an episode begins."""
        self._tracker.begin(frame, lanes)
        for server in self._seats:
            server.write_begin(frame, lanes)
        if self._recording is not None:
            self._recording.begin(frame, lanes, self._game.last_reset)

    def _begin_new_game(self, dropped: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Infos | None]:
        """As `_next_episodes`, with a new game: episodes begin in all lanes; the old ones of `dropped` [L] are lost."""
        frame = self._replace_game(dropped)
        self._begin_episodes(frame, self._all_lanes)
        return self._all_lanes, frame.infos

    def _replace_game(
        self, dropped: NDArray[np.bool_], seeds: Sequence[int | None] | None = None, options: Any = None
    ) -> Frame:
        """Replaces the game that has failed, reports it to the root, and returns the first frame of the new game."""
        assert isinstance(self._game, RestartingGame), "external games are replaced by `HostedGames`"
        fault = self._game.fault
        assert fault is not None, "set by the failure"
        self._stopwatch.switch(Activity.ENVIRONMENT)
        frame = self._game.new_game(seeds, options)
        self._stopwatch.switch(Activity.COMMUNICATION)
        self._tracker.restart(np.flatnonzero(dropped))
        self._report_fault(fault, dropped)
        return frame

    def _report_fault(self, fault: Fault, dropped: NDArray[np.bool_]) -> None:
        """Reports to the root a failed game that was replaced; the episodes of the lanes `dropped` [L] are lost."""
        lanes = tuple(self._lanes[lane] for lane in np.flatnonzero(dropped).tolist())
        self._send_to_root(Restarted, lanes, fault.error, fault.trace, time.monotonic() - fault.time)

    def _joint_actions(self, idle: frozenset[int]) -> tuple[Any, ...]:
        actions: list[Any] = [None] * len(self._game.interface.entities)
        for seat, server in enumerate(self._seats):
            chosen = server.idle_actions(self._match.game.idle_action) if seat in idle else server.request.by_entity
            for entity, action in zip(server.entities, chosen, strict=True):
                actions[entity] = action
        return tuple(actions)

    def _restart(self, lanes: NDArray[np.bool_], frame: Frame) -> None:
        for server in self._seats:
            server.write_nothing_played()
        self._begin_episodes(frame, lanes)
        for server in self._seats:
            infos = server.pack_infos(None, frame.infos, lanes)
            server.post(self._lockstep.tick, last=False, infos=infos)
