"""Lanes of one match that step together: all of them, or one half where the match overlaps two (`pipeline: 2`).

made       the game is adapted to `BatchedEnv`; its entities are held against the seats     -> Welcome to workers
begun      the first observations are out
moves      all seats have spoken -> joint step -> each seat gets its own rows, nobody else's
over       the budget is used (the last replies said so), or every worker has left
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.comm import Endpoint, Tag
from arena.comm.wire import link_size
from arena.examination import adapted_game, check_idle_action
from arena.interface import BatchedEnv, Frame
from arena.lockstep import Joint, Lockstep
from arena.messages import Welcome, pack, unpack
from arena.plan import MatchPlan, Role, RoleKind, check_seats
from arena.records.lines import EpisodeRecord
from arena.roles.episodes import EpisodeAccount
from arena.roles.seat_port import Infos, SeatPort
from arena.roles.step_writer import StepWriter, step_writer
from arena.run import Run
from arena.stopwatch import Activity, Stopwatch


class LaneBlock:
    """One instance of the match's game, with some of the match's lanes.

    Args:
        endpoint: the environment's place in the world.
        run: the run that the match belongs to.
        match: the match.
        lanes: the block's, by their numbers in the match: what a lane plays does not depend on its block.
        part: which of the match's blocks this is.
        parts: how many there are.
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
        stopwatch: Stopwatch,
    ) -> None:
        self._endpoint = endpoint
        self._run = run
        self._match = match
        self._lanes = lanes
        self._part, self._parts = part, parts
        self._stopwatch = stopwatch
        self._game: BatchedEnv = adapted_game(match, len(lanes))
        seat_entities = check_seats(match, self._game.interface)
        check_idle_action(match, self._game.interface)
        self._ports, self._write_step = self._lay_table(seat_entities)
        self._all_actions = self._joint_actions(frozenset())  # of the entities, where they are written: views
        before = [run.past.episodes.get((match.match, lane), 0) for lane in lanes]
        self._account = EpisodeAccount(match, seat_entities, lanes, before)
        self._lockstep = Lockstep(len(self._ports), run.plan.ticks, run.start_tick)
        self.finished: list[EpisodeRecord] = []

    def _lay_table(self, seat_entities: Sequence[tuple[int, ...]]) -> tuple[list[SeatPort], StepWriter]:
        """Links to all seats; then each hears what its seat is like."""
        welcomes = [self._welcome(entities) for entities in seat_entities]
        layouts = [welcome.layout() for welcome in welcomes]
        seats = range(len(self._match.seats))
        peers = [self._run.address(Role(RoleKind.WORKER, self._match.match, seat)) for seat in seats]
        table = self._endpoint.table(peers, [link_size(layout) for layout in layouts], self._part)
        for peer, welcome in zip(peers, welcomes, strict=True):
            self._endpoint.send(peer, Tag.WELCOME, pack(welcome))
        ports = [SeatPort(*seat) for seat in zip(seat_entities, welcomes, layouts, table.links, strict=True)]
        return ports, step_writer(ports, layouts, table.outboxes)

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
    def over(self) -> bool:
        """Whether the budget is used, or nobody is left to play for."""
        return self._lockstep.over

    def begin(self) -> None:
        """Begins an episode in every lane and shows it to everybody."""
        lanes = np.ones(len(self._lanes), np.bool_)
        seeds = [self._run.environment_seed(self._match, lane) for lane in self._lanes]
        self._restart(lanes, self._game.reset(lanes, seeds))

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
        if joint.reset is None:
            self._tick(joint)
        else:
            self._reset(joint.reset)

    def close(self) -> None:
        """Ends the game and the links."""
        self._game.close()
        for port in self._ports:
            port.link.close()

    def _tick(self, joint: Joint) -> None:
        for seat in joint.idle:
            self._account.idle(seat, self._ports[seat].reply.active)
        actions = self._joint_actions(joint.idle) if joint.idle else self._all_actions
        self._stopwatch.switch(Activity.ENVIRONMENT)
        step = self._game.step(actions)
        self._stopwatch.switch(Activity.COMMUNICATION)
        over, ends = self._account.tick(step)
        # Everybody's reply is written, also that of a seat that has left: its masks tell what it may do when idle.
        self._write_step(step, ends)
        step_infos, begin_infos = step.frame.infos, None
        if ends and over.any():
            begin_infos = self._next_episodes(over)
            if self._run.episodes is not None and self._account.episodes.min() >= self._run.episodes:
                self._lockstep.end()
        tick, last, silent = self._lockstep.tick, self._lockstep.over, step_infos is None and begin_infos is None
        for seat in joint.listeners:
            port = self._ports[seat]
            port.post(tick, last=last, infos=None if silent else port.pack_infos(step_infos, begin_infos, over))

    def _next_episodes(self, over: NDArray[np.bool_]) -> Infos | None:
        finished, wanted = self._account.finish(over, self._lockstep.tick), self._run.episodes
        # Lanes that are done early play on, but what they play would favour short episodes: it does not count.
        self.finished += finished if wanted is None else [record for record in finished if record.episode < wanted]
        self._stopwatch.switch(Activity.ENVIRONMENT)
        frame = self._game.reset(over)
        self._stopwatch.switch(Activity.COMMUNICATION)
        for port in self._ports:
            port.write_begin(frame, over)
        return frame.infos

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
        self._restart(lanes, self._game.reset(lanes, seeds, options))

    def _restart(self, lanes: NDArray[np.bool_], frame: Frame) -> None:
        for port in self._ports:
            port.write_nothing_played()
            port.write_begin(frame, lanes)
            infos = port.pack_infos(None, frame.infos, lanes)
            port.post(self._lockstep.tick, last=False, infos=infos)
