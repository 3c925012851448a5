"""Who is best, and how sure one is: ratings, the payoff matrix and what the meta-game says, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec
import numpy as np

from arena.config.league import DecidedConfig
from arena.config.members import Sides, players
from arena.config.schema import Config
from arena.league.metagame.alpha_rank import alpha_rank_with_uncertainty
from arena.league.metagame.nash_averaging import nash_average_with_uncertainty
from arena.league.metagame.payoff import Payoff, payoff
from arena.league.metagame.posterior import Estimate
from arena.league.populations import populations_of, separate_rows
from arena.league.ratings.contradictions import Contradiction
from arena.league.ratings.ratings import Interval, Ratings, fit
from arena.league.ratings.standings import Caution, Curtailed, Row, caution, curtailed, rows
from arena.league.read_results import ResultSet
from arena.league.results import Results
from arena.league.tournament import Doubt, Rule, equals, table
from arena.report.colors import Colors
from arena.run.status import planned_ticks

MOST_IN_MATRIX = 24  # players: more cells than 24 x 24 are not readable
_MOST_PAIRS = 3
SAMPLES = 200  # of the payoffs' posterior


class Standing(msgspec.Struct, frozen=True):
    """A player; a snapshot's policy is another name.

    Args:
        rank: 1 is the strongest, by `elo`.
        low: of the 95 % interval of `elo`; `high` likewise.
    """

    rank: int
    player: str
    policy: str
    color: str
    elo: float
    low: float
    high: float
    games: int
    wins: float
    draws: float
    losses: float
    population: str = ""


class Cell(msgspec.Struct, frozen=True):
    """The expected score of the row's player against the column's, with its 95 % interval."""

    score: float
    low: float
    high: float
    games: int


class Matrix(msgspec.Struct, frozen=True):
    """The payoffs between players, in the order of the standings; `left_out` is how many more there are."""

    players: list[str]
    colors: list[str]
    cells: list[list[Cell]]
    left_out: int


class MetaRow(msgspec.Struct, frozen=True):
    """What the meta-game says of a player; each with its 95 % interval over the posterior of the payoffs.

    Args:
        nash: its probability in the equilibrium of largest entropy.
        skill: its expected score against that equilibrium, minus that of a draw.
        alpha_rank: its mass in the stationary distribution.
    """

    player: str
    color: str
    nash: tuple[float, float, float]
    skill: tuple[float, float, float]
    alpha_rank: tuple[float, float, float]


class Order(msgspec.Struct, frozen=True):
    """Whether the order of all players is decided as it was asked for: at an error, by differences of `elo` or more.

    Args:
        contradictions: pairs whose own games contradict it, the first few of `contradicting`; while there are any it is
            not decided.
        unmet: the first few of the `not_met` pairs that have not met in a game that counts.
    """

    decided: bool
    error: float
    elo: float
    contradictions: list[Contradiction]
    contradicting: int
    unmet: list[tuple[str, str]]
    not_met: int


class Standings(msgspec.Struct, frozen=True):
    """The whole table.

    Args:
        prior: whether the strengths have a weak prior, as games alone do not say what is most likely: see `Ratings`.
        games: that count. The others are `unrated` (no winner, or not two sides), `aborted` or `stale` (older than the
            window of the league, in rounds).
        side: how many Elo the first side is worth, with its 95 % interval.
        curtailed: whose games were cut most; None where that is too little to matter, and where lanes play a number of
            games, whatever their length.
        order: None if no decided order was asked for.
        equal: the neighbors that have proved to be as good as each other.
        outdated: who is not rated, as all of its games are older than the window.
        caution: what the numbers do not tell of policies that learn, and of players with one opponent.
    """

    rows: list[Standing]
    matrix: Matrix
    meta: list[MetaRow]
    prior: bool
    side: Interval
    games: int
    unrated: int
    aborted: int
    stale: int
    window: int | None
    curtailed: Curtailed | None
    order: Order | None
    equal: list[Doubt]
    outdated: list[str]
    caution: Caution

    @property
    def tables(self) -> list[tuple[str, list[Standing]]]:
        """The rows in one table, or those of each of two populations, with its title; empty: there is one."""
        return [(title, [*own]) for title, own in groupby(self.rows, key=lambda row: row.population)]

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest end of all intervals."""
        return min(row.low for row in self.rows), max(row.high for row in self.rows)


