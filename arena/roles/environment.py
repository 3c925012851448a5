"""The environment role: it owns the game of one match, asks its seats for their actions, steps once.

made       the game is adapted to `BatchedEnv`; its entities are held against the seats     -> Welcome to workers
ready      the first observations are out; nothing moves until the root says Go    -> Ready to the root
playing    all seats have spoken -> joint step -> each seat gets its own rows, nobody else's
over       the budget is used (the last replies said so), or every worker has left -> Done to the root
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena import registry
from arena.comm import Endpoint, Link, Tag
from arena.comm.interface import Side
from arena.comm.wire import ReplyView, RequestView, SeatLayout
from arena.interface import BatchedEnv, Frame, Info, Step
from arena.lockstep import Joint, Lockstep
from arena.messages import Done, Go, Progress, Ready, Welcome, expect, pack, unpack
from arena.plan import MatchPlan, Role, RoleKind, check_seats
from arena.records.lines import EpisodeRecord
from arena.roles.episodes import EpisodeAccount
from arena.run import Run
from arena.spaces import flatten, no_op, write_sample
from arena.stopwatch import Activity, stopwatch

_REPORT_SECONDS = 0.25  # how often the root hears of progress

Infos = Sequence[Sequence[Info]]  # [L][E]


class SeatPort:
    """The environment's end of one seat: it reads the seat's requests and writes what the seat may see.

    Args:
        entities: the seat's entities, as indices in the game.
        welcome: what the seat was told about itself.
        link: the environment's end of the link to the worker.
    """

    def __init__(self, entities: tuple[int, ...], welcome: Welcome, layout: SeatLayout, link: Link) -> None:
        self.entities = entities
        self.link = link
        self.request = RequestView(layout, link.inbox)
        self.reply = ReplyView(layout, link.outbox)
        self._observed = [  # per entity its space and the arrays of the reply that its observations go into
            (space, flatten(space, target))
            for space, target in zip(welcome.observation_spaces, self.reply.by_entity, strict=True)
        ]
        self._actions = welcome.action_spaces
        consecutive = entities == tuple(range(entities[0], entities[0] + len(entities)))
        self._columns: Any = slice(entities[0], entities[-1] + 1) if consecutive else list(entities)

    def write_step(self, step: Step, *, ends: bool) -> None:
        """Copies the seat's part of a joint step, and keeps the last observations of the rows that ended.

        Args:
            step: of all lanes.
            ends: whether any row of the match ended.
        """
        reply, columns = self.reply, self._columns
        reply.rewards[:] = step.rewards[:, columns]
        reply.terminated[:] = step.terminated[:, columns]
        reply.truncated[:] = step.truncated[:, columns]
        reply.fresh[:] = False
        self._write_frame(step.frame, slice(None))
        reply.pack_final() if ends else reply.no_final()

    def write_nothing_played(self) -> None:
        """What a reply holds when a reset was asked for: no reward, nothing ended."""
        self.reply.rewards[:] = 0.0
        self.reply.terminated[:] = False
        self.reply.truncated[:] = False
        self.reply.fresh[:] = False
        self.reply.no_final()

    def write_begin(self, frame: Frame, lanes: NDArray[np.bool_]) -> None:
        """Copies the first observations of the lanes that begin an episode."""
        self._write_frame(frame, lanes)
        self.reply.fresh[lanes] = True

    def _write_frame(self, frame: Frame, lanes: Any) -> None:
        reply = self.reply
        reply.active[lanes] = frame.active[lanes][:, self._columns]
        for entity, (space, leaves), masks in zip(self.entities, self._observed, reply.masks_by_entity, strict=True):
            for array, into in zip(flatten(space, frame.observations[entity]), leaves, strict=True):
                into[lanes] = array[lanes]
            mask = frame.masks[entity]
            if masks is not None and mask is not None:
                masks[lanes] = mask[lanes]

    def idle_actions(self, chosen: Any) -> list[Any]:
        """The actions of a seat that does nothing, per entity `[L, *shape]`; written where its own would stand."""
        for position, space in enumerate(self._actions):
            mask, target = self.reply.masks_by_entity[position], self.request.by_entity[position]
            if chosen is not None or mask is None:
                write_sample(space, no_op(space) if chosen is None else chosen, target, slice(None))
                continue
            for lane in range(len(mask)):
                write_sample(space, no_op(space, mask[lane]), target, lane)
        return self.request.by_entity

    def post(self, tick: int, *, last: bool, infos: bytes | None) -> None:
        self.reply.set_header(tick, last=last, extra=infos is not None)
        self.link.post(self.reply.message_bytes())
        if infos is not None:
            self.link.post_extra(infos)

    def pack_infos(self, step: Infos | None, begin: Infos | None, over: NDArray[np.bool_]) -> bytes | None:
        """The seat's infos by row: those of episodes that ended apart from those that belong to what is shown now."""
        if step is None and begin is None:
            return None
        current: dict[int, Info] = {}
        final: dict[int, Info] = {}
        ended = self.reply.ended()
        for lane in range(len(over)):
            for position, entity in enumerate(self.entities):
                row = lane * len(self.entities) + position
                if step is not None and step[lane][entity]:
                    if ended[lane, position]:
                        final[row] = step[lane][entity]
                    elif not over[lane]:  # else it is of an episode that nobody sees any more
                        current[row] = step[lane][entity]
                if begin is not None and over[lane] and begin[lane][entity]:
                    current[row] = begin[lane][entity]
        return pack((current, final)) if current or final else None


