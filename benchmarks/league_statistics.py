"""Statistics of leagues: the coverage of intervals, the errors of gates, the number of games that an order needs.

All leagues are simulated, with known strengths, and the figures of promises are over all turns. Games are drawn from
the fitted model (Davidson 1970): between equals every fifth game is a draw, or none. A turn is 200 leagues for the
coverage and 200 gates, 60 leagues whose order is decided, and 400 of each round robin.

Coverage: 8 players with strengths drawn from a normal distribution of 150 Elo, 20 games of each pair. Counted are the
95 % intervals of each player, of each difference of two players, and of each entry of the payoff matrix. The second
case has sides, with an advantage of 100 Elo for the first side; how many of the 20 games of a pair each player has it
is uniformly distributed. There the interval of the side's advantage is counted instead of the payoffs' intervals.

Gate: is A better than B by 20 Elo, alpha = beta = 5 %, tested after every 16 games. A wrong promotion is the promotion
of an equal player; the power is the share of promotions of a player that is 20 Elo better.

Order: 12 players evenly 100 Elo apart (from a beginner to a master), the same 50 Elo apart, and with strengths drawn
from a normal distribution of 300 Elo, where players closer than 100 Elo may have either order. Sequential pairing and
stopping, 11 games at a time, at a stated error of 5 % for the whole order, is compared with a round robin of a fixed
number of games of each pair: the smallest round robin whose simulated order is wrong no more often. That size is not
known in advance, which is an advantage of the round robin. The closer the players, the fewer games are wasted on
unequal pairs, and the less there is to save. With normal strengths most games go to players so close that either order
is right, where a round robin is never wrong.

Groups: six players, and six players that are 100 Elo better, 20 leagues a turn. The stated error is for players of
different strength; here chance decides the order within a group, and an order is wrong if a worse player is ranked
above a better one.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

import known_strengths as leagues
from arena.config.league import Gate
from arena.league.ratings.sprt import Verdict
from harness import Case, Measured, Report, Sample, Settings, Summary, interleave, main, method, say
from known_strengths import Truth

PLAYERS, DEVIATION, GAMES = 8, 150.0, 20  # of the leagues whose intervals are counted
GATE, MOST_GATED = Gate(elo=20, alpha=0.05, beta=0.05), 100_000
ERROR, BATCH = 0.05, 11
COVERED = {
    "coverage": ("ratings covered", "payoff entries covered"),
    "coverage, no draws": ("ratings covered", "payoff entries covered"),
    "coverage, sides": ("ratings covered", "worths of the side covered"),
}


class Field(NamedTuple):
    """Twelve players: how they are drawn, the difference to resolve, and the round robins to try, in games a pair."""

    draw: Callable[[np.random.Generator], Truth]
    elo: float
    sizes: range


FIELDS = {
    "100 Elo apart": Field(partial(leagues.even, 12, 100.0), 100.0, range(24, 64, 2)),
    "50 Elo apart": Field(partial(leagues.even, 12, 50.0), 50.0, range(70, 165, 5)),
    "normal, 300 Elo": Field(partial(leagues.normal, 12, 300.0), 100.0, range(8, 62, 2)),
}


def coverage(nu: float, count: int, rng: np.random.Generator) -> Sample:
    """Shares of intervals that hold the truth."""
    ratings, payoffs = [], []
    for _ in range(count):
        truth = leagues.normal(PLAYERS, DEVIATION, rng)._replace(nu=nu)
        results = leagues.round_robin(truth, GAMES, rng)
        ratings += leagues.ratings_covered(truth, results)
        payoffs += leagues.payoffs_covered(truth, results)
    return {"ratings covered": statistics.fmean(ratings), "payoff entries covered": statistics.fmean(payoffs)}


def sides(elo: float, count: int, rng: np.random.Generator) -> Sample:
    """Shares of intervals that hold the truth if the first side has this advantage."""
    ratings, worths = [], []
    for _ in range(count):
        truth = leagues.normal(PLAYERS, DEVIATION, rng)._replace(side=elo)
        results = leagues.uneven_sides(truth, GAMES, rng)
        ratings += leagues.ratings_covered(truth, results)
        worths += leagues.side_covered(truth, results)
    return {"ratings covered": statistics.fmean(ratings), "worths of the side covered": statistics.fmean(worths)}


def gates(better_by: float, count: int, rng: np.random.Generator) -> Sample:
    """Verdicts on a player that is better by this difference."""
    truth = Truth(np.array([better_by, 0.0]))
    found = [leagues.gate(GATE, truth, batch=16, most=MOST_GATED, rng=rng) for _ in range(count)]
    return {
        "promoted": statistics.fmean(gated.verdict is Verdict.BETTER for gated in found),
        "still open": statistics.fmean(gated.verdict is Verdict.OPEN for gated in found),
        "games": statistics.fmean(gated.games for gated in found),
    }


def sequential(field: Field, count: int, rng: np.random.Generator) -> Sample:
    """Leagues that end when their order is decided."""
    found = [
        leagues.sequential(field.draw(rng), error=ERROR, elo=field.elo, batch=BATCH, rng=rng) for _ in range(count)
    ]
    return {
        "wrong": statistics.fmean(not ordered.right for ordered in found),
        "games": statistics.fmean(ordered.games for ordered in found),
        "games, at most": max(ordered.games for ordered in found),
    }


def fixed(field: Field, count: int, rng: np.random.Generator) -> Sample:
    """Round robins of all sizes: the share of wrong orders."""
    truths = [field.draw(rng) for _ in range(count)]
    return {
        f"wrong, {size} games a pair": statistics.fmean(
            not leagues.fixed(truth, size, rng, elo=field.elo).right for truth in truths
        )
        for size in field.sizes
    }


def cases(settings: Settings) -> Iterator[Case]:
    """All cases, each with its own random stream."""
    count, ordered, fixed_count = settings.pick((200, 60, 400), (8, 2, 8))
    measures: dict[str, Callable[[np.random.Generator], Sample]] = {
        "coverage": partial(coverage, 0.5, count),
        "coverage, no draws": partial(coverage, 0.0, count),
        "gate, equal": partial(gates, 0.0, count),
        "gate, 20 Elo better": partial(gates, 20.0, count),
    }
    for name, field in FIELDS.items():
        measures[f"{name}, sequential"] = partial(sequential, field, ordered)
        measures[f"{name}, round robin"] = partial(fixed, field, fixed_count)
    groups = Field(partial(leagues.two_groups, 12, 100.0), 100.0, range(0))
    measures["two groups, sequential"] = partial(sequential, groups, ordered // 3 or 1)
    measures["coverage, sides"] = partial(sides, 100.0, count)
    for seed, (name, measure) in enumerate(measures.items()):
        yield Case(name, partial(measure, np.random.default_rng(seed)))


def over_all(summary: Summary) -> Summary:
    """The mean over the turns; every turn has the same number of leagues."""
    return Summary((statistics.fmean(summary.values),))


def savings(measured: Measured, name: str, field: Field, wrong: float) -> Summary:
    """Games of the smallest round robin that is wrong no more often, over those of the sequential leagues."""
    games = over_all(measured.summary(f"{name}, sequential", "games")).median
    for size in field.sizes:
        error = over_all(measured.summary(f"{name}, round robin", f"wrong, {size} games a pair")).median
        if error <= wrong:
            return Summary((12 * 11 / 2 * size / games,))
    return Summary(())


def benchmark(settings: Settings) -> Report:
    """Simulates, and compares estimates and verdicts with the truth."""
    measured = interleave(list(cases(settings)), settings.repeats, say=say)
    report = Report("league_statistics", "Statistics of leagues", measured, method(__doc__))
    for case, shares in COVERED.items():
        for what in shares:
            share = over_all(measured.summary(case, what))
            report.at_least(f"{case}: share of {what}", share, 0.93)
            report.at_most(f"{case}: share of {what}", share, 0.97)
    report.at_most("gate: wrong promotions", over_all(measured.summary("gate, equal", "promoted")), GATE.alpha)
    power = over_all(measured.summary("gate, 20 Elo better", "promoted"))
    report.at_least("gate: right promotions", power, 1 - GATE.beta)
    for name, field in FIELDS.items():
        wrong = over_all(measured.summary(f"{name}, sequential", "wrong"))
        report.at_most(f"12 players, {name}: wrong orders", wrong, ERROR)
        saved = savings(measured, name, field, wrong.median)
        report.at_least(f"12 players, {name}: games of a round robin of the same error / sequential", saved, 4)
    wrong = over_all(measured.summary("two groups, sequential", "wrong"))
    report.at_most("12 players, two groups: wrong orders", wrong, ERROR)
    return report


if __name__ == "__main__":
    sys.exit(main(benchmark))
