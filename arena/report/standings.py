"""The standings: ratings, the payoff matrix and the measures of the meta-game, each with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from arena.config.league import DecidedConfig
from arena.config.members import Sides, players
from arena.config.schema import Config
from arena.league.metagame.measures import Measures, in_matrix, measures
from arena.league.metagame.meetings import Span, meetings
from arena.league.metagame.payoff import Payoff, payoff
from arena.league.ratings.contradictions import Contradiction
from arena.league.ratings.curves import CurvePoint, at_tick, curves
from arena.league.ratings.ranking import Doubt, equals
from arena.league.ratings.ratings import Interval, Ratings, fit
from arena.league.ratings.standings import Curtailed, Narrow, curtailed, narrow_leader, populations_of, tables
from arena.league.read_results import ResultSet
from arena.league.results import Results
from arena.league.timeline import Beginning, Timeline
from arena.league.tournament import Rule, table
from arena.report.colors import Colors
from arena.roles.status import planned_ticks

_MOST_PAIRS = 3


class Standing(msgspec.Struct, frozen=True):
    """A player; of a snapshot, `policy` is the name without its tick.

    Args:
        rank: 1 is the strongest of its table, by `elo`.
        low: of the 95 % interval of `elo`; `high` likewise.
        table: the number of its table; players can be compared where `scale` is the same.
        began: when it began anew, as a copy of another policy or from its first weights; None: it did not.
    """

    table: int
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
    scale: int = 0
    began: Beginning | None = None


class Cell(msgspec.Struct, frozen=True):
    """The expected score of the row's player against the column's, with its 95 % interval."""

    score: float
    low: float
    high: float
    games: int


class Matrix(msgspec.Struct, frozen=True):
    """The payoffs between players, in the order of the standings; `left_out` is how many more there are.

    Args:
        spans: from which ticks the games of each player are; None for players that never change.
    """

    players: list[str]
    colors: list[str]
    cells: list[list[Cell]]
    left_out: int
    spans: list[Span | None]


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


class StrengthCurve(msgspec.Struct, frozen=True):
    """The strength of a policy that learns over ticks, and of its snapshots, on the scale of its table."""

    points: list[CurvePoint]
    snapshots: dict[str, CurvePoint]
    scale: int


class Standings(msgspec.Struct, frozen=True):
    """The whole table.

    Args:
        prior: whether the strengths have a weak prior, as games alone do not determine them: see `Ratings`.
        curves: of policies that learn.
        games: that count. The others are `unrated` (no winner, or not two sides) or `aborted`.
        side: how many Elo the first side is worth, with its 95 % interval.
        curtailed: the player whose rating is biased most by games that were cut; None where that is too little to
            matter, and where lanes play a number of games, whatever their length.
        order: None if no decided order was asked for.
        narrow: the leader, where its rating rests on few opponents; None in a tournament.
        equal: the neighbors that have proved to be as good as each other; none where policies learn.
    """

    rows: list[Standing]
    matrix: Matrix
    meta: list[Measures]
    curves: dict[str, StrengthCurve]
    prior: bool
    side: Interval
    games: int
    unrated: int
    aborted: int
    curtailed: Curtailed | None
    order: Order | None
    equal: list[Doubt]
    narrow: Narrow | None

    @property
    def tables(self) -> list[list[Standing]]:
        """The rows table by table."""
        return tables_of(self.rows)

    @property
    def charted(self) -> dict[int, dict[str, StrengthCurve]]:
        """The curves of each scale: those of one can be compared."""
        scales = sorted({curve.scale for curve in self.curves.values()})
        return {
            scale: {policy: curve for policy, curve in self.curves.items() if curve.scale == scale} for scale in scales
        }

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest end of all intervals."""
        return min(row.low for row in self.rows), max(row.high for row in self.rows)


def standings(
    reading: ResultSet, config: Config, colors: Colors, *, rule: DecidedConfig | None = None
) -> Standings | None:
    """The standings of the players that have met; None if these are fewer than two.

    Args:
        reading: the games.
        config: of the run.
        colors: of the players.
        rule: when the order is decided; None: not asked for.
    """
    timeline, results = reading.timeline, reading.results
    if len(timeline.players) < 2:
        return None
    ratings = fit(timeline)
    sides = populations_of(config, timeline.players, tournament=planned_ticks(config) is None)
    found = rows(ratings, timeline, colors, sides)
    shown = in_matrix([row.player for row in found], config.policies)
    scores = payoff(timeline, shown)
    wanted = rule or DecidedConfig()
    taken: dict[str, dict[str, int]] = {}
    for name in timeline.snapshots:
        policy, _, tick = name.rpartition("@")
        taken.setdefault(policy, {})[name] = int(tick)
    drawn = curves(timeline, [{row.player: row.elo for row in own} for own in tables_of(found)])
    scales = {row.player: row.scale for row in found}
    return Standings(
        rows=found,
        matrix=_matrix(scores, colors, left_out=len(found) - len(shown), spans=meetings(timeline).spans(shown)),
        meta=measures(scores) if sides is None else [],
        curves={
            policy: StrengthCurve(
                points,
                {name: at for name, tick in taken.get(policy, {}).items() if (at := at_tick(points, tick)) is not None},
                scales[policy],
            )
            for policy, points in drawn.items()
        },
        prior=ratings.prior,
        side=ratings.side,
        games=results.games,
        unrated=reading.unrated,
        aborted=reading.aborted,
        curtailed=None if planned_ticks(config) is None else curtailed(ratings, reading.cut, config),
        narrow=None
        if planned_ticks(config) is None
        else narrow_leader(timeline, [row.player for row in found if row.table == 0]),
        order=None if rule is None else _order(results, config, rule, sides),
        equal=[]
        if timeline.learns
        else [
            one
            for own in tables_of(found)
            for one in equals(results, [row.player for row in own], error=wanted.error, elo=wanted.elo)
        ],
    )


def tables_of(rows: Sequence[Standing]) -> list[list[Standing]]:
    """The rows table by table."""
    return [[*own] for _, own in groupby(rows, key=lambda row: row.table)]


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


def rows(ratings: Ratings, timeline: Timeline, colors: Colors, sides: Sides | None = None) -> list[Standing]:
    """All players, table by table, in each the best first; `sides`: of two populations that only meet each other."""
    return [
        Standing(
            table=number,
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
            scale=row.scale,
            began=row.began,
        )
        for number, own in enumerate(tables(ratings, timeline, sides=sides))
        for row in own
    ]


def _matrix(scores: Payoff, colors: Colors, *, left_out: int, spans: list[Span | None]) -> Matrix:
    size = range(len(scores.players))
    cells = [
        [
            Cell(float(scores.mean[i, j]), float(scores.low[i, j]), float(scores.high[i, j]), int(scores.games[i, j]))
            for j in size
        ]
        for i in size
    ]
    return Matrix(list(scores.players), [colors[player] for player in scores.players], cells, left_out, spans)
