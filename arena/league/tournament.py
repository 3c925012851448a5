"""A tournament: batch after batch of the games that say most about the order, until it is decided or the budget is used.

Two players **meet** in every setting, on both sides, once in each lane. A batch has as many meetings as there are
players, fewer where the budget ends, and grows with what was played before: so there are few batches to wait for, and
at most about a quarter of all games are played after the order was decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from arena.config.matches import MatchConfig, SeatEntry
from arena.league.pairing import Standings, most_informative
from arena.league.results import Results
from arena.league.standings import Row, rows

_GROWTH = 4  # a batch is one part of so many that were played before


class Rule(NamedTuple):
    """When a tournament is over.

    Args:
        games: at most so many are played.
        error: how probable it may be that two of the players are in the wrong order.
        elo: the difference that the games are to resolve.
    """

    games: int
    error: float
    elo: float


class Batch(NamedTuple):
    """What is played next: match descriptions, and how many episodes of each lane."""

    matches: tuple[MatchConfig, ...]
    episodes: int


class Doubt(NamedTuple):
    """Two neighbours in the standings, and how probable it is that they stand in the wrong order."""

    upper: str
    lower: str
    probability: float


class Table(NamedTuple):
    """What a tournament has found out.

    Args:
        rows: of all players, the best first.
        doubts: about every two neighbours, the best ones first.
        decided: whether the doubts together are no more than the error.
    """

    rows: list[Row]
    doubts: list[Doubt]
    decided: bool

    @property
    def open(self) -> list[Doubt]:
        """Those that have to become smaller: as few as would do."""
        if self.decided:
            return []
        allowed = self.error / len(self.doubts)
        return [doubt for doubt in self.doubts if doubt.probability > allowed]
