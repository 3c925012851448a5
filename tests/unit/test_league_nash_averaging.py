"""Nash averaging: games with known answers, and a certificate of the largest entropy for any game."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import entr

from arena.league.metagame.equilibrium import equilibrium
from arena.league.metagame.linear_program import least
from arena.league.metagame.nash_averaging import nash_average, nash_average_with_uncertainty

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


@pytest.mark.parametrize(
    ("payoffs", "strategy"),
    [
        (ROCK_PAPER_SCISSORS, [1 / 3] * 3),
        ([[0, -1, 2], [1, 0, -1], [-2, 1, 0]], [1 / 4, 1 / 2, 1 / 4]),
        (CHAIN, [1, 0, 0, 0]),
        (np.zeros((5, 5)), [1 / 5] * 5),
        ([[0, 0, 1], [0, 0, 1], [-1, -1, 0]], [1 / 2, 1 / 2, 0]),  # two draw at the top
        ([[0]], [1]),
    ],
)
def test_games_with_known_answers(payoffs: Any, strategy: list[float]) -> None:
    found = nash_average(payoffs)
    np.testing.assert_allclose(found.strategy, strategy, **EXACT)
    np.testing.assert_allclose(found.skill, np.asarray(payoffs) @ strategy, **EXACT)


def test_expected_scores_give_the_same_mixture_and_skill_in_scores() -> None:
    found = nash_average((CHAIN + 1) / 2)
    np.testing.assert_allclose(found.strategy, [1, 0, 0, 0], **EXACT)
    np.testing.assert_allclose(found.skill, [0.5, 0, 0, 0], **EXACT)


@pytest.mark.parametrize("seed", range(10))
def test_unique_equilibrium_equals_the_linear_program(seed: int) -> None:
    payoffs = random_game(seed, players=3 + 3 * seed)
    np.testing.assert_allclose(nash_average(payoffs).strategy, equilibrium(payoffs).row, **EXACT)


@pytest.mark.parametrize("seed", range(5))
def test_copies_share_one_weight_and_change_no_skill(seed: int) -> None:
    payoffs = random_game(seed, players=5)
    once = nash_average(payoffs)
    origin = np.array([0, 1, 2, 3, 4, *np.random.default_rng(seed).integers(5, size=6)])
    found = nash_average(with_copies(payoffs, *origin))
    np.testing.assert_allclose(found.skill, once.skill[origin], **EXACT)
    np.testing.assert_allclose(found.strategy, (once.strategy / np.bincount(origin))[origin], **EXACT)


def test_dominated_copy_in_a_cycle_has_weight_zero() -> None:
    payoffs = with_copies(ROCK_PAPER_SCISSORS, 0, 1, 2, 0)
    payoffs[3] -= 0.1  # the copy of rock does a little worse against all
    payoffs[:, 3] += 0.1
    payoffs[3, 3] = 0
    found = nash_average(payoffs)
    np.testing.assert_allclose(found.strategy, [1 / 3, 1 / 3, 1 / 3, 0], **EXACT)
    np.testing.assert_allclose(found.skill, [0, 0, 0, -0.1], **EXACT)


# ------------------------------------------------------------------------------- the largest entropy, of any game


def entropy_gap(payoffs: Floats, strategy: Floats) -> float:
    """At least how much less than the largest entropy of all equilibria a strategy's is.

    Entropy is concave: of an equilibrium q it is at most H(p) + H'(p) (q - p) = -q log p, which is largest at a vertex.
    """
    played = strategy > 0
    rows = payoffs[:, played]
    ones = np.ones((1, int(played.sum())))
    best = least(np.log(strategy[played]), rows=rows, limits=0.0, sums=ones, totals=np.ones(1)).x
    return float(-best @ np.log(strategy[played]) - entr(strategy).sum())


def ever_played(payoffs: Floats, player: int) -> float:
    """The largest weight that any equilibrium gives a player."""
    cost = -np.eye(len(payoffs))[player]
    return float(least(cost, rows=payoffs, limits=0.0, sums=np.ones((1, len(payoffs))), totals=np.ones(1)).x[player])


def certify(payoffs: Floats) -> None:
    strategy = nash_average(payoffs).strategy
    assert strategy.min() >= 0
    assert strategy.sum() == pytest.approx(1, abs=1e-9)
    assert (payoffs @ strategy).max() <= 1e-7  # no player beats it
    assert entropy_gap(payoffs, strategy) <= 1e-7
    assert all(ever_played(payoffs, player) <= 1e-7 for player in np.flatnonzero(strategy == 0))


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(1, 8), st.data())
def test_entropy_is_maximal_in_games_full_of_ties(players: int, data: st.DataObject) -> None:
    count = players * (players - 1) // 2
    results = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 1.0, 0.5]), min_size=count, max_size=count))
    payoffs = np.zeros((players, players))
    payoffs[np.triu_indices(players, 1)] = results
    certify(payoffs - payoffs.T)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_entropy_is_maximal_in_games_of_low_rank_or_with_copies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = rng.normal(size=(2, 8 + 4 * seed))
    certify(np.outer(one, other) - np.outer(other, one))
    certify(with_copies(random_game(seed, players=6), *rng.integers(6, size=8 + 4 * seed)))


# ----------------------------------------------------------------------------------------------------- uncertainty


@pytest.mark.slow
def test_payoff_uncertainty_carries_over_to_mixture_and_skill() -> None:
    ahead = np.random.default_rng(1).normal(0.1, 0.1, size=200)  # of the first player over the second one
    samples = np.array([[[0.5, 0.5 + lead], [0.5 - lead, 0.5]] for lead in ahead])
    found = nash_average_with_uncertainty(samples)
    first_better = (ahead > 0).mean()
    np.testing.assert_allclose(found.strategy.mean, [first_better, 1 - first_better], **EXACT)
    np.testing.assert_allclose(found.strategy.low, [0, 0], **EXACT)
    np.testing.assert_allclose(found.strategy.high, [1, 1], **EXACT)
    np.testing.assert_allclose(
        found.skill.mean, [np.minimum(0.5, 0.5 + ahead).mean(), np.minimum(0.5, 0.5 - ahead).mean()]
    )
    np.testing.assert_allclose(found.skill.low[1], np.quantile(np.minimum(0.5, 0.5 - ahead), 0.025))


def test_known_payoffs_give_no_interval() -> None:
    found = nash_average_with_uncertainty(np.stack([ROCK_PAPER_SCISSORS] * 3))
    np.testing.assert_allclose(found.strategy, np.full((3, 3), 1 / 3), **EXACT)
    np.testing.assert_allclose(found.skill, np.zeros((3, 3)), **EXACT)


@pytest.mark.parametrize("payoffs", [[[0, 1], [1, 0]], [[0, 1, 2], [1, 0, 2]], [[0, 1], [-2, 0]], [[0.1, 1], [-1, 0]]])
def test_game_without_a_constant_sum_is_refused(payoffs: Any) -> None:
    with pytest.raises(ValueError, match=r"\[i, j\] \+ \[j, i\] is the same everywhere"):
        nash_average(payoffs)
