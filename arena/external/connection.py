"""The connection to the external games of one match, as a process keeps it through legs and evaluations."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from arena.config.schema import TickRules
from arena.external.interface import ExternalGames, ExternalMatch
from arena.external.slots import Counts, Game, Slots
from arena.game.api import Interface
from arena.plan.plan import MatchPlan
from arena.plan.seats import check_seats
from arena.records.atomic import private

if TYPE_CHECKING:
    from arena.records.formats import ExternalPlace, GamesLine

_log = logging.getLogger(__name__)


def policies_of(match: MatchPlan, interface: Interface) -> list[str]:
    """The names of the policies that play the entities, in the order of the interface; errors: see `check_seats`."""
    names = [""] * len(interface.entities)
    for seat, entities in zip(match.seats, check_seats(match, interface), strict=True):
        for entity in entities:
            names[entity] = seat.policy
    return names


def wait_for_start(games: ExternalGames, sleep: Callable[[float], None] = time.sleep) -> None:
    """Waits until games that take time to start can be played; a `ConfigError` if they cannot."""
    starting: Callable[[], float | None] | None = getattr(games, "starting", None)
    while starting is not None and (seconds := starting()) is not None:
        sleep(seconds)


class Connection:
    """The external games of one match and their table; open and paused.

    Args:
        match: its lanes are the slots.
        seed: of the match's first lane.
        logs: the folder for the output of programs; None: it is not kept.
        sleep: waits so many seconds for games that start.

    Attributes:
        match: as given.
        games: the open connection.
        table: filled by `games`.
        counted_at: when `counts` was called last, in seconds of the monotonic clock.
        finished: the accounts of games that are over and have not been recorded.
        wake: wakes the role that plays the match.
        restarted: called when games have failed in part and play on, with the failure and the slots that are lost.
        waiting: called before each wait for games, with the number of ticks in progress, 0 or 1; returns seconds after
            which the wait is to end, None: any.
        announced_address: the address that the root knows.
        exhausted: whether the root knows that no game will come any more.

    Raises:
        Exception: as raised by `make` and `ExternalGames.open`.
    """

    def __init__(
        self,
        make: Callable[[], ExternalGames],
        match: MatchPlan,
        seed: int,
        logs: Path | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._make, self.match, self._seed, self._logs, self._sleep = make, match, seed, logs, sleep
        self._rules = match.game.external or TickRules()
        self.wake: Callable[[], None] = lambda: None
        self.finished: list[Game] = []
        self.restarted: Callable[[Exception, Sequence[int]], None] = lambda error, lost: None
        self.waiting: Callable[[int], float | None] = lambda unfinished: None
        self.announced_address = ""
        self.exhausted = False
        self.games = self._open()
        no_limits = any(getattr(self.games, name, False) for name in ("closed_loop", "own_limits"))
        self.opened_at = self.counted_at = time.monotonic()
        self.table = Slots(self.games.interface, match.lanes, self._rules, no_limits=no_limits)
        self._refused = Counter[str]()  # by code, requests of games that were replaced
        self._counted = Counts(), Counter[str]()
        self.pause(True)

    def _open(self) -> ExternalGames:
        games = self._make()
        if (configure := getattr(games, "configure", None)) is not None:
            policies = policies_of(self.match, games.interface)
            restarted = lambda error, lost: self.restarted(error, lost)  # noqa: E731  # it is set later
            configure(ExternalMatch(self._seed, self._rules, policies, self._open_log, restarted))
        games.open(self.match.lanes, lambda: self.wake())
        try:
            wait_for_start(games, self._sleep)
        except BaseException:  # such as Ctrl-C
            games.close("over")
            raise
        return games

    def _open_log(self, program: int) -> IO[bytes] | None:
        if self._logs is None:
            return None
        return open(self._logs / f"simulator-{self.match.match}-{program}.log", "a+b", opener=private)

    def place(self, kind: str) -> ExternalPlace:
        """The match's entry in `external.json`."""
        from arena.records.formats import ExternalPlace  # imported where games are external: others do without msgspec

        match, host = self.match, socket.gethostname()
        files = getattr(self.games, "files", [])
        return ExternalPlace(match.match, match.copy, kind, self.games.address, os.getpid(), host, match.lanes, files)

    @property
    def uncounted(self) -> bool:
        """Whether something has happened since the last line of `games.jsonl`."""
        return (self.table.counts, self.refused_by()) != self._counted

    def refused_by(self) -> Counter[str]:
        """The number of refused requests by code, since the run began or was resumed."""
        return self._refused + Counter(getattr(self.games, "refused_by", self.table.counts.refused_by))

    def counts(self, match: int, tick: int) -> GamesLine:
        """A line of `games.jsonl`; its answer times are those since the line before."""
        from arena.records.formats import GamesLine, Waits

        table, counts = self.table, self.table.counts
        self.counted_at, refused = time.monotonic(), self.refused_by()
        self._counted = replace(counts), refused
        waits = np.array(table.waits) * 1000
        table.waits.clear()
        report = getattr(self.games, "report", None)
        return GamesLine(
            match=match,
            tick=tick,
            seconds=round(self.counted_at - self.opened_at, 3),
            held=table.running,
            rows_per_tick=round((counts.asks + counts.given) / max(1, counts.ticks), 3),
            wait_ms=Waits(*np.percentile(waits, [50, 99, 100]).round(3).tolist()) if len(waits) else None,
            refused=refused.total(),
            **{**asdict(counts), "refused_by": dict(refused)},
            **({} if report is None else report()),
        )

    def take_notices(self) -> Iterator[str]:
        """What the games have to say to the user, each once."""
        notices = getattr(self.games, "notices", ())
        while notices:
            yield notices.popleft()

    def pause(self, on: bool) -> None:
        """Stops the clocks of all games, or lets them go on."""
        self.games.pause(on)
        self.table.pause(on)

    def remake(self) -> None:
        """Replaces games that have failed while they were played; the table, whose games are all lost, stays."""
        self.close("failed")
        self._refused += Counter(getattr(self.games, "refused_by", {}))
        self.games = self._open()
        self.games.pause(False)

    def close(self, reason: str) -> None:
        """Ends all games; an error is only logged."""
        try:
            self.games.close(reason)
        except Exception:
            _log.exception("the connection to external games cannot be closed")
