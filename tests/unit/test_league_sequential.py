"""The sequential test: what it says, and how often it is wrong, computed exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from arena.errors import ConfigError
from arena.league.ratings.sprt import Test, Verdict
from arena.league.results import Score

GATE = Test(elo=100, alpha=0.05, beta=0.1)


def verdicts(test: Test, elo: float, *, games: int) -> dict[Verdict, float]:
    """The probability of each verdict on a player that is so much better: over all courses of decided games."""
    chance = 1 / (1 + 10 ** (-elo / 400))
    open_ = np.array([1.0])  # by the number of games won
    found = dict.fromkeys(Verdict, 0.0)
    for played in range(1, games + 1):
        open_ = np.append(open_ * (1 - chance), 0.0) + np.append(0.0, open_ * chance)
        for won in np.nonzero(open_)[0]:
            verdict = test.state(Score(int(won), 0, int(played - won))).verdict
            if verdict is not Verdict.OPEN:
                found[verdict] += float(open_[won])
                open_[won] = 0.0
    found[Verdict.OPEN] = float(open_.sum())
    return found


@pytest.mark.parametrize(
    ("elo", "wrong", "error", "low"),
    [
        (0, Verdict.BETTER, GATE.alpha, GATE.alpha / 2),
        (-30, Verdict.BETTER, GATE.alpha, 0),
        (100, Verdict.NOT_BETTER, GATE.beta, GATE.beta / 2),
        (130, Verdict.NOT_BETTER, GATE.beta, 0),
    ],
)
def test_wrong_verdicts_are_within_the_error_and_near_it_at_the_bounds(
    elo: float, wrong: Verdict, error: float, low: float
) -> None:
    found = verdicts(GATE, elo, games=400)
    assert low < found[wrong] <= error
    assert found[Verdict.OPEN] < 1e-3


@pytest.mark.slow
def test_expected_games_equal_an_exhaustive_sum() -> None:
    shares = [verdicts(GATE, GATE.elo, games=games)[Verdict.OPEN] for games in range(0, 500, 20)]
    mean = 20 * (sum(shares) - 0.5 * shares[0])  # trapezia
    assert shares[-1] < 1e-3
    assert mean == pytest.approx(GATE.expected_games, rel=0.1)


@pytest.mark.parametrize("elo", [1e-9, 1e-3, 1, 4000, 1e9])
def test_small_differences_need_many_games_and_large_ones_few(elo: float) -> None:
    games = Test(elo).expected_games * (1 - 10 ** (-elo / 200)) ** 2
    assert 2 < games < 200


def test_ratio_is_the_likelihood_ratio() -> None:
    won = 1 / (1 + 10 ** (-100 / 400))
    expected = math.log(won**8 * (1 - won) ** 3 / 0.5**11)
    assert GATE.state(Score(8, 5, 3)).llr == pytest.approx(expected)


def test_draws_do_not_change_the_ratio() -> None:
    assert GATE.state(Score(8, 500, 3)) == GATE.state(Score(8, 0, 3))


@pytest.mark.parametrize(
    ("elo", "alpha", "beta", "path"),
    [
        (0, 0.05, 0.05, "elo"),
        (math.nan, 0.05, 0.05, "elo"),
        (math.inf, 0.05, 0.05, "elo"),
        (20, 0, 0.05, "alpha"),
        (20, 0.05, 1, "beta"),
        (20, 0.5, 0.5, "alpha"),
    ],
)
def test_degenerate_test_is_refused(elo: float, alpha: float, beta: float, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Test(elo, alpha, beta)
    assert caught.value.path == path
