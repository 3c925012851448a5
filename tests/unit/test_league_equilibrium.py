"""Equilibria of matrix games, and how far a strategy is from one: games with known answers, and what makes a saddle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from arena.league.metagame.equilibrium import (
    equilibrium,
    exploitability,
    exploitability_with_uncertainty,
    value,
    value_with_uncertainty,
)
from arena.league.metagame.linear_program import least

Floats = NDArray[np.float64]

EXACT = {"rtol": 0, "atol": 1e-6}
ROCK_PAPER_SCISSORS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
ROCK_COUNTS_DOUBLE = np.array([[0.0, -1, 2], [1, 0, -1], [-2, 1, 0]])  # a quarter, a half, a quarter
UNEVEN_PENNIES = np.array([[3.0, -1], [-1, 1]])  # heads a third of the time, of both; worth a third


# ---------------------------------------------------------------------------------------------------- Kuhn's poker

CARDS = range(3)
DEALS = tuple(itertools.permutations(CARDS, 2))
FIRST_PLANS = tuple(itertools.product(("bet", "check, then fold", "check, then call"), repeat=3))  # one for each card
SECOND_PLANS = tuple(itertools.product(itertools.product(("check", "bet"), ("fold", "call")), repeat=3))


def first_wins(first: int, second: int, first_plan: str, second_plan: tuple[str, str]) -> int:
    """Chips that the first player wins of the second one; each has put one in."""
    higher = 1 if first > second else -1
    after_check, after_bet = second_plan
    if first_plan == "bet":
        return 1 if after_bet == "fold" else 2 * higher
    if after_check == "check":
        return higher
    return -1 if first_plan == "check, then fold" else 2 * higher


def kuhn_poker() -> Floats:
    """The whole game as a matrix [27, 64]: the mean over the six deals, for each pair of plans."""
    wins = [
        np.mean([first_wins(one, other, mine[one], yours[other]) for one, other in DEALS])
        for mine, yours in itertools.product(FIRST_PLANS, SECOND_PLANS)
    ]
    return np.reshape(wins, (len(FIRST_PLANS), len(SECOND_PLANS)))


def kuhn_family(bluffs: float) -> Floats:
    """Kuhn's equilibria of the first player, 0 to 1/3: how often the lowest card is bet; the highest thrice that."""
    lowest = {"bet": bluffs, "check, then fold": 1 - bluffs, "check, then call": 0.0}
    middle = {"bet": 0.0, "check, then fold": 2 / 3 - bluffs, "check, then call": 1 / 3 + bluffs}
    highest = {"bet": 3 * bluffs, "check, then fold": 0.0, "check, then call": 1 - 3 * bluffs}
    return np.array([lowest[low] * middle[mid] * highest[high] for low, mid, high in FIRST_PLANS])


def test_the_value_of_kuhn_poker_is_a_loss_of_an_eighteenth() -> None:
    game = kuhn_poker()
    found = equilibrium(game)
    assert game.shape == (27, 64)
    assert found.value == pytest.approx(-1 / 18, abs=1e-6)
    assert exploitability(game, found.row) == pytest.approx(0, abs=1e-6)
    assert exploitability(-game.T, found.column) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("bluffs", [0, 0.1, 1 / 3])
def test_all_of_kuhn_pokers_known_equilibria_are_found_unexploitable(bluffs: float) -> None:
    assert exploitability(kuhn_poker(), kuhn_family(bluffs)) == pytest.approx(0, abs=1e-6)


def test_kuhn_poker_without_bluffs_loses_to_folding() -> None:
    honest = np.array([plan == ("check, then fold", "check, then fold", "bet") for plan in FIRST_PLANS], np.float64)
    # Who knows it folds all that is bet, bets all that is checked: 2 deals in 6 win 1, the others lose 1.
    assert exploitability(kuhn_poker(), honest) == pytest.approx(-1 / 18 - (2 - 4) / 6, abs=1e-6)


# ------------------------------------------------------------------------------------------------ games of all kinds


@pytest.mark.parametrize(
    ("payoffs", "worth", "row", "column"),
    [
        (ROCK_PAPER_SCISSORS, 0, [1 / 3] * 3, [1 / 3] * 3),
        (ROCK_COUNTS_DOUBLE, 0, [1 / 4, 1 / 2, 1 / 4], [1 / 4, 1 / 2, 1 / 4]),
        (UNEVEN_PENNIES, 1 / 3, [1 / 3, 2 / 3], [1 / 3, 2 / 3]),
        ([[5.0, 7, 4], [3, 9, 1]], 4, [1, 0], [0, 0, 1]),  # a saddle point
        ([[2.5]], 2.5, [1], [1]),
    ],
)
def test_games_with_known_answers(payoffs: Any, worth: float, row: Any, column: Any) -> None:
    found = equilibrium(payoffs)
    assert found.value == pytest.approx(worth, abs=1e-6)
    np.testing.assert_allclose(found.row, row, **EXACT)
    np.testing.assert_allclose(found.column, column, **EXACT)
    assert value(payoffs) == pytest.approx(worth, abs=1e-6)


