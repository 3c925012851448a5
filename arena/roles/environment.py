"""The environment role: it owns the game of one match, asks its seats for their actions, steps once.

made       its blocks of lanes are, and the workers know what their seats look like
ready      the first observations are out; nothing moves until the root says Go    -> Ready to the root
playing    the blocks move in turn, always in the same order; each waits for its own requests alone, so the workers
           can think about one block while another one is stepped
over       every block is                                                          -> Done to the root
"""

from __future__ import annotations

import time
from operator import attrgetter

from arena.comm import Endpoint, Tag
from arena.messages import Done, Go, Progress, Ready, expect, pack
from arena.plan import MatchPlan, Role, RoleKind
from arena.roles.lane_block import LaneBlock
from arena.run import Run
from arena.stopwatch import stopwatch

_REPORT_SECONDS = 0.25  # how often the root hears of progress


class Environment:
    """One match, from the first reset to the last tick.

    Args:
        endpoint: this role's place in the world.
        run: the run that it belongs to.
        match: the match.
    """

    def __init__(self, endpoint: Endpoint, run: Run, match: MatchPlan) -> None:
        self._endpoint = endpoint
        self._match = match
        self._role = Role(RoleKind.ENVIRONMENT, match.match, None)
        self._stopwatch = stopwatch(run.profile)
        # A number of episodes is counted over all lanes, so all of them are to end with the same tick.
        shares = match.blocks if run.episodes is None else (range(match.lanes),)
        self._blocks = [
            LaneBlock(endpoint, run, match, lanes=lanes, part=part, parts=len(shares), stopwatch=self._stopwatch)
            for part, lanes in enumerate(shares)
        ]
        self._reported = 0.0

    def play(self) -> None:
        """The whole match; returns when it is over and everybody was told."""
        for block in self._blocks:
            block.begin()
        self._endpoint.send(0, Tag.TO_ROOT, pack(Ready(self._role)))
        expect(Go, self._endpoint.receive(0, Tag.FROM_ROOT))
        while playing := [block for block in self._blocks if not block.over]:
            for block in playing:
                block.move()
            if time.monotonic() - self._reported > _REPORT_SECONDS:
                self._report()
        self._report()
        for block in self._blocks:  # before the last word: a game that cannot be closed is this run's failure
            block.close()
        self._endpoint.send(0, Tag.TO_ROOT, pack(Done(self._role, self._stopwatch.profile())))

    def _report(self) -> None:
        self._reported = time.monotonic()
        finished = sorted((record for block in self._blocks for record in block.finished), key=attrgetter("tick"))
        for block in self._blocks:
            block.finished.clear()
        played = min(block.tick for block in self._blocks)
        self._endpoint.send(0, Tag.TO_ROOT, pack(Progress(self._match.match, played, tuple(finished))))
