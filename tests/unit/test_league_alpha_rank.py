"""Alpha-rank: games with known answers, and the limit against the paper's equations with a large alpha."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arena.league.metagame.alpha_rank import alpha_rank, alpha_rank_with_uncertainty

Floats = NDArray[np.float64]

EXACT = {"rtol": 0, "atol": 1e-6}
ROCK_PAPER_SCISSORS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
CHAIN = np.sign(np.arange(4)[None] - np.arange(4)[:, None]).astype(float)  # the first beats all, the last none


@pytest.mark.parametrize(
    ("payoffs", "shares"),
    [
        (ROCK_PAPER_SCISSORS, [1 / 3] * 3),
        (ROCK_PAPER_SCISSORS * [[1, 2, 3]] * np.array([[1], [2], [3]]), [1 / 3] * 3),  # who wins counts, not how much
        (CHAIN, [1, 0, 0, 0]),
        (np.zeros((4, 4)), [1 / 4] * 4),
        ([[0, 0, 1], [0, 0, 1], [-1, -1, 0]], [1 / 2, 1 / 2, 0]),  # two draw at the top
        ([[0]], [1]),
        # 0 beats 1 beats 2 draws with 0: what goes from 0 to 2, by drift, is what goes back by drift and on to 1.
        ([[0, 1, 0], [-1, 0, 1], [0, -1, 0]], [51 / 53, 1 / 53, 1 / 53]),
    ],
)
def test_games_with_known_answers(payoffs: Any, shares: list[float]) -> None:
    np.testing.assert_allclose(alpha_rank(payoffs), shares, **EXACT)
    np.testing.assert_allclose(alpha_rank((np.asarray(payoffs) + 1) / 2), shares, **EXACT)


def test_dominating_cycle_has_all_the_mass() -> None:
    payoffs = np.ones((5, 5))
    payoffs[3:] = -1
    payoffs[:3, :3], payoffs[3:, 3:] = ROCK_PAPER_SCISSORS, [[0, 1], [-1, 0]]
    np.testing.assert_allclose(alpha_rank(payoffs), [1 / 3, 1 / 3, 1 / 3, 0, 0], **EXACT)


def slow_alpha_rank(payoffs: Floats, *, alpha: float, population: int) -> Floats:
    """The paper's equations 12 and 13, and the distribution after very many steps."""
    players = len(payoffs)
    moves = np.zeros((players, players))
    for resident in range(players):
        for mutant in set(range(players)) - {resident}:
            ahead = payoffs[mutant, resident] - payoffs[resident, mutant]
            if ahead == 0:
                fixation = 1 / population
            else:
                fixation = np.expm1(-alpha * ahead) / np.expm1(-alpha * population * ahead)
            moves[resident, mutant] = fixation / (players - 1)
        moves[resident, resident] = 1 - moves[resident].sum()
    shares = np.linalg.matrix_power(moves, 2**30)[0]
    return np.asarray(shares / shares.sum())  # without the rounding of so many products


@settings(max_examples=40)
@given(st.integers(2, 6), st.data())
def test_limit_equals_the_paper_at_large_alpha(players: int, data: st.DataObject) -> None:
    count = players * (players - 1) // 2
    results = data.draw(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]), min_size=count, max_size=count))
    payoffs = np.zeros((players, players))
    payoffs[np.triu_indices(players, 1)] = results
    payoffs -= payoffs.T
    slow = slow_alpha_rank(payoffs, alpha=30, population=10)  # exp(-30) is nothing
    np.testing.assert_allclose(alpha_rank(payoffs, population=10), slow, **EXACT)


@pytest.mark.slow
def test_payoff_uncertainty_carries_over_to_the_rank() -> None:
    ahead = np.random.default_rng(1).normal(0.1, 0.1, size=1000)  # of the first player over the second one
    samples = np.array([[[0.5, 0.5 + lead], [0.5 - lead, 0.5]] for lead in ahead])
    found = alpha_rank_with_uncertainty(samples)
    first_better = (ahead > 0).mean()
    np.testing.assert_allclose(found.mean, [first_better, 1 - first_better], **EXACT)
    np.testing.assert_allclose([found.low, found.high], [[0, 0], [1, 1]], **EXACT)


def test_a_population_of_one_has_no_mutants() -> None:
    with pytest.raises(ValueError, match="expected at least 2"):
        alpha_rank(ROCK_PAPER_SCISSORS, population=1)


@pytest.mark.parametrize("payoffs", [[[0, 1], [1, 0]], [[0, 1, 2], [1, 0, 2]], [[0, np.nan], [0, 0]]])
def test_game_without_a_constant_sum_is_refused(payoffs: Any) -> None:
    with pytest.raises(ValueError, match="expected a"):
        alpha_rank(payoffs)
