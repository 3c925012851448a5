"""The metagame: Nash averaging, alpha-rank, payoffs, and how much older games count in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import entr

from arena.league.metagame.measures import alpha_rank, nash_average, over_posterior
from arena.league.metagame.meetings import RATES, Meetings, meetings
from arena.league.metagame.payoff import payoff
from arena.league.results import Results, Score
from arena.league.timeline import Period, PolicyReset, Timeline
from simulated_leagues import results_of as games
from simulated_leagues import timeline

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


# The payoff matrix: expected scores, their intervals, and matrices drawn from what is known


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
    found = payoff(games(a_b=score), ["a", "b"])
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


# Payoffs of policies as they are now: how much older games count


def test_older_games_count_less() -> None:
    found = timeline(games(a_s=(8, 0, 0)), games(a_s=(0, 4, 0)), games(a_s=(0, 0, 2)), learners="a")
    rate = meetings(found).rates["a"]
    assert rate in RATES
    assert meetings(found).counts(["a", "s"])[0, 1] == pytest.approx([8 * rate**2, 4 * rate, 2])
    assert meetings(found).counts_of("s", ["a"])[0] == pytest.approx([2, 4 * rate, 8 * rate**2])


def test_matchmaking_ages_games_by_whole_rounds() -> None:
    halves = [(0, 50, 8), (50, 100, 4), (100, 150, 2), (150, 200, 1)]
    periods = [Period(start, end, games(a_s=(wins, 0, 0)), frozenset("a")) for start, end, wins in halves]
    found = Meetings(Timeline(periods, 100, frozenset("a")), by_round=True)
    assert found.counts_of("a", ["s"])[0] == pytest.approx([3 + 12 * found.rates["a"], 0, 0])


def test_old_games_fade_for_learners_but_not_for_frozen_policies() -> None:
    circle = [(38, 0, 2), (2, 0, 38)] * 6
    changing = timeline(*(games(a_s=one) for one in circle), learners="a")
    steady = timeline(*([games(a_s=(20, 0, 20), a_t=(30, 0, 10), a_u=(10, 0, 30))] * 12), learners="a")
    assert meetings(changing).rates["a"] <= 0.4
    assert meetings(steady).rates["a"] >= 0.95
    assert payoff(changing, ["a", "s"]).mean[0, 1] < 0.35, "the newest round counts most"
    assert payoff(steady, ["a", "s"]).games[0, 1] > 250


def test_copy_has_the_games_of_its_source_and_a_reset_policy_none() -> None:
    periods = timeline(games(a_s=(9, 0, 1), b_s=(1, 0, 9)), learners="ab").periods
    copied = Timeline(periods, 100, frozenset("ab"), {"b": [PolicyReset(100, "a")]})
    assert np.argmax(meetings(copied).counts_of("b", ["s"])[0]) == 0
    reset = Timeline(periods, 100, frozenset("ab"), {"b": [PolicyReset(100, None)]})
    assert meetings(reset).counts_of("b", ["s"])[0].tolist() == [0, 0, 0]


def test_spans_give_the_ticks_of_the_games() -> None:
    parts = [games(a_s=(38, 0, 2) if number % 2 else (2, 0, 38)) for number in range(12)]
    found = meetings(timeline(*parts, learners="a"))
    span = found.spans(["a"])[0]
    assert span is not None
    assert span.last == 1200
    assert found.rates["a"] ** ((1100 - span.first) / 100) >= 0.05 > found.rates["a"] ** ((1200 - span.first) / 100)


def run_without_rounds(chances: Sequence[float], games: int, rng: np.random.Generator) -> Timeline:
    """One round in as many parts as there are chances of `a` to beat `b`; both learn."""
    periods, length = [], 800 // len(chances)
    for part, chance in enumerate(chances):
        played, wins = Results(), int(rng.binomial(games, chance))
        played.add_score(("a",), ("b",), Score(wins, 0, games - wins))
        periods.append(Period(part * length, (part + 1) * length, played, frozenset("ab")))
    return Timeline(periods, 800, frozenset("ab"))


@pytest.mark.parametrize(
    "chances",
    [
        pytest.param([0.9] * 4 + [0.1] * 4, id="the-winner-changes-half-way"),
        pytest.param([0.9] * 6 + [0.1] * 2, id="it-changes-late", marks=pytest.mark.long),
        pytest.param([0.85, 0.9, 0.8, 0.6, 0.5, 0.5, 0.5, 0.5], id="one-learns-first", marks=pytest.mark.long),
        pytest.param([0.7] * 8, id="nothing-changes"),
    ],
)
def test_payoffs_of_a_run_without_rounds_are_those_of_its_end(chances: Sequence[float]) -> None:
    rng, runs, held, errors = np.random.default_rng(0), 40, 0, []
    for _ in range(runs):
        scores = payoff(run_without_rounds(chances, 200, rng), ["a", "b"])
        held += bool(scores.low[0, 1] <= chances[-1] <= scores.high[0, 1])
        errors.append(float(scores.mean[0, 1]) - chances[-1])
    assert held >= 35, "intervals of 95 % hold the truth"
    assert abs(np.mean(errors)) < 0.02
