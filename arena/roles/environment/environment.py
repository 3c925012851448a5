"""The environment role: waits for the actions of all seats of one match and steps its game, for one leg of the run.

created    the blocks of lanes exist; the workers have received their Welcome messages
ready      the first observations are written; no block steps before the root's Go      -> Ready to the root
playing    the blocks step in turn, in a fixed order; each block waits for its own requests only, so that the workers
           choose actions for one block while another block steps
done       all blocks have played the leg                                               -> Done to the root
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from arena import registry
from arena.external.connection import Connection
from arena.plan.plan import MatchPlan, Role, RoleKind
from arena.preflight.examine import constructor_errors_reported, external_games
from arena.preflight.external import check_external
from arena.records.metrics import EpisodeRecord
from arena.roles.environment.lane_block import LaneBlock
from arena.roles.environment.reports import Reports
from arena.roles.environment.restart import RestartLimit
from arena.roles.protocol import Done, Go, Ready, Stopping, report_seconds
from arena.roles.run import Run
from arena.roles.state import RunState
from arena.transport import Bytes, Endpoint, Order, Tag
from arena.transport.endpoint import ANY_SOURCE
from arena.transport.pickling import expect, pack

_COUNT_SECONDS = 10.0  # between two Games messages


class Environment:
    """The environment of one match, for one leg; `memory` has the match's connection and limit of restarts."""

    def __init__(self, endpoint: Endpoint, run: Run, match: MatchPlan, memory: RunState) -> None:
        self._endpoint, self._match = endpoint, match
        self._stopwatch = run.stopwatch(endpoint)
        check_external(run.plan, [match])
        self._kind = registry.external_kind(match.game.make)
        connection = None if self._kind is None else memory.connections.get(match.match)
        if self._kind is not None and connection is None:

            def sleep(seconds: float) -> None:  # other roles run meanwhile, and the watchdog sees what is waited for
                endpoint.sleep((endpoint.address, Tag.GAMES, ANY_SOURCE), seconds)

            with constructor_errors_reported(match):
                seed = run.environment_seed(match, 0)
                connection = Connection(lambda: external_games(match), match, seed, run.folder.logs, sleep=sleep)
            memory.connections[match.match] = connection  # kept by this process from leg to leg
            self._report_place(connection)
        self._connection = connection
        if connection is not None:
            connection.waiting = self._report_in_wait
        restarts = run.plan.config.on_env_error == "restart"
        limit = memory.restart_limits.setdefault(match.match, RestartLimit()) if restarts else None
        # A number of episodes is counted over all lanes, so all lanes must end at the same tick: one block.
        shares = match.blocks if run.episodes is None else (range(match.lanes),)
        self._blocks: list[LaneBlock] = []
        with ExitStack() as made:
            for part, lanes in enumerate(shares):
                block = LaneBlock(endpoint, run, match, lanes, part, len(shares), self._stopwatch, limit, connection)
                made.callback(block.abandon)
                self._blocks.append(block)
            made.pop_all()
        rank = run.plan.rank_of(Role(RoleKind.ENVIRONMENT, match.match))
        self._reports = memory.reports.setdefault(rank, Reports(rank))
        self._reports.begin(match.match, run.leg.start)
        self._report_seconds = report_seconds(run.plan)
        self._reported = 0.0
        self._played = 0  # the last tick of a leg that is over
        self._hold: int | None = None  # wait before this tick for a `Go` with the leg's end
        self._bell = endpoint.bell() if connection is not None else None
        endpoint.on_order(Order.STOP, self._stop_at)

    def play(self) -> None:
        """Plays the leg; returns after the Done message to the root."""
        try:
            external = self._connection is not None
            for block in self._blocks if not external else ():
                block.begin()
            role = Role(RoleKind.ENVIRONMENT, self._match.match, None)
            self._send(Ready(role, external=self._kind, rule=self._blocks[0].rule))
            self._take_end()  # an order to hold before a tick may have come already
            for block in self._blocks if external else ():
                block.begin()  # may wait for long: before Go, the root waits for all roles
            while playing := [block for block in self._blocks if not block.over]:
                for block in playing:
                    if self._hold is not None and block.tick + 1 >= self._hold:
                        self._take_end()  # the root may order another tick first
                        self._hold = None
                        break
                    block.move()
                if time.monotonic() - self._reported > self._report_seconds:
                    self._report()
            if self._hold is not None:  # all workers have left after the order to stop
                self._take_end()
                self._hold = None
            self._report(last=True)
            for block in self._blocks:  # before Done: an error while closing a game is an error of the run
                block.close()
            episodes = tuple(count for block in self._blocks for count in block.episodes)
            self._send(Done(role, self.tick, self._stopwatch.profile(), episodes=episodes))
            # An order may still come; its handler must not keep these games in memory while the next leg makes its own.
            self._played = max(block.tick for block in self._blocks)
            self._blocks.clear()
        except BaseException:
            for block in self._blocks:  # a game may have started processes, which only its `close` ends
                block.abandon()
            raise

    def _send(self, message: object) -> None:
        self._endpoint.send(0, Tag.TO_ROOT, pack(message))

    def _report_place(self, connection: Connection) -> None:
        """Tells the root where games connect."""
        assert self._kind is not None, "the games are external"
        connection.announced_address = connection.games.address
        self._send(connection.place(self._kind))

    def _stop_at(self, _: int, data: Bytes) -> None:
        """Handles the order to hold before a tick; it may arrive while another role of the process runs."""
        # A tick in progress counts as played: its replies can no longer say that it is the last one.
        ordered = int.from_bytes(data, "little")
        tick = max((block.tick + (not block.over) for block in self._blocks), default=self._played)
        over = self._hold is None and all(block.over for block in self._blocks)
        holds = ordered > tick and not over
        if holds:
            self._hold = ordered
            for block in self._blocks:
                block.ends_early = True  # external games are not waited for any more
            if self._bell is not None:
                self._bell()
        self._send(Stopping(self._match.match, ordered, tick, holds))

    def _take_end(self) -> None:
        """Waits for the root's Go, which has the end of the leg."""
        go = expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT))
        for block in self._blocks:
            block.play_until(go.until)

    @property
    def tick(self) -> int:
        """Ticks played by all lanes."""
        return min(block.tick for block in self._blocks)

    def _report_in_wait(self, unfinished: int) -> float | None:
        """Reports what has happened before a wait for external games; returns the seconds until that is due.

        Episodes may yet end with the `unfinished` tick: it is not reported as played.
        """
        connection = self._connection
        if connection is None or not connection.uncounted:
            return None
        due = connection.counted_at + _COUNT_SECONDS - time.monotonic()
        if due > 0:
            return due
        self._report(at_once=True, unfinished=unfinished)
        return None

    def _report(self, *, last: bool = False, at_once: bool = False, unfinished: int = 0) -> None:
        """Reports the ticks that were played, and their episodes; sends what all matches of this rank have reported."""
        self._reported, tick = time.monotonic(), self.tick - unfinished
        finished: list[EpisodeRecord] = []
        for block in self._blocks:
            finished += block.finished
            block.finished.clear()
        logged: dict[str, int] = {}
        for seat, *updates in zip(self._match.seats, *(block.logged for block in self._blocks), strict=True):
            if any(updates):
                logged[seat.policy] = max(*updates, logged.get(seat.policy, 0))
        self._reports.add(self._match.match, tick, finished, logged, last=last)
        # The other matches of this rank may play, or wait, for long after one that ends before the leg does.
        ends_early = last and any(block.left for block in self._blocks)
        due = at_once or self._reported - self._reports.taken_at > self._report_seconds
        if due or ends_early or self._reports.over:
            self._send(self._reports.take(self._reported))
        connection = self._connection
        if connection is not None:
            if connection.games.address != connection.announced_address:  # some were recreated
                self._report_place(connection)
            # Only the root knows, after the last message of a leg, whether the run ends with it.
            if at_once or last or self._reported - connection.counted_at > _COUNT_SECONDS:
                self._send(connection.counts(self._match.match, tick))
