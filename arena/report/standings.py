"""The standings: ratings, the payoff matrix and the measures of the meta-game, each with its interval."""

from __future__ import annotations

import msgspec

from arena.config.league import Decided
from arena.config.members import players
from arena.config.schema import Config
from arena.league.metagame.measures import Measures, in_matrix, measures
from arena.league.metagame.meetings import Span, meetings
from arena.league.metagame.payoff import Pair, pairs, payoff
from arena.league.ratings.contradictions import Contradiction
from arena.league.ratings.curves import CurvePoint, at_tick, curves
from arena.league.ratings.ranking import OrderUncertainty, equals
from arena.league.ratings.ratings import Interval, fit
from arena.league.ratings.standings import (
    ENOUGH,
    CutGamesBias,
    Narrow,
    Row,
    contradicted,
    curtailed,
    guests_of,
    narrow_leader,
    populations_of,
    tables,
)
from arena.league.read_results import ResultSet
from arena.league.tournament import Rule, table
from arena.roles.status import planned_ticks

_MOST_PAIRS = 3


class Matrix(msgspec.Struct, frozen=True):
    """The payoffs between P players, in the order of the standings; [P][P], the row's player against the column's."""

    players: list[str]
    mean: list[list[float]]  # the expected score, with its 95 % interval
    low: list[list[float]]
    high: list[list[float]]
    games: list[list[int]]
    points: list[list[float]]  # a draw counts one half
    left_out: int  # how many more players there are
    spans: list[Span | None]  # from which ticks the games of each player are; None for players that never change


class Order(msgspec.Struct, frozen=True):
    """Whether the order of all players is decided as it was asked for: at an error, by differences of `elo` or more."""

    decided: bool  # never while there are contradictions
    error: float
    elo: float
    unmet: list[tuple[str, str]]  # the first few of the `not_met` pairs that have not met in a game that counts
    not_met: int
    undecided: list[OrderUncertainty]  # the neighbors that keep the order from being decided


class StrengthCurve(msgspec.Struct, frozen=True):
    """The strength of a policy that learns over ticks, and of its snapshots, on the scale of its table."""

    points: list[CurvePoint]
    snapshots: dict[str, CurvePoint]
    scale: int


class Standings(msgspec.Struct, frozen=True):
    """All tables."""

    tables: list[list[Row]]
    matrix: Matrix
    pairs: list[Pair]  # of players of the matrix, once each
    meta: list[Measures]
    curves: dict[str, StrengthCurve]  # of policies that learn
    prior: bool  # whether the strengths have a weak prior, as games alone do not determine them: see `Ratings`
    side: Interval  # how many Elo the first side is worth, with its 95 % interval
    games: int  # that count
    with_themselves: int  # further games, of players against themselves
    unrated: int  # games without a winner, or without two sides
    aborted: int
    curtailed: CutGamesBias | None
    """The player whose rating is biased most by games that were cut; None where that is too little to matter, and where
    lanes play a number of games, whatever their length."""
    order: Order | None  # None if no decided order was asked for
    equal: list[OrderUncertainty]
    """The neighbors that have proved to be as good as each other; none where policies learn."""
    narrow: Narrow | None  # the leader, where its rating rests on few opponents; None in a tournament
    contradictions: list[Contradiction]  # the first few of `contradicting`; if `order` is None, those that `beats`
    contradicting: int
    enough: int = ENOUGH  # games of a lane, so that cut ones do not matter

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
        rows = [row for table in self.tables for row in table]
        return min(row.low for row in rows), max(row.high for row in rows)


def standings(reading: ResultSet, config: Config, *, rule: Decided | None = None) -> Standings | None:
    """The standings of the players that have met; None if these are fewer than two.

    `rule` says when the order is decided; None: not asked for.
    """
    timeline, results = reading.timeline, reading.results
    if len(timeline.players) < 2:
        return None
    ratings = fit(timeline)
    sides = populations_of(config, timeline.players, tournament=planned_ticks(config) is None)
    ranked = tables(ratings, timeline, sides=sides, guests=guests_of(config, timeline.players))
    found = [row for rows in ranked for row in rows]
    shown = in_matrix([row.player for row in found], config.policies)
    scores = payoff(timeline, shown)
    taken: dict[str, dict[str, int]] = {}
    for name in timeline.snapshots:
        policy, _, tick = name.rpartition("@")
        taken.setdefault(policy, {})[name] = int(tick)
    drawn = curves(timeline, [{row.player: row.elo for row in mine} for mine in ranked])
    scales = {row.player: row.scale for row in found}
    learns = planned_ticks(config) is not None
    order, unlike = None, contradicted(ratings, timeline, ranked, config)
    if rule is not None:  # in a tournament, whose configuration is that of its first batch, all policies play
        names = [*config.policies] if config.league is None else players(config)
        decided = table(results, names, Rule(results.games, rule.error, rule.elo), sides=sides)
        unlike = [*decided.contradictions]
        order = Order(
            decided=decided.decided,
            error=rule.error,
            elo=rule.elo,
            unmet=[*decided.unmet[:_MOST_PAIRS]],
            not_met=len(decided.unmet),
            undecided=decided.open,
        )
    terms = rule or Decided()
    return Standings(
        tables=ranked,
        matrix=Matrix(
            **{name: getattr(scores, name).tolist() for name in ("mean", "low", "high", "games", "points")},
            players=[*shown],
            left_out=len(found) - len(shown),
            spans=meetings(timeline).spans(shown),
        ),
        pairs=pairs(scores, once=True),
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
        with_themselves=sum(score.games for (one, other), score in results.by_side().items() if one == other),
        unrated=reading.unrated,
        aborted=reading.aborted,
        curtailed=curtailed(ratings, reading.cut, config) if learns else None,
        narrow=narrow_leader(timeline, [row.player for row in ranked[0]]) if learns else None,
        contradictions=unlike[:_MOST_PAIRS],
        contradicting=len(unlike),
        order=order,
        equal=[]
        if timeline.learns
        else [
            one
            for mine in ranked
            for one in equals(results, [row.player for row in mine], error=terms.error, elo=terms.elo)
        ],
    )
