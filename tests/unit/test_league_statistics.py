"""Leagues of known strengths, simulated: what is said about them holds. Large ones: benchmarks/league_statistics.py.

The seeds are fixed. How far a share may lie from what is promised is the error of so many trials, three deviations of
the binomial distribution; intervals of one league are not independent, so there a league is the trial, and the
deviation is that of the leagues' own shares.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # benchmarks are scripts: they find each other there

import known_strengths as leagues
from arena.league.results import Results
from arena.league.sequential import Test, Verdict
from known_strengths import Truth

LEAGUES = 80


@pytest.mark.parametrize("nu", [0.0, 0.5])
@pytest.mark.parametrize("covered", [leagues.ratings_covered, leagues.payoffs_covered])
def test_intervals_hold_the_truth_in_95_of_100_cases(
    covered: Callable[[Truth, Results], list[bool]], nu: float
) -> None:
    rng, shares = np.random.default_rng(11), []
    for _ in range(LEAGUES):
        truth = leagues.normal(6, 150, rng)._replace(nu=nu)
        shares.append(statistics.fmean(covered(truth, leagues.round_robin(truth, 20, rng))))
    error = statistics.stdev(shares) / LEAGUES**0.5
    assert error < 0.02
    assert statistics.fmean(shares) == pytest.approx(0.95, abs=3 * error)


@pytest.mark.parametrize(("elo", "wrong"), [(0, Verdict.BETTER), (60, Verdict.NOT_BETTER)])
def test_a_gate_is_wrong_in_at_most_5_of_100_cases(elo: float, wrong: Verdict) -> None:
    rng, test, count = np.random.default_rng(12), Test(elo=60), 300
    truth = Truth(np.array([elo, 0.0]))
    found = [leagues.gate(test, truth, batch=8, most=20_000, rng=rng).verdict for _ in range(count)]
    assert found.count(wrong) <= count * 0.05 + 3 * (count * 0.05 * 0.95) ** 0.5
    assert Verdict.OPEN not in found


def test_an_order_takes_a_quarter_of_the_games_of_a_round_robin_that_is_wrong_as_often() -> None:
    rng, count = np.random.default_rng(13), 24
    found = [
        leagues.sequential(leagues.even(12, 100, rng), error=0.05, elo=100, batch=22, rng=rng) for _ in range(count)
    ]
    assert sum(not ordered.right for ordered in found) <= count * 0.05 + 3 * (count * 0.05 * 0.95) ** 0.5
    games = statistics.fmean(ordered.games for ordered in found)
    per_pair = int(4 * games / 66)  # of a round robin that has four times as many
    robins = [leagues.fixed(leagues.even(12, 100, rng), per_pair, rng, elo=100).right for _ in range(400)]
    wrong = 1 - statistics.fmean(robins)
    assert wrong > 0.05 - 3 * (0.05 * 0.95 / 400) ** 0.5


def test_an_order_is_right_where_nobody_stands_above_a_clearly_better_one() -> None:
    truth = Truth(np.array([0.0, 90.0, 200.0]))
    assert leagues.is_right(truth, ("p02", "p01", "p00"), 100)
    assert leagues.is_right(truth, ("p02", "p00", "p01"), 100)
    assert not leagues.is_right(truth, ("p02", "p00", "p01"), 90)
    assert not leagues.is_right(truth, ("p00", "p01", "p02"), 120)
