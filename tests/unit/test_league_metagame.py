"""Nash averaging and alpha-rank: games with known answers, a certificate of entropy, the paper's equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import entr

from arena.league.metagame.measures import alpha_rank, nash_average, over_posterior

Floats = NDArray[np.float64]

EXACT = {"rtol": 0, "atol": 1e-6}
ROCK_PAPER_SCISSORS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
CHAIN = np.sign(np.arange(4)[None] - np.arange(4)[:, None]).astype(float)  # the first beats all, the last none


def random_game(seed: int, players: int) -> Floats:
    """One without ties, so that it has one equilibrium."""
    wins = np.random.default_rng(seed).uniform(-1, 1, size=(players, players))
    return wins - wins.T


def with_copies(payoffs: Floats, *players: int) -> Floats:
    """The game in which each of these is a player, some of them more than once."""
    return payoffs[np.ix_(players, players)]


@st.composite
def games_with_ties(draw: st.DrawFn, results: tuple[float, ...]) -> Floats:
    players = draw(st.integers(1, 7))
    count = players * (players - 1) // 2
    payoffs = np.zeros((players, players))
    payoffs[np.triu_indices(players, 1)] = draw(st.lists(st.sampled_from(results), min_size=count, max_size=count))
    return payoffs - payoffs.T


@pytest.mark.parametrize(
    ("payoffs", "strategy", "shares"),
    [
        (ROCK_PAPER_SCISSORS, [1 / 3] * 3, [1 / 3] * 3),
        ([[0, -1, 2], [1, 0, -1], [-2, 1, 0]], [1 / 4, 1 / 2, 1 / 4], [1 / 3] * 3),  # alpha: who wins, not how much
        (CHAIN, [1, 0, 0, 0], [1, 0, 0, 0]),
        (np.zeros((5, 5)), [1 / 5] * 5, [1 / 5] * 5),
        ([[0, 0, 1], [0, 0, 1], [-1, -1, 0]], [1 / 2, 1 / 2, 0], [1 / 2, 1 / 2, 0]),  # two draw at the top
        ([[0]], [1], [1]),
        # 0 beats 1 beats 2 draws with 0: what goes from 0 to 2, by drift, is what goes back by drift and on to 1.
        ([[0, 1, 0], [-1, 0, 1], [0, -1, 0]], [1 / 2, 0, 1 / 2], [51 / 53, 1 / 53, 1 / 53]),
    ],
)
def test_games_with_known_answers(payoffs: Any, strategy: list[float], shares: list[float]) -> None:
    found, as_scores = nash_average(payoffs), (np.asarray(payoffs) + 1) / 2
    np.testing.assert_allclose(found.strategy, strategy, **EXACT)
    np.testing.assert_allclose(found.skill, np.asarray(payoffs) @ strategy, **EXACT)
    np.testing.assert_allclose(nash_average(as_scores).strategy, strategy, **EXACT)
    np.testing.assert_allclose(nash_average(as_scores).skill, as_scores @ strategy, **EXACT)
    for given_ in (payoffs, as_scores):
        np.testing.assert_allclose(alpha_rank(given_), shares, **EXACT)


# ---------------------------------------------------------------------------------------------------- Nash averaging


@pytest.mark.parametrize("seed", range(2))
def test_copies_share_one_weight_and_change_no_skill(seed: int) -> None:
    payoffs = random_game(seed, players=5)
    once = nash_average(payoffs)
    origin = np.array([0, 1, 2, 3, 4, *np.random.default_rng(seed).integers(5, size=6)])
    found = nash_average(with_copies(payoffs, *origin))
    np.testing.assert_allclose(found.skill, once.skill[origin], **EXACT)
    np.testing.assert_allclose(found.strategy, (once.strategy / np.bincount(origin))[origin], **EXACT)


def least(cost: Floats, payoffs: Floats) -> Floats:
    """The probabilities of least cost that no player beats."""
    rows, ones = np.zeros(len(payoffs)), np.ones((1, payoffs.shape[1]))
    return np.asarray(linprog(cost, A_ub=payoffs, b_ub=rows, A_eq=ones, b_eq=[1]).x)


def certify(payoffs: Floats) -> None:
    """An equilibrium, which plays all players that any one plays, and whose entropy is as large as that of any other.

    Entropy is concave: of an equilibrium q it is at most H(p) + H'(p) (q - p) = -q log p, which is largest at a vertex.
    """
    strategy = nash_average(payoffs).strategy
    played = strategy > 0
    assert strategy.min() >= 0
    assert strategy.sum() == pytest.approx(1, abs=1e-9)
    assert (payoffs @ strategy).max() <= 1e-7  # no player beats it
    best = least(np.log(strategy[played]), payoffs[:, played])
    assert -best @ np.log(strategy[played]) - entr(strategy).sum() <= 1e-7
    costs = -np.eye(len(payoffs))
    assert all(least(costs[player], payoffs)[player] <= 1e-7 for player in np.flatnonzero(~played))


@pytest.mark.slow
@settings(max_examples=20)
@given(games_with_ties((-1.0, 0.0, 1.0, 0.5)))
def test_entropy_is_maximal_in_games_full_of_ties(payoffs: Floats) -> None:
    certify(payoffs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_entropy_is_maximal_in_games_of_low_rank_or_with_copies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, 8 + 4 * seed))
    certify(random_game(seed, players=3 + 3 * seed))
    certify(np.outer(one, other) - np.outer(other, one))
    certify(with_copies(random_game(seed, players=6), *rng.integers(6, size=8 + 4 * seed)))


# -------------------------------------------------------------------------------------------------------- alpha-rank


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


@settings(max_examples=20)
@given(games_with_ties((-1.0, -0.5, 0.0, 0.5, 1.0)))
def test_limit_equals_the_paper_at_large_alpha(payoffs: Floats) -> None:
    slow = slow_alpha_rank(payoffs, alpha=30, population=10)  # exp(-30) is nothing
    np.testing.assert_allclose(alpha_rank(payoffs, population=10), slow, **EXACT)


# ------------------------------------------------------------------------------------------- uncertainty, wrong input


@pytest.mark.slow
def test_payoff_uncertainty_carries_over_to_all_measures() -> None:
    ahead = np.random.default_rng(1).normal(0.1, 0.1, size=60)  # of the first player over the second one
    samples = np.array([[[0.5, 0.5 + lead], [0.5 - lead, 0.5]] for lead in ahead])
    (strategy, skill, shares), low, high = over_posterior(samples)
    first_better = (ahead > 0).mean()
    for found in (strategy, shares):
        np.testing.assert_allclose(found, [first_better, 1 - first_better], **EXACT)
    np.testing.assert_allclose(low[[0, 2]], np.zeros((2, 2)), **EXACT)
    np.testing.assert_allclose(high[[0, 2]], np.ones((2, 2)), **EXACT)
    np.testing.assert_allclose(skill, [np.minimum(0.5, 0.5 + ahead).mean(), np.minimum(0.5, 0.5 - ahead).mean()])
    np.testing.assert_allclose(low[1, 1], np.quantile(np.minimum(0.5, 0.5 - ahead), 0.025))


@pytest.mark.parametrize(
    "payoffs",
    [[[0, 1], [1, 0]], [[0, 1, 2], [1, 0, 2]], [[0, 1], [-2, 0]], [[0.1, 1], [-1, 0]], [[0, np.nan], [0, 0]], []],
)
@pytest.mark.parametrize("measure", [nash_average, alpha_rank])
def test_game_without_a_constant_sum_is_refused(measure: Callable[[Any], Any], payoffs: Any) -> None:
    with pytest.raises(ValueError, match=r"square matrix of finite numbers in which \[i, j\] \+ \[j, i\] is the same"):
        measure(payoffs)