class Environment:
    """One match, from the first reset to the last tick.

    Args:
        endpoint: this role's place in the world.
        run: the run that it belongs to.
        match: the match.
    """

    def __init__(self, endpoint: Endpoint, run: Run, match: MatchPlan) -> None:
        self._endpoint = endpoint
        self._run = run
        self._match = match
        self._role = Role(RoleKind.ENVIRONMENT, match.match, None)
        self._stopwatch = stopwatch(run.profile)
        self._game: BatchedEnv = registry.adapt_environment(match.make, match.env_kwargs, match.lanes)
        seat_entities = check_seats(match, self._game.interface)
        self._ports = [self._invite(seat, entities) for seat, entities in enumerate(seat_entities)]
        self._account = EpisodeAccount(match, seat_entities)
        self._lockstep = Lockstep(len(self._ports), run.plan.ticks, run.start_tick)
        self._finished: list[EpisodeRecord] = []
        self._reported = 0.0

    def _invite(self, seat: int, entities: tuple[int, ...]) -> SeatPort:
        game = self._game.interface
        welcome = Welcome(
            lanes=self._match.lanes,
            entities=tuple(game.entities[e] for e in entities),
            observation_spaces=tuple(game.observation_spaces[e] for e in entities),
            action_spaces=tuple(game.action_spaces[e] for e in entities),
            mask_sizes=tuple(game.mask_sizes[e] for e in entities),
            alone=len(self._match.seats) == 1,
        )
        layout = welcome.layout()
        peer = self._run.address(Role(RoleKind.WORKER, self._match.match, seat))
        self._endpoint.send(peer, Tag.WELCOME, pack(welcome))
        sizes = {"request_bytes": RequestView(layout).nbytes, "reply_bytes": ReplyView(layout).nbytes}
        return SeatPort(entities, welcome, layout, self._endpoint.link(peer, Side.ENVIRONMENT, **sizes))

    def play(self) -> None:
        """The whole match; returns when it is over and everybody was told."""
        self._begin()
        self._endpoint.send(0, Tag.TO_ROOT, pack(Ready(self._role)))
        expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT))
        while not self._lockstep.over:
            self._move()
        self._report()
        self._endpoint.send(0, Tag.TO_ROOT, pack(Done(self._role, self._stopwatch.profile())))

    def close(self) -> None:
        self._game.close()
        for port in self._ports:
            port.link.close()

    def _begin(self) -> None:
        lanes = np.ones(self._match.lanes, np.bool_)
        seeds = [self._run.environment_seed(self._match, lane) for lane in range(self._match.lanes)]
        self._restart(lanes, self._game.reset(lanes, seeds))

    def _move(self) -> None:
        self._stopwatch.switch(Activity.WAITING_FOR_ACTIONS)
        for seat in self._lockstep.missing():
            self._ports[seat].link.wait()
            self._lockstep.put(seat, self._ports[seat].request.kind)
        self._stopwatch.switch(Activity.COMMUNICATION)
        if self._lockstep.over:  # the last worker has left
            return
        joint = self._lockstep.joint()
        if joint.reset is None:
            self._tick(joint)
        else:
            self._reset(joint.reset)
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._report()

    def _tick(self, joint: Joint) -> None:
        for seat in joint.idle:
            self._account.idle(seat, self._ports[seat].reply.active)
        actions = self._joint_actions(joint)
        self._stopwatch.switch(Activity.ENVIRONMENT)
        step = self._game.step(actions)
        self._stopwatch.switch(Activity.COMMUNICATION)
        over, ends = self._account.tick(step)
        # Everybody's reply is written, also that of a seat that has left: its masks tell what it may do when idle.
        for port in self._ports:
            port.write_step(step, ends=ends)
        step_infos, begin_infos = step.frame.infos, None
        if over.any():
            begin_infos = self._next_episodes(over)
            if self._run.episodes is not None and self._account.episodes.min() >= self._run.episodes:
                self._lockstep.end()
        for seat in joint.listeners:
            port = self._ports[seat]
            infos = port.pack_infos(step_infos, begin_infos, over)
            port.post(self._lockstep.tick, last=self._lockstep.over, infos=infos)

    def _next_episodes(self, over: NDArray[np.bool_]) -> Infos | None:
        for lane in np.flatnonzero(over).tolist():
            record = self._account.finish(lane, self._lockstep.tick)
            # Lanes that are done early play on, but what they play would favour short episodes: it does not count.
            if self._run.episodes is None or record.episode < self._run.episodes:
                self._finished.append(record)
        self._stopwatch.switch(Activity.ENVIRONMENT)
        frame = self._game.reset(over)
        self._stopwatch.switch(Activity.COMMUNICATION)
        for port in self._ports:
            port.write_begin(frame, over)
        return frame.infos

    def _joint_actions(self, joint: Joint) -> list[Any]:
        actions: list[Any] = [None] * len(self._game.interface.entities)
        for seat, port in enumerate(self._ports):
            chosen = port.idle_actions(self._match.idle_action) if seat in joint.idle else port.request.by_entity
            for entity, action in zip(port.entities, chosen, strict=True):
                actions[entity] = action
        return actions

    def _reset(self, seat: int) -> None:
        lanes, seeds, options = unpack(self._ports[seat].link.wait_extra())
        for lane in np.flatnonzero(lanes):
            self._account.restart(int(lane))
        self._restart(lanes, self._game.reset(lanes, seeds, options))

    def _restart(self, lanes: NDArray[np.bool_], frame: Frame) -> None:
        for port in self._ports:
            port.write_nothing_played()
            port.write_begin(frame, lanes)
            infos = port.pack_infos(None, frame.infos, lanes)
            port.post(self._lockstep.tick, last=False, infos=infos)

    def _report(self) -> None:
        self._reported = time.monotonic()
        progress = Progress(self._match.match, self._lockstep.tick, tuple(self._finished))
        self._finished = []
        self._endpoint.send(0, Tag.TO_ROOT, pack(progress))
