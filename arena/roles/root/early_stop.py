"""Ending a leg early: all matches must end at the same tick, and no match knows the tick of the others.

    root          orders every environment to end at a tick that no match is likely to have reached     (order STOP)
    environment   holds before that tick, or is past it already                                         -> Stopping
    root          if all hold: confirms the end. If one is past it: orders a later tick                 -> Go

An environment answers at once, even while it waits for actions. If one match has played the leg to its planned end,
the other matches must play to that end too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from arena.plan.plan import Role, RoleKind
from arena.roles.protocol import Go, Stopping, report_seconds
from arena.roles.run import Leg, Run
from arena.transport import Endpoint, Order, Tag
from arena.transport.pickling import pack

_AHEAD = 1.2  # the ordered tick is so many intervals of reports ahead, at the speed of the fastest match


class EarlyStop:
    """The root's side of ending `leg` early.

    Attributes:
        until: the tick at which the leg ends, as agreed so far; at first its planned end.
        requested: whether an early end was requested.
    """

    def __init__(self, endpoint: Endpoint, run: Run, leg: Leg, until: int) -> None:
        self.until = until
        self.requested = False
        self._endpoint, self._start = endpoint, leg.start
        self._addresses = [run.address(Role(RoleKind.ENVIRONMENT, match.match)) for match in run.plan.matches]
        self._seconds_ahead = _AHEAD * report_seconds(run.plan)
        self._began = time.monotonic()
        self._ordered = 0
        self._missing: set[int] = set()  # matches that have not answered
        self._waiting: list[int] = []  # matches that wait for a `Go`

    def ask(self, ticks: Mapping[int, int]) -> None:
        """Requests an early end, given the current tick of each match."""
        self.requested = True
        seconds = max(time.monotonic() - self._began, 1e-3)
        fastest = (max(ticks.values()) - self._start) / seconds
        self._order(max(ticks.values()) + math.ceil(self._seconds_ahead * fastest) + 2, ticks)

    def receive(self, answer: Stopping, ticks: Mapping[int, int]) -> None:
        """Handles an answer: orders a later tick, waits for more answers, or confirms the end to all that hold."""
        if answer.ordered != self._ordered:
            return  # the answer to an earlier order
        if answer.tick >= self._ordered < self.until:
            self._order(answer.tick + 2 * (answer.tick - min(ticks.values())) + 10, ticks)
            return
        self._missing.discard(answer.match)
        if answer.holds:
            self._waiting.append(answer.match)
        if not self._missing:
            self.until = self._ordered
            for match in self._waiting:
                self._endpoint.send(self._addresses[match], Tag.FROM_ROOT, pack(Go(self.until)))

    def _order(self, tick: int, matches: Mapping[int, int]) -> None:
        self._ordered = min(tick, self.until)
        self._missing, self._waiting = set(matches), []
        for match in matches:
            self._endpoint.order(self._addresses[match], Order.STOP, self._ordered.to_bytes(8, "little"))