GAMES = npst.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    elements=st.integers(-3, 3).map(float) | st.floats(-3, 3, width=16),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(GAMES)
def test_no_player_gains_by_deviating(payoffs: Floats) -> None:
    worth, row, column = equilibrium(payoffs)
    assert min(row.min(), column.min()) >= 0
    np.testing.assert_allclose([row.sum(), column.sum()], 1, **EXACT)
    assert (row @ payoffs).min() == pytest.approx(worth, abs=1e-6)
    assert (payoffs @ column).max() == pytest.approx(worth, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_value_equals_that_of_the_column_players_linear_program(seed: int) -> None:
    payoffs = np.random.default_rng(seed).normal(size=(12, 9)) * 10.0 ** (3 * seed - 6)
    unit = np.abs(payoffs).max()
    # The least u with (A y)_i <= u in every row; shifted to be positive, y / u and 1 / u make it a sum to maximize.
    shifted = payoffs / unit + 2
    weights = least(-np.ones(9), rows=shifted, limits=1.0).x
    assert value(payoffs) / unit == pytest.approx(1 / weights.sum() - 2, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=30)
@given(GAMES, st.floats(0.5, 1e6), st.floats(-1e3, 1e3))
def test_equilibria_are_the_same_in_other_units(payoffs: Floats, unit: float, shift: float) -> None:
    found = equilibrium(payoffs * unit + shift)
    tolerance = 1e-6 * (unit + abs(shift))
    assert found.value == pytest.approx(equilibrium(payoffs).value * unit + shift, abs=tolerance)
    assert exploitability(payoffs, found.row) == pytest.approx(0, abs=1e-6)


# ---------------------------------------------------------------------------------------------------- exploitability


@pytest.mark.parametrize(
    ("strategy", "loses"),
    [([1, 0, 0], 1), ([1 / 3, 1 / 3, 1 / 3], 0), ([0.5, 0.5, 0], 0.5), ([0.4, 0.3, 0.3], 0.1)],
)
def test_exploitability_is_what_the_best_answer_wins(strategy: Any, loses: float) -> None:
    assert exploitability(ROCK_PAPER_SCISSORS, strategy) == pytest.approx(loses, abs=1e-6)
    as_scores = (ROCK_PAPER_SCISSORS + 1) / 2
    assert exploitability(as_scores, strategy) == pytest.approx(loses / 2, abs=1e-6)


@pytest.mark.slow
def test_payoff_uncertainty_carries_over_to_exploitability() -> None:
    draws = np.random.default_rng(1).uniform(0.6, 1, size=4000)  # what paper gets of rock
    samples = np.stack([ROCK_PAPER_SCISSORS * draw for draw in draws])
    found = exploitability_with_uncertainty(samples, [1, 0, 0])
    np.testing.assert_allclose(found, [0.8, 0.61, 0.99], atol=0.01)
    np.testing.assert_allclose(value_with_uncertainty(samples + 3), [3, 3, 3], **EXACT)


def test_known_payoffs_give_no_interval() -> None:
    found = exploitability_with_uncertainty(np.stack([UNEVEN_PENNIES] * 5), [1, 0])
    np.testing.assert_allclose(found, [4 / 3] * 3, **EXACT)


# ------------------------------------------------------------------------------------------------------ wrong input


@pytest.mark.parametrize("payoffs", [[], [[]], [1, 2], [[np.nan, 0], [0, 0]], [[np.inf]], np.zeros((2, 2, 2))])
@pytest.mark.parametrize("measure", [equilibrium, value])
def test_non_numeric_matrix_is_refused(measure: Callable[[Any], Any], payoffs: Any) -> None:
    with pytest.raises(ValueError, match="expected a matrix of finite numbers"):
        measure(payoffs)


@pytest.mark.parametrize("strategy", [[1, 0], [0.5, 0.5, 0.5], [1.5, -0.5, 0], [np.nan, 0, 1], [[1, 0, 0]]])
def test_invalid_row_probabilities_are_refused(strategy: Any) -> None:
    with pytest.raises(ValueError, match="expected 3 probabilities"):
        exploitability(ROCK_PAPER_SCISSORS, strategy)


def test_no_interval_without_samples() -> None:
    with pytest.raises(ValueError, match="draw at least one"):
        value_with_uncertainty(np.zeros((0, 3, 3)))


def test_infeasible_linear_program_raises() -> None:
    with pytest.raises(ArithmeticError, match="no solution of a linear program with 1 unknowns"):
        least(np.ones(1), rows=np.ones((1, 1)), limits=-1.0)
