"""The environment role: it owns the game of one match, asks its seats for their actions, steps once.

It plays one leg of the run:

made       its blocks of lanes are, and the workers know what their seats look like
ready      the first observations are out; nothing moves until the root says Go    -> Ready to the root
playing    the blocks move in turn, always in the same order; each waits for its own requests alone, so the workers
           can think about one block while another one is stepped
over       every block is                                                          -> Done to the root
"""

from __future__ import annotations

import time
from operator import attrgetter

from arena.diagnostics.profile import stopwatch
from arena.plan.plan import MatchPlan, Role, RoleKind
from arena.records.metrics import EpisodeRecord
from arena.roles.environment.lane_block import LaneBlock
from arena.roles.environment.restart import RestartLimit
from arena.roles.protocol import Done, Go, Progress, Ready, Stopping
from arena.run.recovery import RecoveryState
from arena.run.run import Run
from arena.transport import Bytes, Endpoint, Order, Tag
from arena.transport.messages import expect, pack

_REPORT_SECONDS = 0.25  # how often the root hears of progress


class Environment:
    """One match, from the first reset of a leg to its last tick.

    Args:
        endpoint: this role's place in the world.
        run: the run that it belongs to.
        match: the match.
        memory: is told how far the match has come when it is interrupted.
    """

    def __init__(self, endpoint: Endpoint, run: Run, match: MatchPlan, memory: RecoveryState) -> None:
        self._endpoint = endpoint
        self._match = match
        self._role = Role(RoleKind.ENVIRONMENT, match.match, None)
        self._stopwatch = stopwatch(run.profile)
        limit = RestartLimit() if run.plan.on_env_error == "restart" else None
        # A number of episodes is counted over all lanes, so all of them are to end with the same tick.
        shares = match.blocks if run.episodes is None else (range(match.lanes),)
        self._blocks = [
            LaneBlock(
                endpoint,
                run,
                match,
                lanes=lanes,
                part=part,
                parts=len(shares),
                limit=limit,
                stopwatch=self._stopwatch,
            )
            for part, lanes in enumerate(shares)
        ]
        self._reported = 0.0
        self._hold: int | None = None  # the tick before which the leg's end has to be told
        endpoint.on_order(Order.STOP, self._stop_at)
        self._memory = memory

    def play(self) -> None:
        """The whole leg; returns when it is over and everybody was told."""
        try:
            self._play()
        except BaseException:
            self._memory.reach(self.tick)
            for block in self._blocks:  # a game may have processes of its own, which nobody else would end
                block.abandon()
            raise

    def _play(self) -> None:
        for block in self._blocks:
            block.begin()
        self._endpoint.send(0, Tag.TO_ROOT, pack(Ready(self._role)))
        go = expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT))
        self._memory.begin_leg(repairable=go.repairable)
        for block in self._blocks:
            block.go(go.until)
        while playing := [block for block in self._blocks if not block.over]:
            for block in playing:
                if self._hold is not None and block.tick + 1 >= self._hold:
                    self._await_end()
                    break
                block.move()
            if time.monotonic() - self._reported > _REPORT_SECONDS:
                self._report()
        if self._hold is not None:  # all workers have left meanwhile
            self._await_end()
        self._report(last=True)
        for block in self._blocks:  # before the last word: a game that cannot be closed is this run's failure
            block.close()
        done = Done(self._role, self.tick, self._stopwatch.profile(), episodes=self._episodes)
        self._endpoint.send(0, Tag.TO_ROOT, pack(done))

    def _stop_at(self, _: int, data: Bytes) -> None:
        """Holds before a tick at which the leg may end earlier, if it is not too late; perhaps in others' turn."""
        # The tick that is under way counts as played: nobody can tell the workers any more that it is the last one.
        ordered, tick = int.from_bytes(data, "little"), max(block.tick + (not block.over) for block in self._blocks)
        over = self._hold is None and all(block.over for block in self._blocks)
        holds = ordered > tick and not over
        if holds:
            self._hold = ordered
        self._endpoint.send(0, Tag.TO_ROOT, pack(Stopping(self._match.match, ordered, tick, holds)))

    def _await_end(self) -> None:
        """Waits until all matches have agreed when the leg ends; another tick may have been ordered meanwhile."""
        go = expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT))
        self._hold = None
        for block in self._blocks:
            block.play_until(go.until)

    @property
    def _episodes(self) -> tuple[int, ...]:
        return tuple(count for block in self._blocks for count in block.episodes)

    @property
    def tick(self) -> int:
        """Ticks that all lanes have played."""
        return min(block.tick for block in self._blocks)

    def _report(self, *, last: bool = False) -> None:
        self._reported = time.monotonic()
        progress = Progress(self._match.match, self.tick, self._finished(), last=last)
        self._endpoint.send(0, Tag.TO_ROOT, pack(progress))

    def _finished(self) -> tuple[EpisodeRecord, ...]:
        """Takes out the episodes that have ended since the last time."""
        finished = sorted((record for block in self._blocks for record in block.finished), key=attrgetter("tick"))
        for block in self._blocks:
            block.finished.clear()
        return tuple(finished)
