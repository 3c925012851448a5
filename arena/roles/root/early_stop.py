"""The end of a leg before its time: all matches are to end with the same tick, and none knows how far the others are.

    root          asks every environment to end at a tick that none is likely to have reached      (order STOP)
    environment   holds before that tick, or is past it already                                    -> Stopping
    root          all hold: tells them to end there. One is past it: asks again for a later tick   -> Go

An environment answers at once, whatever it waits for; one that has ended the leg is asked for nothing more. So a leg
can end early unless a match has come to its usual end: then the others have to come there too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from arena.plan.plan import Role, RoleKind
from arena.roles.protocol import Go, Stopping
from arena.run.leg import Leg
from arena.run.run import Run
from arena.transport import Endpoint, Order, Tag
from arena.transport.messages import pack

_SECONDS_AHEAD = 0.3  # how far ahead the end is, at the speed of the fastest match


class EarlyStop:
    """The root's part in ending one leg early.

    Args:
        endpoint: the root's.
        run: the run.
        leg: the one that is played.
        until: its usual end.
        repairable: what `Go` says of the run.

    Attributes:
        until: when the leg ends, as far as is agreed.
        asked: whether it was asked to end early.
    """

    def __init__(self, endpoint: Endpoint, run: Run, leg: Leg, until: int, *, repairable: bool) -> None:
        self.until = until
        self.asked = False
        self._endpoint, self._run, self._leg, self._repairable = endpoint, run, leg, repairable
        self._began = time.monotonic()
        self._ordered = 0
        self._missing: set[int] = set()  # matches that have not answered
        self._holding: list[int] = []  # those that wait for the last word

    def ask(self, ticks: Mapping[int, int]) -> None:
        """Asks for an end soon, of matches that have come so far."""
        self.asked = True
        seconds = max(time.monotonic() - self._began, 1e-3)
        fastest = (max(ticks.values()) - self._leg.start) / seconds
        self._order(max(ticks.values()) + math.ceil(_SECONDS_AHEAD * fastest) + 2, ticks)

    def hear(self, answer: Stopping, ticks: Mapping[int, int]) -> None:
        """Takes an answer: asks again, waits for others, or tells all that hold when the leg ends."""
        if answer.ordered != self._ordered:
            return  # an answer to what was asked before
        if answer.tick >= self._ordered < self.until:
            self._order(answer.tick + 2 * (answer.tick - min(ticks.values())) + 10, ticks)
            return
        self._missing.discard(answer.match)
        if answer.holds:
            self._holding.append(answer.match)
        if not self._missing:
            self.until = self._ordered
            for match in self._holding:
                word = pack(Go(self.until, self._repairable))
                self._endpoint.send(self._address(match), Tag.FROM_ROOT, word)

    def _order(self, tick: int, matches: Mapping[int, int]) -> None:
        self._ordered = min(tick, self.until)
        self._missing, self._holding = set(matches), []
        for match in matches:
            self._endpoint.order(self._address(match), Order.STOP, self._ordered.to_bytes(8, "little"))

    def _address(self, match: int) -> int:
        return self._run.address(Role(RoleKind.ENVIRONMENT, match))
