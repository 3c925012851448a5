"""Serves policies to games that ask for actions, without learning, in one process.

The games come in through the same connections and the same table of slots as in training; there are no ticks of a run:
all rows that ask at one look at the table are answered together, policy by policy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from arena.errors import pluralize, shown
from arena.external.connection import Connection
from arena.external.slots import Game, Slots, Tick
from arena.game.spaces import empty_batch
from arena.plan.plan import MatchPlan
from arena.plan.seats import check_seats
from arena.records.formats import lost_and_refused
from arena.records.journal import Journal, JournalReader
from arena.records.lock import RunLock
from arena.records.metrics import EpisodeRecord
from arena.records.outcome import contradicting_text
from arena.records.scoreboard import Scoreboard
from arena.roles.environment.episodes import GameTracker, Tracked
from arena.serving.player import Player

_log = logging.getLogger(__name__)

_REPORT_S = 60.0
_LOOK_S = 0.2  # the longest wait, after which `stop` is seen
_COUNTS_S = 10.0  # between two lines of games.jsonl
_QUICK_S = 0.005  # for a full batch of all policies: a thread may wait as long for the interpreter


class Server:
    """Answers the games of one connection.

    Args:
        connection: open, and paused.
        match: what is played: its seats say which policy plays which entities.
        drain_s: as long as running games may go on after `stop`.
        games: so many games are played, then it ends; None: until `stop`.
        records: a folder for `episodes.jsonl` and `games.jsonl`; None: nothing is recorded.
        say: takes a line for the user.

    Attributes:
        scoreboard: of the games that are over.
    """

    def __init__(
        self,
        connection: Connection,
        match: MatchPlan,
        players: Sequence[Player],
        *,
        drain_s: float,
        games: int | None,
        records: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self._connection, self._match, self._players = connection, match, players
        self._drain_s, self._say = drain_s, say
        self.interface = connection.games.interface
        self.table: Slots = connection.table
        self.table.most = games
        self.tick: Tick
        self.scoreboard = Scoreboard([player.name for player in players])
        self._ticks = self._batches = self._contradicting = 0
        self._finished: list[Game] = []
        seats = check_seats(match, self.interface)
        self._lock = None if records is None else RunLock.take(records)
        self._journal = None if records is None else Journal(records / "episodes.jsonl")
        self._counts = None if records is None else Journal(records / "games.jsonl")
        before = [0] * match.lanes  # of earlier servers, whose numbers of episodes and ticks go on
        if records is not None:
            recorded = JournalReader(records / "episodes.jsonl")
            for line in recorded.lines(EpisodeRecord):
                self._ticks = max(self._ticks, line.tick)
                if line.match == match.match and line.lane < match.lanes:
                    before[line.lane] = line.episode + 1
            if recorded.count:
                say(f"{shown(records)}: goes on after {pluralize(recorded.count, 'recorded game')}")
        self._tracker = GameTracker(self, Tracked(match, seats, range(match.lanes), before, rule="info"))
        self._actions = [empty_batch(space, match.lanes) for space in self.interface.action_spaces]
        self._in_slots: list[Game | None] = [None] * match.lanes
        self._woken = threading.Event()
        connection.wake = self._ring
        self._calls: deque[Callable[[], None]] = deque()
        self._unnamed = 0  # requests without a game
        self._stopped = self._drains = False
        self._deadline: float | None = None
        self._reported_at = self._counted_at = 0.0

    def stop(self) -> None:
        """No game may begin any more; `run` returns when those that run have ended.

        A signal handler may call it, so it takes no lock: `run` looks often enough.
        """
        self._stopped = True

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function between two batches. Any thread may call it."""
        self._calls.append(function)
        self._ring()

    def run(self) -> None:
        """Serves until it is stopped, all games were played, or no game will come any more.

        Where the games have a loop of their own and the policies are quick, they are computed on that loop: two
        threads would hand each request over, and wait for one another's interpreter lock.
        """
        games = self._connection.games
        on_loop = getattr(games, "run_on_loop", None)
        if sum(player.warm_up() for player in self._players) >= _QUICK_S:
            on_loop = None
        self._reported_at = self._counted_at = time.monotonic()
        self._connection.pause(False)
        if games.address:
            kind = "shared_memory" if getattr(games, "closed_loop", False) else "http"
            self._say(f"listening {kind} {games.address}")
            if kind == "http":
                begin = f"curl -H 'game_id: one' -H 'step_kind: start' -d '' {games.address}"
                self._say(f"a game begins with: {begin}; Ctrl-C ends the server")
                server: Any = games  # `HttpGames`
                most, rules = server.most_connections, server.rules
                self._say(
                    f"limits: {pluralize(self.table.size, 'game')} at the same time (--slots); {most} connections, "
                    f"{most // 2} of one address; a game is lost after {rules.idle_s:g} s without a request (idle_s), "
                    f"or {rules.answer_s:g} s without an answer (answer_s)"
                )
        if on_loop is not None:
            on_loop(self._turn)
        else:
            while (seconds := self._turn()) is not None:
                self._woken.wait(seconds)
        self._record(self.table.form(at_once=True))  # the games that the last turn has lost
        self._count()
        self._report()

    def _turn(self) -> float | None:
        """Answers what has come; returns how many seconds may pass until the next turn, None at the end."""
        games, table = self._connection.games, self.table
        self._woken.clear()
        while self._calls:
            self._calls.popleft()()
        again = games.poll(table)
        for text in self._connection.take_notices():
            self._say(text)
        for slot, reason in table.overdue():
            table.lose(slot, reason)
            games.drop(slot, reason)
        tick = table.form()
        now = time.monotonic()
        if tick is not None:
            self._answer(tick)
        if now >= self._counted_at + _COUNTS_S:
            self._counted_at = now
            self._count()
        if now >= self._reported_at + _REPORT_S:
            self._reported_at = now
            self._report()
        if not self._drains and (self._stopped or table.drains or games.exhausted):
            self._drains = True
            if (drain := getattr(games, "drain", None)) is not None:
                drain()
        if self._deadline is not None and now >= self._deadline:  # requests from before `stop` were taken
            return None
        if self._stopped and self._deadline is None:
            table.most, self._deadline = 0, now + self._drain_s
            if table.running:
                running = pluralize(table.running, "running game")
                self._say(f"asked to stop: {running} may go on for {self._drain_s:g} s, none may begin")
        if tick is not None and not getattr(games, "idle", False):  # what the table could not take before the tick
            return 0.0
        if self._drains and table.running == 0:
            return None
        dues = [self._reported_at + _REPORT_S, self._counted_at + _COUNTS_S]
        dues += [] if self._deadline is None else [self._deadline]
        waits = [_LOOK_S, min(dues) - now, *(one for one in (again, table.seconds()) if one is not None)]
        return max(0.0, min(waits))

    def close(self) -> None:
        """Ends all games and frees all resources."""
        self._connection.close("over")
        for journal in (self._journal, self._counts):
            if journal is not None:
                journal.close()
        if self._lock is not None:
            self._lock.release()

    def _ring(self) -> None:
        """Wakes `run`; most often another request has done so already."""
        if not self._woken.is_set():
            self._woken.set()

    def take_finished(self) -> list[Game]:
        """The accounts of games that are over, each once."""
        finished, self._finished = self._finished, []
        return finished

    def _answer(self, tick: Tick) -> None:
        """Answers the rows that ask."""
        self.tick = tick
        self._ticks += 1
        table, games, frame = self.table, self._connection.games, tick.begun
        assert frame.external is not None, "external games have it"
        asks = frame.active & ~frame.external.given
        self._batches += bool(asks.any())
        for slot in np.flatnonzero(asks.any(axis=1)).tolist():
            game = table.game(slot)
            if game is not self._in_slots[slot]:
                self._in_slots[slot] = game
                self._unnamed += not game.name
                for player in self._players:
                    player.begin(slot, game.name or f"request {self._unnamed}")
        versions = [-1] * len(self.interface.entities)
        failed: set[int] = set()
        for player in self._players:
            failed.update(player.act(asks, frame.observations, frame.masks, self._actions))
            for entity in player.entities:
                versions[entity] = player.model.version
        for slot in failed:
            table.lose(slot, "policy_error")
            games.drop(slot, "policy_error")
        answers = table.answers(self._actions, versions)
        if len(answers.slots):
            games.answer(answers)
        self._record(tick)

    def _record(self, tick: Tick | None) -> None:
        """Takes the games that are over to the scoreboard, and to the records."""
        if tick is not None and tick.finished:
            self._finished += tick.finished
            records = self._tracker.finish(tick.over, self._ticks)
            self._contradicting += sum(one.contradicts for one in records)
            self.scoreboard.take(records)
            if self._journal is not None:
                versions = {player.name: player.model.version for player in self._players}
                ticks = {name: UNSET if version < 0 else version for name, version in versions.items()}
                for one in records:
                    seats = tuple(replace(seat, checkpoint=ticks[seat.policy]) for seat in one.seats)
                    self._journal.extend([replace(one, seats=seats)])
                self._journal.flush()

    def _count(self) -> None:
        if self._counts is not None:
            self._counts.extend([self._connection.counts(self._match.match, self._ticks)])
            self._counts.flush()

    def _report(self) -> None:
        counts = self.table.counts
        self._say(
            f"{self.table.running} of {self.table.size} slots, {counts.begun} games begun, {counts.ended} ended, "
            f"{lost_and_refused(counts.lost, counts.lost_by, self._connection.refused_by())}; "
            f"{pluralize(counts.asks, 'action')} in "
            f"{pluralize(self._batches, 'batch', 'batches')}"
        )
        for line in contradicting_text({self._match.env: self._contradicting} if self._contradicting else {}):
            self._say(line)
