"""How the policies of a run fare: the numbers of the live display and of the last lines of a run."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from arena.records.lines import EpisodeRecord, SeatRecord, UpdateRecord

WINDOW = 100  # how many of the first and of the last values are kept


@dataclass
class Series:
    """A stream of numbers: its mean, its beginning and its end."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    first: list[float] = field(default_factory=list)
    last: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Takes one more number."""
        self.count += 1
        self.total += value
        self.squares += value * value
        self.last.append(value)
        if self.count <= WINDOW:
            self.first.append(value)

    @property
    def mean(self) -> float | None:
        """Over all; None when there are none."""
        return self.total / self.count if self.count else None

    @property
    def deviation(self) -> float:
        """The standard deviation (of the population) over all; 0 when there are none."""
        if not self.count:
            return 0.0
        return math.sqrt(max(0.0, self.squares / self.count - (self.total / self.count) ** 2))

    @property
    def first_mean(self) -> float | None:
        """Over the first 100, or fewer."""
        return _mean(self.first)

    @property
    def last_mean(self) -> float | None:
        """Over the last 100, or fewer."""
        return _mean(self.last)

    def before_and_after(self) -> tuple[int, float, float] | None:
        """How many, the mean of the first so many, the mean of the last so many; the two do not overlap.

        None with fewer than 20 numbers, which say nothing about a change.
        """
        if self.count < 20:
            return None
        size = min(WINDOW, self.count // 2)
        return size, sum(self.first[:size]) / size, sum(list(self.last)[-size:]) / size


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


@dataclass
class Score:
    """How one policy fares.

    Args:
        returns: per episode, the mean over the policy's entities of their return.
        lengths: per episode, its ticks.
        games: per decided game, the share of it that the policy won: 1, or 0 for a loss or a draw, or between the
            two where it sat on both sides.
        drawn: likewise, the share that was drawn.
        wins: games won; draws and losses likewise. A policy that plays against itself wins and loses half a game.
        values: what the last update logged.
        updates: how many updates it has made.
    """

    returns: Series = field(default_factory=Series)
    lengths: Series = field(default_factory=Series)
    games: Series = field(default_factory=Series)
    drawn: Series = field(default_factory=Series)
    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    values: Mapping[str, float] = field(default_factory=dict)
    updates: int = 0

    @property
    def episodes(self) -> int:
        """How many episodes it has finished."""
        return self.returns.count

    @property
    def win_rate(self) -> float | None:
        """Won games among the last 100 decided ones, draws counted as games; None when there are none."""
        return self.games.last_mean

    def add(self, seats: Sequence[SeatRecord], length: int) -> None:
        """Takes one episode, given all seats that the policy had in it."""
        entities = sum(len(seat.entities) for seat in seats)
        self.returns.add(sum(seat.return_ * len(seat.entities) for seat in seats) / entities)
        self.lengths.add(length)
        if any(seat.outcome is None for seat in seats):
            return
        shares = {"win": 0.0, "draw": 0.0, "loss": 0.0}
        for seat in seats:
            shares[str(seat.outcome)] += len(seat.entities) / entities
        self.wins += shares["win"]
        self.draws += shares["draw"]
        self.losses += shares["loss"]
        self.games.add(shares["win"])
        self.drawn.add(shares["draw"])


class Scoreboard:
    """Running statistics of all policies, in the order in which they were named or first seen."""

    def __init__(self, policies: Iterable[str] = ()) -> None:
        self.policies: dict[str, Score] = {name: Score() for name in policies}

    def episode(self, record: EpisodeRecord) -> None:
        """Takes a finished episode; each policy in it counts it once, however many seats it had."""
        sides: dict[str, list[SeatRecord]] = {}
        for seat in record.seats:
            sides.setdefault(seat.policy, []).append(seat)
        for policy, seats in sides.items():
            self._score(policy).add(seats, record.length)

    def update(self, record: UpdateRecord) -> None:
        """Takes an update of a policy."""
        score = self._score(record.policy)
        score.updates = record.update
        score.values = record.values

    def _score(self, policy: str) -> Score:
        if policy not in self.policies:
            self.policies[policy] = Score()
        return self.policies[policy]
