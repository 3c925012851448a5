"""The connection to the external games of one match, as a process keeps it through legs, evaluations and repairs."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from arena.external.interface import ExternalGames
from arena.external.slots import Game, Slots
from arena.plan.plan import MatchPlan, TickRules

if TYPE_CHECKING:
    from arena.records.formats import ExternalPlace, GamesLine

_log = logging.getLogger(__name__)


class Connection:
    """The external games of one match and their table; open and paused.

    Args:
        make: makes the games.
        slots: the number of games at the same time.
        rules: when ticks are formed and games are given up.
        seed: of the match's first lane.

    Attributes:
        games: taking games.
        table: as `games` has filled it.
        counted_at: when `counts` was called last, in seconds of the monotonic clock.
        finished: the accounts of games that are over and have not been recorded.
        bell: wakes the role that plays the match.

    Raises:
        Exception: as raised by `make` and `ExternalGames.open`.
    """

    def __init__(self, make: Callable[[], ExternalGames], slots: int, rules: TickRules, seed: int) -> None:
        self._make, self._slots, self._rules, self._seed = make, slots, rules, seed
        self.bell: Callable[[], None] = lambda: None
        self.finished: list[Game] = []
        self.games = self._open()
        closed_loop = bool(getattr(self.games, "closed_loop", False))
        self.opened_at = self.counted_at = time.monotonic()
        self.table = Slots(self.games.interface, slots, rules, closed_loop=closed_loop)
        self.pause(True)

    def _open(self) -> ExternalGames:
        games = self._make()
        if (set_seed := getattr(games, "seed", None)) is not None:
            set_seed(self._seed)
        if hasattr(games, "close_s"):
            games.close_s = self._rules.close_s
        games.open(self._slots, lambda: self.bell())
        return games

    def place(self, match: MatchPlan, kind: str) -> ExternalPlace:
        """The match's entry in `external.json`."""
        from arena.records.formats import ExternalPlace  # imported where games are external: others do without msgspec

        host = socket.gethostname()
        return ExternalPlace(match.match, match.copy, kind, self.games.address, os.getpid(), host, self._slots)

    def counts(self, match: int, tick: int) -> GamesLine:
        """A line of `games.jsonl`; the times of requests until now are in no later one."""
        from arena.records.formats import GamesLine, Waits

        table, counts = self.table, self.table.counts
        self.counted_at = time.monotonic()
        waits = np.array(table.waits) * 1000
        table.waits.clear()
        return GamesLine(
            match=match,
            tick=tick,
            seconds=round(self.counted_at - self.opened_at, 3),
            held=table.held,
            rows_per_tick=round((counts.asks + counts.given) / max(1, counts.ticks), 3),
            wait_ms=Waits(*np.percentile(waits, [50, 99, 100]).round(3).tolist()) if len(waits) else None,
            **asdict(counts),
        )

    def pause(self, on: bool) -> None:
        """Stops the clocks of all games, or lets them go on."""
        self.games.pause(on)
        self.table.pause(on)

    def remake(self) -> None:
        """Replaces games that have failed; the table, whose games are all lost, stays."""
        self.close("failed")
        self.games = self._open()

    def close(self, reason: str) -> None:
        """Ends all games; an error is only logged."""
        try:
            self.games.close(reason)
        except Exception:
            _log.exception("the connection to external games cannot be closed")
