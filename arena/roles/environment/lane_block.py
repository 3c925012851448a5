"""Lanes of one match that step together: all of them, or one half where the match overlaps two (`pipeline: 2`).

made       the game is adapted to `BatchedEnv`; its entities are held against the seats     -> Welcome to workers
begun      the first observations are out
moves      all seats have spoken -> joint step -> each seat gets its own rows, nobody else's
over       the leg's ticks are played (the last replies said so), or every worker has left
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arena.diagnostics.profile import Activity, Stopwatch
from arena.errors import GameError, WriteError
from arena.game.api import Frame, Step
from arena.game.lockstep import Joint, Lockstep
from arena.plan.plan import MatchPlan, Role, RoleKind, SeatPlan
from arena.plan.seats import check_seats
from arena.preflight.examine import adapted_game, check_idle_action, constructor_errors_told
from arena.records.metrics import EpisodeRecord
from arena.roles.environment.episodes import EpisodeTracker
from arena.roles.environment.restart import RestartingGame, RestartLimit
from arena.roles.protocol import Restarted
from arena.run.run import Run
from arena.seat.batch_writer import StepWriter, step_writer
from arena.seat.layout import link_size
from arena.seat.server import Infos, SeatServer
from arena.seat.welcome import Welcome
from arena.transport import Endpoint, Tag
from arena.transport.messages import pack, unpack

if TYPE_CHECKING:
    from arena.dataset.writer import SampleWriter
    from arena.replay.writer import ReplayWriter

_log = logging.getLogger(__name__)


class LaneBlock:
    """One instance of the match's game, with some of the match's lanes.

    Args:
        endpoint: the environment's place in the world.
        run: the run that the match belongs to.
        match: the match.
        lanes: the block's, by their numbers in the match: what a lane plays does not depend on its block.
        part: which of the match's blocks this is.
        parts: how many there are.
        limit: of the restarts of the match's games; None: a game that fails ends the run.
        stopwatch: the environment's.

    Attributes:
        finished: the episodes that have ended; whoever reports them takes them out.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        run: Run,
        match: MatchPlan,
        *,
        lanes: range,
        part: int,
        parts: int,
        limit: RestartLimit | None = None,
        stopwatch: Stopwatch,
    ) -> None:
        self._endpoint = endpoint
        self._run = run
        self._match = match
        self._lanes = lanes
        self._part, self._parts = part, parts
        self._stopwatch = stopwatch
        seeds = [run.environment_seed(match, lane) for lane in lanes]
        # Before anything was played, a game that cannot be made is a mistake of the configuration.
        with constructor_errors_told(match) if run.leg.start == 0 else nullcontext():
            self._game = RestartingGame(lambda: adapted_game(match, len(lanes)), lanes=lanes, seeds=seeds, limit=limit)
        seat_entities = check_seats(match, self._game.interface)
        check_idle_action(match, self._game.interface)
        self._ports, self._write_step = self._lay_table(seat_entities)
        self._all_actions = self._joint_actions(frozenset())  # of the entities, where they are written: views
        before = [run.leg.episodes.get((match.match, lane), 0) for lane in lanes]
        self._account = EpisodeTracker(match, seat_entities, lanes, before, round=run.plan.round)
        self._lockstep = Lockstep(len(self._ports), run.plan.ticks, run.leg.start)
        self._seat_entities = seat_entities
        self._samples = self._sample_writer() if run.plan.record == "samples" and run.episodes is None else None
        self._replays = self._replay_writer() if run.plan.record == "replays" else None
        self.finished: list[EpisodeRecord] = []

    def _lay_table(self, seat_entities: Sequence[tuple[int, ...]]) -> tuple[list[SeatServer], StepWriter]:
        """Links to all seats; then each hears what its seat is like."""
        welcomes = [self._welcome(entities) for entities in seat_entities]
        layouts = [welcome.layout() for welcome in welcomes]
        seats = range(len(self._match.seats))
        peers = [self._run.address(Role(RoleKind.WORKER, self._match.match, seat)) for seat in seats]
        table = self._endpoint.open_links(peers, [link_size(layout) for layout in layouts], self._part)
        for peer, welcome in zip(peers, welcomes, strict=True):
            self._endpoint.send(peer, Tag.WELCOME, pack(welcome))
        ports = [SeatServer(*seat) for seat in zip(seat_entities, welcomes, layouts, table.links, strict=True)]
        return ports, step_writer(ports, layouts, table.outboxes)

    def _sample_writer(self) -> SampleWriter:
        """Where what is played is recorded."""
        from arena.dataset.format import EntitySamples, Manifest  # what nobody records costs no import
        from arena.dataset.writer import SampleWriter

        game, match, seats = self._game.interface, self._match, self._seats_of_entities()
        entities = tuple(
            EntitySamples(
                name,
                seats[e].policy,
                seats[e].index,
                game.observation_spaces[e],
                game.action_spaces[e],
                game.mask_sizes[e],
            )
            for e, name in enumerate(game.entities)
        )
        plan = self._run.plan
        manifest = Manifest(match.match, match.env, entities, round=plan.round if plan.rounds > 1 else None)
        return SampleWriter(self._run.folder.samples, manifest, self._lanes)

    def _replay_writer(self) -> ReplayWriter:
        """Where is kept what it takes to play the match again."""
        from arena.replay.format import EntityReplays, Manifest
        from arena.replay.writer import ReplayWriter

        game, match, seats = self._game.interface, self._match, self._seats_of_entities()
        entities = tuple(
            EntityReplays(name, seats[e].policy, seats[e].index, game.action_spaces[e])
            for e, name in enumerate(game.entities)
        )
        manifest = Manifest(
            self._run.plan.round, match.match, match.env, match.make, match.env_kwargs, match.wrappers, entities
        )
        return ReplayWriter(self._run.folder.replays, manifest, game, lanes=self._lanes, start=self.tick)

    def _seats_of_entities(self) -> dict[int, SeatPlan]:
        seated = zip(self._match.seats, self._seat_entities, strict=True)
        return {entity: seat for seat, entities in seated for entity in entities}

    def _welcome(self, entities: tuple[int, ...]) -> Welcome:
        game = self._game.interface
        return Welcome(
            lanes=len(self._lanes),
            entities=tuple(game.entities[e] for e in entities),
            observation_spaces=tuple(game.observation_spaces[e] for e in entities),
            action_spaces=tuple(game.action_spaces[e] for e in entities),
            mask_sizes=tuple(game.mask_sizes[e] for e in entities),
            alone=len(self._match.seats) == 1,
            part=self._part,
            parts=self._parts,
        )

    @property
    def tick(self) -> int:
        """Ticks that these lanes have played."""
        return self._lockstep.tick

    @property
    def episodes(self) -> list[int]:
        """How many episodes each lane has on record."""
        counts: list[int] = self._account.episodes.tolist()
        return counts

    @property
    def over(self) -> bool:
        """Whether the leg's ticks are played, or nobody is left to play for."""
        return self._lockstep.over

    def go(self, tick: int) -> None:
        """Everybody is ready for the leg, which ends with this tick."""
        self._lockstep.budget = tick

    def play_until(self, tick: int) -> None:
        """Sets another end of the leg."""
        self._lockstep.budget = tick

    def begin(self) -> None:
        """Begins an episode in every lane and shows it to everybody."""
        self._restart(np.ones(len(self._lanes), np.bool_), self._game.begin())

    def move(self) -> None:
        """Waits until all seats have spoken, and does what they have agreed to: one tick, or a reset."""
        self._stopwatch.switch(Activity.WAITING_FOR_ACTIONS)
        for seat in self._lockstep.missing():
            port = self._ports[seat]
            port.link.wait()
            self._lockstep.put(seat, port.request.kind)
        self._stopwatch.switch(Activity.COMMUNICATION)
        if self._lockstep.over:  # the last worker has left
            return
        joint = self._lockstep.joint()
        try:
            if joint.reset is None:
                self._tick(joint)
            else:
                self._reset(joint.reset)
        except GameError as error:
            error.tick = self.tick
            raise

    def close(self) -> None:
        """Ends the game and the links.

        Raises:
            Unwritable: what was played cannot be recorded.
        """
        if self._samples is not None:
            self._samples.flush()
        if self._replays is not None:
            self._replays.close()
        self._game.close()
        for port in self._ports:
            port.link.close()

    def abandon(self) -> None:
        """Ends the game of a run that has failed; that this fails too is no news."""
        self._game.close_quietly()
        for pen in (self._samples, self._replays):
            try:
                if pen is not None:
                    pen.flush()
            except WriteError as error:
                _log.error("%s", error)

    def _tick(self, joint: Joint) -> None:
        for seat in joint.idle:
            self._account.idle(seat, self._ports[seat].reply.active)
        actions = self._joint_actions(joint.idle) if joint.idle else self._all_actions
        self._stopwatch.switch(Activity.ENVIRONMENT)
        played = self._game.step(actions)
        self._stopwatch.switch(Activity.COMMUNICATION)
        step = self._nothing_played() if played is None else played
        if played is None or self._lockstep.over:
            step = self._account.cut(step)
        over, ends = self._account.tick(step)
        if self._samples is not None:
            self._record(self._samples, actions, step, joint.idle)
        if self._replays is not None:
            self._replays.add(actions, played)
        # Everybody's reply is written, also that of a seat that has left: its masks tell what it may do when idle.
        self._write_step(step, ends)
        step_infos, begin_infos = step.frame.infos, None
        if ends and over.any():
            over, begin_infos = self._next_episodes(over, step.frame) if played is not None else self._go_on(over)
            if self._run.episodes is not None and self._account.episodes.min() >= self._run.episodes:
                self._lockstep.end()
        tick, last, silent = self._lockstep.tick, self._lockstep.over, step_infos is None and begin_infos is None
        for seat in joint.listeners:
            port = self._ports[seat]
            port.post(tick, last=last, infos=None if silent else port.pack_infos(step_infos, begin_infos, over))

    def _nothing_played(self) -> Step:
        """A tick in which the game has failed: nobody is paid, and everybody sees what was seen last."""
        nobody = np.zeros((len(self._lanes), len(self._game.interface.entities)), np.bool_)
        seen: list[Any] = [None] * nobody.shape[1]
        for port in self._ports:
            for entity, observed in zip(port.entities, port.reply.by_entity, strict=True):
                seen[entity] = observed
        return Step(Frame(seen, nobody, (None,) * len(seen)), np.zeros(nobody.shape), nobody, nobody)

    def _next_episodes(self, over: NDArray[np.bool_], last: Frame) -> tuple[NDArray[np.bool_], Infos | None]:
        """Begins an episode in the lanes that are over; returns the lanes in which one begins, and what it says.

        `last` is what the step has shown.
        """
        finished, wanted = self._account.finish(over, self._lockstep.tick), self._run.episodes
        # Lanes that are done early play on, but what they play would favor short episodes: it does not count.
        self.finished += finished if wanted is None else [record for record in finished if record.episode < wanted]
        self._stopwatch.switch(Activity.ENVIRONMENT)
        frame = self._game.reset(over)
        self._stopwatch.switch(Activity.COMMUNICATION)
        if frame is None:
            playing = self._account.playing & ~over[:, None]
            for port in self._ports:
                port.write_cut(last, playing)
            if self._samples is not None:
                self._samples.truncate(playing)
            return self._go_on(~over)
        self._show_first(frame, over)
        return over, frame.infos

    def _record(self, samples: SampleWriter, actions: Sequence[Any], step: Step, idle: frozenset[int]) -> None:
        """Records a tick before the next episodes begin."""
        samples.add(
            self._lockstep.tick,
            actions,
            step,
            idle=[entity for seat in idle for entity in self._seat_entities[seat]],
            episodes=self._account.episodes,
            cut=self._account.cut_now,
        )

    def _show_first(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Shows everybody the first observations of the lanes that begin an episode."""
        for port in self._ports:
            port.write_begin(frame, lanes)
        if self._samples is not None:
            self._samples.begin(frame, lanes)
        if self._replays is not None:
            self._replays.begin(frame, lanes, episodes=self._account.episodes, **self._game.opening._asdict())

    def _go_on(self, dropped: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Infos | None]:
        """As `_next_episodes`, in a new game, which begins in all lanes; the episodes of some are dropped for it."""
        frame = self._renewed(dropped)
        lanes = np.ones(len(self._lanes), np.bool_)
        self._show_first(frame, lanes)
        return lanes, frame.infos

    def _renewed(
        self, dropped: NDArray[np.bool_], seeds: Sequence[int | None] | None = None, options: Any = None
    ) -> Frame:
        """The first frame of a new game in the place of one that has failed; the root hears of it."""
        fault = self._game.fault
        assert fault is not None, "a game that has failed says why"
        self._stopwatch.switch(Activity.ENVIRONMENT)
        frame = self._game.renew(seeds, options)
        self._stopwatch.switch(Activity.COMMUNICATION)
        self._account.restart(np.flatnonzero(dropped))
        lanes = tuple(self._lanes[lane] for lane in np.flatnonzero(dropped).tolist())
        seconds = time.monotonic() - fault.began
        told = Restarted(self._match.match, self._lockstep.tick, lanes, fault.error, fault.trace, seconds)
        self._endpoint.send(0, Tag.TO_ROOT, pack(told))
        return frame

    def _joint_actions(self, idle: frozenset[int]) -> tuple[Any, ...]:
        actions: list[Any] = [None] * len(self._game.interface.entities)
        for seat, port in enumerate(self._ports):
            chosen = port.idle_actions(self._match.idle_action) if seat in idle else port.request.by_entity
            for entity, action in zip(port.entities, chosen, strict=True):
                actions[entity] = action
        return tuple(actions)

    def _reset(self, seat: int) -> None:
        lanes, seeds, options = unpack(self._ports[seat].link.wait_extra())
        self._account.restart(np.flatnonzero(lanes))
        frame = self._game.reset(lanes, seeds, options)
        if frame is None:  # lanes that were not to be reset begin anew as well: a reset has no way to end an episode
            lanes = np.ones(len(self._lanes), np.bool_)
            frame = self._renewed(lanes, seeds, options)
        self._restart(lanes, frame)

    def _restart(self, lanes: NDArray[np.bool_], frame: Frame) -> None:
        for port in self._ports:
            port.write_nothing_played()
        self._show_first(frame, lanes)
        for port in self._ports:
            infos = port.pack_infos(None, frame.infos, lanes)
            port.post(self._lockstep.tick, last=False, infos=infos)
