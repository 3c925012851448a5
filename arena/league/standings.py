"""The standings as rows: who is best, by how much, and how sure one is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from arena.league.ratings import Ratings
from arena.league.results import Results, Score


class Row(NamedTuple):
    """A player.

    Args:
        rank: 1 is the strongest, by `elo`.
        player: its name.
        elo: its distance from the mean of all players.
        low: where the 95 % interval of `elo` begins.
        high: where it ends.
        score: of the sides on which it sat.
    """

    rank: int
    player: str
    elo: float
    low: float
    high: float
    score: Score

    @property
    def share(self) -> float | None:
        """The points of a game, in [0, 1]; None without a game."""
        return self.score.points / self.score.games if self.score.games else None


def rows(ratings: Ratings, results: Results) -> list[Row]:
    """All players that are rated, the best first.

    Args:
        ratings: fitted to the results.
        results: the games.
    """
    scores = tallies(results, ratings.players)
    return [
        Row(rank, player, *ratings.of(player)[:3], scores[player])
        for rank, player in enumerate(ratings.order(), start=1)
    ]


def tallies(results: Results, players: Iterable[str]) -> Mapping[str, Score]:
    """The games of the sides on which each player sat; of a game between two sides of its own it has both."""
    found = dict.fromkeys(players, Score())
    for teams, score in results.pairs().items():
        for team, seen in zip(teams, (score, score.reversed), strict=True):
            for player in set(team):
                found[player] = found[player].plus(seen)
    return found
