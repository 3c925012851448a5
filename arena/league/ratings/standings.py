"""Tables of rated players: a row per player with its Elo and interval; and the bias by games that were cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arena.config.members import Sides, separate_populations
from arena.config.schema import Config
from arena.league.ratings.ranking import OrderUncertainty, equals
from arena.league.ratings.ratings import Ratings, comparable, fit
from arena.league.results import Results, Score
from arena.league.timeline import PolicyReset, Timeline

ENOUGH = 30
"""Finished games per game that the end of a leg has cut, from which on a rating is taken for unbiased.

Games that have begun are an unbiased sample. The games that count are these without those that were cut, which are
mostly long. So between equal players, the share of points of the one that loses the long games is too large, by at most
half of cut / finished: 347 Elo times that, 12 Elo at 30. A game that ends with its leg is not cut, and adds no bias.
"""


POPULATIONS = ("first side", "second side")


class Row(NamedTuple):
    """A row of a table: a player with its rating and its results."""

    rank: int  # 1 is the strongest, by `elo`
    player: str
    elo: float  # its distance from the mean of its table; of two populations see `populations_of`
    low: float  # where the 95 % interval of `elo` begins
    high: float  # where it ends
    score: Score  # of the sides on which it sat
    population: str = ""  # `first side` or `second side`, where there are two that only meet each other
    scale: int = 0  # players can be compared where these numbers are the same, as games connect them
    began: PolicyReset | None = None  # when it started over, as a copy of another policy or from its first weights

    @property
    def share(self) -> float | None:
        """The points of a game, in [0, 1]; None without a game."""
        return self.score.points / self.score.games if self.score.games else None


class CutGamesBias(NamedTuple):
    """The bias by games that were cut."""

    games: float  # finished games per game that was cut: about as many as a lane plays between two cuts
    by: str  # what has cut them by its end: a `leg`, a `round`, or the `run`
    key: str  # the key of the configuration that makes these longer


class LeagueTable(NamedTuple):
    """The tables of a league, see `tables`, and what qualifies them."""

    tables: list[list[Row]]
    prior: bool  # whether the strengths have a weak prior: see `Ratings`
    curtailed: CutGamesBias | None  # None if the bias is small
    # Neighbors that have proved to be as good as each other; none where policies learn.
    equal: Sequence[OrderUncertainty] = ()
    without_winner: Sequence[str] = ()  # a line for each game without winners: why it is not rated


def league_table(
    timeline: Timeline, cut: int, config: Config, *, counted: Timeline | None = None, at: int | None = None
) -> LeagueTable:
    """The standings of a run.

    Args:
        timeline: all games.
        cut: as in `ResultSet`.
        config: of the run.
        counted: the games up to a tick: their players are listed, with the scores of these games; None: all.
        at: that tick, at which the players are rated, by all games; None: the end.
    """
    now = timeline if counted is None or at is None else counted.until(at)
    if not now.players:
        return LeagueTable([], prior=False, curtailed=None)
    ratings = fit(timeline, now=now, at=at)
    found = tables(ratings, timeline, sides=populations_of(config, now.players), now=now, at=at)
    equal = (
        [] if timeline.learns else [one for each in found for one in equals(now.results, [row.player for row in each])]
    )
    return LeagueTable(found, ratings.prior, curtailed(now.results.games, cut, config), equal)


def curtailed(games: int, cut: int, config: Config) -> CutGamesBias | None:
    """The bias by games that were cut, see `ResultSet`, beside those that count; None if it is small.

    Not for tournaments, in which each lane plays a fixed number of games.
    """
    if games >= ENOUGH * cut:
        return None
    if config.checkpoint_every < config.ticks:
        return CutGamesBias(games / cut, "leg", "checkpoint_every")
    return CutGamesBias(games / cut, "round" if config.rounds > 1 else "run", "ticks")


def populations_of(config: Config, players: Sequence[str], *, tournament: bool = False) -> Sides | None:
    """The players of each of two populations that only meet each other, such as predators and prey; None without such.

    In a tournament players of one population meet on both sides.

    Games between the two cannot separate the worth of the first side from the strength of the first population. So
    their sum is one number, the **gap**, and each player is rated within its population: its Elo is its distance from
    the mean of its population, plus half of the gap for the first and minus half of it for the second. A player of the
    first side then scores a half against one of the second side with the same Elo. Intervals are of distances within a
    population.
    """
    sides = separate_populations(config, declared=not tournament)
    if sides is None:
        return None
    policies = {name: name if name in config.policies else name.rpartition("@")[0] for name in players}
    return Sides(*(tuple(name for name in players if policies[name] in side) for side in sides))


def tables(
    ratings: Ratings,
    played: Results | Timeline,
    *,
    sides: Sides | None = None,
    now: Timeline | None = None,
    at: int | None = None,
) -> list[list[Row]]:
    """The tables of all rated players: one, or of two populations two, for each set of players that games connect.

    Players of one set can be compared; the largest set comes first, and in a table the best player. `now` are the games
    that count at the tick `at`; None: all.
    """
    current = now or played
    scores, begun = current.tallies(), current.newest_beginnings if isinstance(current, Timeline) else {}
    found: list[list[Row]] = []
    for scale, names in enumerate(comparable(played, ratings.players, at=at)):
        titled = [("", names)]
        if sides is not None:
            titled = [
                (title, members)
                for title, side in zip(POPULATIONS, sides, strict=True)
                if (members := [name for name in names if name in side])
            ]
        middle = [0.0] * len(titled)  # the Elo of the mean of each table
        if len(titled) == 2:
            means = [float(np.mean([ratings.of(name).elo for name in members])) for _, members in titled]
            half = (means[0] - means[1] + ratings.side.value) / 2
            middle = [half, -half]
        for (title, members), mean in zip(titled, middle, strict=True):
            of_table = ratings.among(members)
            table: list[Row] = []
            for rank, player in enumerate(of_table.order(), start=1):
                elo, low, high = (mean + number for number in of_table.of(player)[:3])
                score, began = scores.get(player, Score()), begun.get(player)
                table.append(Row(rank, player, elo, low, high, score, title, scale, began))
            found.append(table)
    return found
