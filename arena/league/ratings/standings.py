"""The standings as rows: who is best, by how much, and how sure one is; and whether short games count too often."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from arena.config.schema import Config
from arena.league.ratings.ratings import Ratings, fit
from arena.league.results import Results, Score

if TYPE_CHECKING:
    from arena.league.tournament import Doubt  # which has tables of these rows

ENOUGH = 30
"""Finished games for each that the end of a leg has cut, from which on a rating is taken for unbiased.

Games that have begun are fair, as it is not known then how they will end. Those that count are these without the ones
that were cut, which are long ones mostly. So where equals play, the share of points of the one who loses the long games
is too large, by at most half of cut / finished: 347 Elo times that, 12 Elo at 30. A game that ends with its leg is not
cut, and biases nothing.
"""


class Row(NamedTuple):
    """A player.

    Args:
        rank: 1 is the strongest, by `elo`.
        player: its name.
        elo: its distance from the mean of all players.
        low: where the 95 % interval of `elo` begins.
        high: where it ends.
        score: of the sides on which it sat.
        population: `first side` or `second side`, where there are two that only meet each other; else empty.
    """

    rank: int
    player: str
    elo: float
    low: float
    high: float
    score: Score
    population: str = ""

    @property
    def share(self) -> float | None:
        """The points of a game, in [0, 1]; None without a game."""
        return self.score.points / self.score.games if self.score.games else None


class LeagueTable(NamedTuple):
    """What a league has found out.

    Args:
        rows: of all players that are rated, the best first.
        prior: whether the strengths have a weak prior: see `Ratings`.
        curtailed: who is rated worst because games were cut; None where that is too little to matter.
        outdated: who is not rated, as all of its games are older than the window.
        equal: the neighbors that have proved to be as good as each other.
        without_winner: why games are not rated that have no winners; a line for each.
        caution: what the numbers do not tell.
    """

    rows: list[Row]
    prior: bool
    curtailed: Curtailed | None
    outdated: Sequence[str] = ()
    equal: Sequence[Doubt] = ()
    without_winner: Sequence[str] = ()
    caution: Caution | None = None


class Caution(msgspec.Struct, frozen=True):
    """What a table of ratings does not tell.

    Args:
        learners: rated players that learn; each is rated as one player over the games of the window.
        window: in rounds; None: all rounds, or there is one.
        single: rated players that have met one opponent only, with that opponent; none where two players are rated.
    """

    learners: list[str]
    window: int | None
    single: dict[str, str]


class Curtailed(NamedTuple):
    """The player of whose games the largest share was cut.

    Args:
        player: its name.
        games: that it has finished for each that was cut: so many, about, a lane plays from cut to cut.
        by: what has ended then: a `leg`, a `round`, or the `run`.
        key: of the configuration, which makes them longer.
    """

    player: str
    games: float
    by: str
    key: str


def league_table(results: Results, cut: Mapping[str, int], config: Config) -> LeagueTable:
    """The standings of a league, in which ticks decide how much is played.

    Args:
        results: of the games that count.
        cut: per player the games that do not, as they were cut: see `ResultSet`.
        config: of the league.
    """
    if not results.players:
        return LeagueTable([], prior=False, curtailed=None)
    ratings = fit(results)
    return LeagueTable(rows(ratings, results), ratings.prior, curtailed(ratings, cut, config))


def caution(results: Results, config: Config, *, window: int | None) -> Caution:
    """What a table of these results does not tell.

    Args:
        results: of the games that count.
        config: of the run.
        window: of so many of the newest rounds the games of policies that learn count; None: of all.
    """
    rated, learners = results.players, config.learners
    met: dict[str, set[str]] = {player: set() for player in rated}
    for first, second in results.pairs():
        for mine, theirs in ((first, second), (second, first)):
            for player in mine:
                met[player].update(theirs)
    others = {player: opponents - {player} for player, opponents in met.items()}
    single = {player: min(found) for player, found in others.items() if len(found) == 1 and len(rated) > 2}
    return Caution([player for player in rated if player in learners], window, single)


def curtailed(ratings: Ratings, cut: Mapping[str, int], config: Config) -> Curtailed | None:
    """The player whose rating is biased most by games that were cut; None where that is too little to matter.

    Args:
        ratings: of the games that count.
        cut: per player the games that do not, as they were cut: see `ResultSet`.
        config: of the run, in which ticks decide how much is played.
    """
    found = {player: ratings.of(player).games / cut[player] for player in ratings.players if cut.get(player)}
    fewest = min(found, key=found.__getitem__, default=None)
    if fewest is None or found[fewest] >= ENOUGH:
        return None
    if config.checkpoint_every < config.ticks:
        return Curtailed(fewest, found[fewest], "leg", "checkpoint_every")
    return Curtailed(fewest, found[fewest], "round" if config.rounds > 1 else "run", "ticks")


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
