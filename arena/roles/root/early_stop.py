"""Ending a leg early: all matches must end at the same tick, and no match knows the tick of the others.

    root          orders every environment to end at a tick that no match is likely to have reached     (order STOP)
    environment   holds before that tick, or is past it already                                         -> Stopping
    root          if all hold: confirms the end. If one is past it: orders a later tick                 -> Go

An environment answers at once, even while it waits for actions. If one match has played the leg to its planned end,
the other matches must play to that end too. Where no policy learns, no common tick is needed: each match ends alone.
A leg has no bound on how far a match may be ahead of another one: matches whose long updates come at different ticks
would have to wait for each other in turn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from arena.plan.plan import Role, RoleKind
from arena.roles.protocol import Go, Stopping, report_seconds
from arena.roles.run import Leg, Run
from arena.transport import Endpoint, Order, Tag
from arena.transport.pickling import pack

_AHEAD = 1.2  # the ordered tick is so many intervals of reports ahead, at the speed of the fastest match
_LONG_SECONDS = 5.0  # which a match needs to reach the common tick, from which on a line says so


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
        self._matches = run.plan.matches
        self._separate = run.episodes is not None  # no policy learns
        self._ordered: dict[int, int] = {}  # by match
        self._missing: set[int] = set()  # matches that have not answered
        self._waiting: set[int] = set()  # matches that wait for a `Go`

    def ask(self, ticks: Mapping[int, int]) -> None:
        """Requests an early end, given the current tick of each match."""
        self.requested = True
        seconds = max(time.monotonic() - self._began, 1e-3)
        for matches in [[match] for match in ticks] if self._separate else [[*ticks]]:
            reached = max(ticks[match] for match in matches)
            fastest = (reached - self._start) / seconds
            self._order(reached + math.ceil(self._seconds_ahead * fastest) + 2, matches)

    def receive(self, answer: Stopping, ticks: Mapping[int, int]) -> str:
        """Handles an answer: orders a later tick, waits for more answers, or confirms the end to all that hold.

        Returns:
            a line for the user if the end is confirmed and some match needs long to reach it; else empty.
        """
        ordered = self._ordered[answer.match]
        if answer.ordered != ordered:
            return ""  # the answer to an earlier order
        matches = [answer.match] if self._separate else [*ticks]
        if answer.tick >= ordered < self.until:
            lead = answer.tick - min(ticks[match] for match in matches)
            self._order(answer.tick + 2 * lead + 10, matches)
            return ""
        self._missing.discard(answer.match)
        if answer.holds:
            self._waiting.add(answer.match)
        if not self._missing.isdisjoint(matches):
            return ""
        for match in self._waiting.intersection(matches):
            self._endpoint.send(self._addresses[match], Tag.FROM_ROOT, pack(Go(ordered)))
        if self._separate:
            return ""
        self.until = ordered
        slowest = min(ticks, key=ticks.__getitem__)
        left, played = ordered - ticks[slowest], ticks[slowest] - self._start
        seconds = left * (time.monotonic() - self._began) / played if played else math.inf
        if left == 0 or seconds < _LONG_SECONDS:
            return ""
        about = f", about {seconds:.0f} s before it" if played else ""
        return (
            f"all matches end at tick {ordered}; match {slowest} of {self._matches[slowest].env!r} is at tick "
            f"{ticks[slowest]}{about}"
        )

    def _order(self, tick: int, matches: Sequence[int]) -> None:
        tick = min(tick, self.until)
        self._ordered.update(dict.fromkeys(matches, tick))
        self._missing.update(matches)
        self._waiting.difference_update(matches)
        for match in matches:
            self._endpoint.order(self._addresses[match], Order.STOP, tick.to_bytes(8, "little"))
