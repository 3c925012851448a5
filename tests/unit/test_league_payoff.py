"""The payoff matrix: expected scores, their intervals, and matrices drawn from what is known."""

from __future__ import annotations

import numpy as np
import pytest

from arena.league.metagame.payoff import payoff
from arena.league.results import Results, Score


@pytest.fixture
def results() -> Results:
    found = Results()
    found.add_score(("a",), ("b",), Score(12, 3, 5))
    found.add_score(("b", "b"), ("c", "c"), Score(0, 0, 9))
    found.add_score(("a", "b"), ("c", "c"), Score(100, 0, 0))
    return found


@pytest.mark.parametrize("score", [(7, 0, 2), (12, 3, 5), (0, 40, 0), (300, 900, 200)])
def test_entry_has_the_interval_of_its_posterior(score: tuple[int, int, int]) -> None:
    """Of wins and losses alone where no game was drawn: that of Jeffreys."""
    results = Results()
    results.add_score(("a",), ("b",), Score(*score))
    found = payoff(results, ["a", "b"])
    ends = slice(None, None, 1 if score[1] else 2)
    drawn = np.random.default_rng(0).dirichlet(np.array(score)[ends] + 0.5, 400_000) @ (1, 0.5, 0)[ends]
    low, high = found.low[0, 1], found.high[0, 1]
    assert found.mean[0, 1] == pytest.approx(drawn.mean(), abs=1e-3)
    assert [(drawn < low).mean(), (drawn > high).mean()] == pytest.approx([0.025, 0.025], abs=2e-3)


def test_scores_of_a_pair_sum_to_one(results: Results) -> None:
    found = payoff(results, ["a", "b", "c", "d"])
    assert found.mean + found.mean.T == pytest.approx(np.ones((4, 4)))
    assert found.low + found.high.T == pytest.approx(np.ones((4, 4)))
    for matrix in (found.mean, found.low, found.high):
        assert np.diag(matrix) == pytest.approx(0.5)


def test_games_count_where_a_player_alone_fills_its_side(results: Results) -> None:
    assert payoff(results, ["a", "b", "c"]).games.tolist() == [[0, 20, 0], [20, 0, 9], [0, 9, 0]]
    found = payoff(results, ["c", "a", "b"])
    assert found.players == ("c", "a", "b")
    assert found.games[0].tolist() == [0, 0, 9]
    assert found.mean[0, 2] > 0.9
    assert found.mean[0, 1] == 0.5, "a pair without games"
    assert found.low[0, 1] < 0.06 and found.high[0, 1] > 0.94


def test_drawn_matrices_have_the_mean_and_the_interval_of_the_posterior(results: Results) -> None:
    found = payoff(results, ["a", "b", "c"])
    drawn = found.sample(np.random.default_rng(1), 100_000)
    assert drawn.shape == (100_000, 3, 3)
    assert drawn.mean(axis=0) == pytest.approx(found.mean, abs=3e-3)
    assert np.quantile(drawn, 0.025, axis=0) == pytest.approx(found.low, abs=3e-3)


def test_every_drawn_matrix_is_a_game(results: Results) -> None:
    drawn, again = (payoff(results, ["a", "b", "c"]).sample(np.random.default_rng(1), 50) for _ in range(2))
    assert drawn + drawn.transpose(0, 2, 1) == pytest.approx(np.ones((50, 3, 3)))
    assert ((drawn >= 0) & (drawn <= 1)).all()
    assert (drawn == again).all()