def standings(
    reading: ResultSet, config: Config, colors: Colors, *, window: int | None, rule: DecidedConfig | None = None
) -> Standings | None:
    """The standings of those who have met; None where fewer than two players have.

    Args:
        reading: the games.
        config: of the run.
        colors: of the players.
        window: of the league, in rounds.
        rule: when the order is decided; None: not asked for.
    """
    if len(reading.results.players) < 2:
        return None
    ratings = fit(reading.results)
    sides = populations_of(config, reading.results.players, tournament=planned_ticks(config) is None)
    ranked = rows(ratings, reading.results) if sides is None else separate_rows(ratings, reading.results, sides)
    order = [row.player for row in ranked]
    shown = _shown(order, config)
    scores = payoff(reading.results, shown)
    return Standings(
        rows=_rows(ranked, ratings, colors),
        matrix=_matrix(scores, colors, left_out=len(order) - len(shown)),
        meta=_meta(scores, colors) if sides is None else [],
        prior=ratings.prior,
        side=ratings.side,
        games=reading.results.games,
        unrated=reading.unrated,
        aborted=reading.aborted,
        stale=reading.stale,
        window=window,
        curtailed=None if planned_ticks(config) is None else curtailed(ratings, reading.cut, config),
        order=None if rule is None else _order(reading.results, config, rule, sides),
        equal=_equal(reading.results, rule or DecidedConfig(), sides),
        outdated=[*reading.outdated],
        caution=caution(reading.results, config, window=window),
    )


def _equal(results: Results, rule: DecidedConfig, sides: Sides | None) -> list[Doubt]:
    together = [results.players] if sides is None else [*sides]
    return [doubt for players in together for doubt in equals(results, players, error=rule.error, elo=rule.elo)]


def _order(results: Results, config: Config, rule: DecidedConfig, sides: Sides | None) -> Order:
    """In a tournament, whose configuration is that of its first batch, all policies play."""
    names = [*config.policies] if config.league is None else players(config)
    found = table(results, names, Rule(results.games, rule.error, rule.elo), sides=sides)
    return Order(
        decided=found.decided,
        error=rule.error,
        elo=rule.elo,
        contradictions=[*found.contradictions[:_MOST_PAIRS]],
        contradicting=len(found.contradictions),
        unmet=[*found.unmet[:_MOST_PAIRS]],
        not_met=len(found.unmet),
    )


def _rows(ranked: Sequence[Row], ratings: Ratings, colors: Colors) -> list[Standing]:
    return [
        Standing(
            rank=row.rank,
            player=row.player,
            policy=row.player.partition("@")[0],
            color=colors[row.player],
            elo=row.elo,
            low=row.low,
            high=row.high,
            games=ratings.of(row.player).games,
            **row.score._asdict(),
            population=row.population,
        )
        for row in ranked
    ]


def _shown(order: Sequence[str], config: Config) -> list[str]:
    """Those who fit into the matrix: the configured policies first, then the strongest snapshots; best first."""
    first = [player for player in order if player in config.policies]
    chosen = set([*first, *(player for player in order if player not in config.policies)][:MOST_IN_MATRIX])
    return [player for player in order if player in chosen]


def _matrix(scores: Payoff, colors: Colors, *, left_out: int) -> Matrix:
    size = range(len(scores.players))
    cells = [
        [
            Cell(float(scores.mean[i, j]), float(scores.low[i, j]), float(scores.high[i, j]), int(scores.games[i, j]))
            for j in size
        ]
        for i in size
    ]
    return Matrix(list(scores.players), [colors[player] for player in scores.players], cells, left_out)


def _meta(scores: Payoff, colors: Colors) -> list[MetaRow]:
    samples = scores.sample(np.random.default_rng(0), SAMPLES)  # always the same: a page made again is the same page
    nash, ranks = nash_average_with_uncertainty(samples), alpha_rank_with_uncertainty(samples)
    return [
        MetaRow(player, colors[player], _of(nash.strategy, i), _of(nash.skill, i, less=0.5), _of(ranks, i))
        for i, player in enumerate(scores.players)
    ]


def _of(estimate: Estimate, player: int, *, less: float = 0.0) -> tuple[float, float, float]:
    mean, low, high = (float(values[player]) - less for values in estimate)
    return mean, low, high
