"""The sequential test: what it says, and how often it is wrong, computed exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from arena.errors import ConfigError
from arena.league.ratings.sprt import State, Test, Verdict
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


@pytest.mark.parametrize("elo", [0, -30])
def test_false_promotions_are_within_the_error(elo: float) -> None:
    found = verdicts(GATE, elo, games=400)
    assert 0 < found[Verdict.BETTER] <= GATE.alpha
    assert found[Verdict.OPEN] < 1e-3


@pytest.mark.parametrize("elo", [100, 130])
def test_false_rejections_are_within_the_error(elo: float) -> None:
    found = verdicts(GATE, elo, games=400)
    assert 0 < found[Verdict.NOT_BETTER] <= GATE.beta
    assert found[Verdict.OPEN] < 1e-3


def test_the_bounds_are_not_needlessly_wide() -> None:
    assert verdicts(GATE, 0, games=400)[Verdict.BETTER] > GATE.alpha / 2
    assert verdicts(GATE, 100, games=400)[Verdict.NOT_BETTER] > GATE.beta / 2


@pytest.mark.slow
@pytest.mark.parametrize("test", [GATE, Test(elo=120, alpha=0.2, beta=0.01)])
def test_expected_games_equal_an_exhaustive_sum(test: Test) -> None:
    shares = [verdicts(test, test.elo, games=games)[Verdict.OPEN] for games in range(0, 500, 20)]
    mean = 20 * (sum(shares) - 0.5 * shares[0])  # trapezia
    assert shares[-1] < 1e-3
    assert mean == pytest.approx(test.expected_games, rel=0.1)


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


def test_verdict_is_open_before_any_game() -> None:
    assert GATE.state(Score()) == State(Verdict.OPEN, 0.0)


def test_wins_promote_and_losses_reject() -> None:
    assert GATE.state(Score(wins=20)).verdict is Verdict.BETTER
    assert GATE.state(Score(losses=20)).verdict is Verdict.NOT_BETTER


@pytest.mark.parametrize(
    ("elo", "alpha", "beta", "path"),
    [
        (0, 0.05, 0.05, "elo"),
        (-20, 0.05, 0.05, "elo"),
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
