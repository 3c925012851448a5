"""Simulated leagues of known strengths: the statements about them hold. Large ones: benchmarks/league_statistics.py.

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
from arena.league.results import Results, Score
from known_strengths import Truth
from simulated_leagues import entry, league, played

LEAGUES = 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("covered", "nu"),
    [
        (leagues.ratings_covered, 0.5),
        (leagues.payoffs_covered, 0.0),
        pytest.param(leagues.ratings_covered, 0.0, marks=pytest.mark.long),
        pytest.param(leagues.payoffs_covered, 0.5, marks=pytest.mark.long),
    ],
)
def test_intervals_cover_in_95_of_100_cases(covered: Callable[[Truth, Results], list[bool]], nu: float) -> None:
    rng, shares = np.random.default_rng(11), []
    for _ in range(LEAGUES):
        truth = leagues.normal(6, 150, rng)._replace(nu=nu)
        shares.append(statistics.fmean(covered(truth, leagues.round_robin(truth, 20, rng))))
    error = statistics.stdev(shares) / LEAGUES**0.5
    assert error < 0.02
    assert statistics.fmean(shares) == pytest.approx(0.95, abs=3 * error)


@pytest.mark.slow
@pytest.mark.parametrize("side", [-200.0, pytest.param(100.0, marks=pytest.mark.long)])
def test_intervals_cover_with_a_side_advantage(side: float) -> None:
    rng, shares, of_side = np.random.default_rng(15), [], []
    for _ in range(LEAGUES):
        truth = leagues.normal(6, 150, rng)._replace(side=side)
        results = leagues.uneven_sides(truth, 20, rng)
        shares.append(statistics.fmean(leagues.ratings_covered(truth, results)))
        of_side += leagues.side_covered(truth, results)
    assert statistics.fmean(shares) == pytest.approx(0.95, abs=3 * statistics.stdev(shares) / LEAGUES**0.5)
    assert statistics.fmean(of_side) == pytest.approx(0.95, abs=3 * (0.05 * 0.95 / LEAGUES) ** 0.5)


def promoted(*, better_by: float, both_sides: bool, seed: int) -> bool:
    """Whether a second snapshot joins a league of 20 rounds; of equals the first side wins 55 % of the games."""
    rule = entry("matchmaking", policies=["a"], rule="past_selves", copies=3, both_sides=both_sides)
    config = league(rule, rounds=20, seed=seed, league={"snapshots": {"gate": {"elo": 60}}})
    side, rng = 400 * np.log10(0.55 / 0.45), np.random.default_rng(seed)

    def play(first: str, second: str, copies: int) -> Score:
        gap = side + better_by * ((first == "a") - (second == "a"))
        games = int(rng.integers(20, 60))  # of a round: a side may have more
        wins = int(rng.binomial(games * copies, 1 / (1 + 10 ** (-gap / 400))))
        return Score(wins, 0, games * copies - wins)

    return sum(len(made.snapshots) for made in played(config, play).rounds) > 1


@pytest.mark.slow
@pytest.mark.parametrize("both_sides", [False, pytest.param(True, marks=pytest.mark.long)])
def test_gate_error_is_below_5_percent_with_a_side_advantage(both_sides: bool) -> None:
    count = 30
    wrong = sum(promoted(better_by=0, both_sides=both_sides, seed=seed) for seed in range(count))
    assert wrong <= count * 0.05 + 3 * (count * 0.05 * 0.95) ** 0.5


@pytest.mark.slow
def test_better_policies_pass_the_gate_with_a_side_advantage() -> None:
    count = 20
    right = sum(promoted(better_by=60, both_sides=False, seed=seed) for seed in range(count))
    assert right >= count * 0.95 - 3 * (count * 0.05 * 0.95) ** 0.5


@pytest.mark.long
def test_order_takes_a_quarter_of_a_round_robins_games() -> None:
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
