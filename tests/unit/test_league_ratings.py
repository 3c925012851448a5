"""Ratings: the most likely strengths, how sure they are, and what is said where there are none."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from arena.league.ratings import davidson, maximum
from arena.league.ratings.ratings import fit
from arena.league.results import Results, Score
from simulated_leagues import results_of as table

ELO = 400 / math.log(10)


FOUR = table(ab=(7, 2, 3), ac=(5, 1, 4), ad=(9, 0, 1), bc=(2, 6, 4), bd=(5, 5, 2), cd=(6, 2, 4))

EVEN = table(ab=(7, 2, 3), ac=(5, 3, 4), ad=(9, 1, 1), bc=(4, 3, 4), bd=(5, 3, 2), cd=(6, 2, 4))  # as usual as nu says


def test_distance_of_two_players_is_the_win_ratio() -> None:
    found = fit(table(ab=(30, 20, 10)))
    assert found.difference("a", "b").value == pytest.approx(400 * math.log10(3), abs=1e-3)
    assert found.of("a").elo == pytest.approx(-found.of("b").elo) == pytest.approx(200 * math.log10(3), abs=1e-3)
    assert found.nu == pytest.approx(20 / math.sqrt(300), rel=1e-5)
    assert not found.prior


def test_interval_of_two_players_is_of_a_log_odds_ratio() -> None:
    found = fit(table(ab=(30, 20, 10))).difference("a", "b")
    reach = 1.959964 * ELO * math.sqrt(1 / 30 + 1 / 10)  # Woolf 1955
    assert (found.high - found.value, found.value - found.low) == pytest.approx((reach, reach), rel=1e-4)


def test_without_draws_ratings_are_the_bradley_terry_fixed_point() -> None:
    wins = np.array([[0, 7, 5, 9], [3, 0, 2, 5], [4, 4, 0, 6], [1, 2, 4, 0]], float)
    strength = np.ones(4)
    for _ in range(2000):  # Zermelo 1929: strength = wins / sum over others of games / (strength + other's)
        games = (wins + wins.T) / (strength[:, None] + strength[None, :])
        strength = wins.sum(axis=1) / games.sum(axis=1)
        strength /= np.exp(np.log(strength).mean())
    results = Results()
    for i, j in itertools.combinations(range(4), 2):
        results.add_score(("abcd"[i],), ("abcd"[j],), Score(int(wins[i, j]), 0, int(wins[j, i])))
    assert fit(results).elo == pytest.approx(ELO * np.log(strength), abs=1e-3)


def test_expected_scores_equal_actual_scores() -> None:
    found = fit(EVEN)
    expected, scored = dict.fromkeys("abcd", 0.0), dict.fromkeys("abcd", 0.0)
    for ((a,), (b,)), score in EVEN.pairs().items():
        odds = 10 ** (found.difference(a, b).value / 800)
        share = (odds + found.nu / 2) / (odds + found.nu + 1 / odds)
        expected[a] += share * score.games
        expected[b] += (1 - share) * score.games
        scored[a] += score.points
        scored[b] += score.games - score.points
    assert expected == pytest.approx(scored, abs=1e-4)  # the likelihood equations, Davidson 1970


@pytest.mark.parametrize("uneven", [False, True])
def test_intervals_come_from_the_curvature_of_the_likelihood(uneven: bool) -> None:
    results, part = Results(), UNEVEN if uneven else EVEN
    results.update(part)
    for (first, second), score in part.pairs().items():
        results.add_score(second, first, Score(2 + score.losses, score.draws, score.wins), sided=True)
    games = davidson.games_of(results, "abcd")
    found = maximum.most_likely(games)
    assert (found.similarity > 0.01) == uneven
    step = 1e-3

    def value(free: np.ndarray) -> float:  # of three strengths, side and log nu; the fourth strength is minus their sum
        parameters = np.array([*free[:3], -free[:3].sum(), free[3]])
        return float(davidson.log_likelihood(games, parameters[None], found._replace(nu=math.exp(free[4])))[0])

    middle = np.array([*found.strengths[:3], found.parameters[4], math.log(found.nu)])
    moves = step * np.eye(5)
    curvature = [
        [value(middle + a + b) - value(middle + a - b) - value(middle - a + b) + value(middle - a - b) for b in moves]
        for a in moves
    ]
    covariance = np.linalg.inv(-np.array(curvature) / (4 * step**2))
    free = [0, 1, 2, 4]
    assert found.covariance[np.ix_(free, free)] == pytest.approx(covariance[:4, :4], rel=1e-3)


UNEVEN = table(  # strong players decide their games, weak ones draw
    ab=(21, 5, 12), ac=(40, 1, 9), ad=(48, 0, 2), bc=(22, 12, 8), bd=(25, 20, 5), cd=(9, 70, 4)
)


@pytest.mark.parametrize(("players", "drawn"), [("abcd", 3), ("abcde", 0)])
def test_large_and_small_leagues_are_rated_alike(drawn: int, players: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = table(ab=(7, drawn, 3), ac=(5, drawn, 4), bd=(5, 0, 2))
    results.add_score(("a", "d"), ("b", "c", "c"), Score(2, drawn, 3), sided=True)
    results.add_score(("c",), ("c",), Score(5, 0, 3), sided=True)
    small = maximum.most_likely(davidson.games_of(results, players))
    monkeypatch.setattr(davidson, "_DENSE", 0)
    monkeypatch.setattr(maximum, "_DENSE", 0)
    games = davidson.games_of(results, players)
    assert not isinstance(games.design, np.ndarray)
    large = maximum.most_likely(games)
    assert large.prior == small.prior == (players == "abcde")
    assert large.nu == pytest.approx(small.nu)
    assert large.parameters == pytest.approx(small.parameters, abs=1e-9)
    assert large.covariance == pytest.approx(small.covariance, abs=1e-9)


@pytest.mark.slow
def test_cost_of_the_likelihood_grows_with_met_pairs() -> None:
    players, rng = [f"p{number:04d}" for number in range(1000)], np.random.default_rng(0)
    results = Results()
    for first, second in rng.choice(1000, (3000, 2)).tolist():
        results.add_score((players[first],), (players[second],), Score(3, 1, 2))
    parameters = np.zeros((len(players), len(players) + 1))
    tracemalloc.start()
    games = davidson.games_of(results, players)
    design = tracemalloc.get_traced_memory()[1]
    davidson.log_likelihood(games, parameters, davidson.Fit(parameters[0], parameters, 0.5, False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert design < 8e6, "24 MB if it were dense"
    assert peak < 64e6, "a chance of each end of each pair for each of 1000 strengths alone is 72 MB"


def test_ratings_have_mean_zero_and_descending_order() -> None:
    found = fit(FOUR)
    assert sum(found.of(name).elo for name in found.players) == pytest.approx(0, abs=1e-6)
    assert sorted(found.players, key=lambda name: -found.of(name).elo) == list(found.order()) == ["a", "c", "b", "d"]
    assert [found.of(name).games for name in "abcd"] == [32, 36, 34, 34]


def test_team_strength_is_the_mean_of_its_members() -> None:
    alone, doubled, mixed = table(ab=(30, 20, 10)), Results(), Results()
    doubled.add_score(("a", "a"), ("b", "b"), Score(30, 20, 10))
    mixed.add_score(("a", "c"), ("b", "c"), Score(30, 20, 10))
    mixed.add_score(("a", "a"), ("c", "c"), Score(30, 20, 10))
    assert fit(doubled).elo == pytest.approx(fit(alone).elo)
    assert fit(mixed).difference("a", "b").value == pytest.approx(2 * 400 * math.log10(3), abs=1e-2)


# --- sides ----------------------------------------------------------------------------------------------------------


def test_winning_from_the_better_side_does_not_rate_higher() -> None:
    results = Results()
    results.add(("a",), ("a",), "win", count=90)
    results.add(("a",), ("a",), "loss", count=10)
    results.add(("a@1",), ("a",), "win", count=90)
    results.add(("a@1",), ("a",), "loss", count=10)
    found = fit(results)
    assert found.difference("a@1", "a").value == pytest.approx(0.0, abs=10)
    assert found.side.low < 400 * math.log10(9) < found.side.high
    assert found.difference("a@1", "a").high < 200


def test_fixed_sides_leave_side_and_strength_unidentified() -> None:
    one_side, without = Results(), Results()
    one_side.add_score(("a",), ("b",), Score(wins=300, losses=100), sided=True)
    without.add_score(("a",), ("b",), Score(wins=300, losses=100))
    known, unknown = (fit(results).difference("a", "b") for results in (without, one_side))
    assert known.high - known.low < 100
    assert unknown.high - unknown.low > 1000
    assert unknown.low < 0 < unknown.high


@pytest.mark.parametrize(
    "results",
    [
        table(ab=(1, 0, 0)),
        table(ab=(5, 0, 0), bc=(3, 0, 2)),
        table(ab=(5, 5, 0)),
        table(ab=(0, 5, 0)),
        table(ab=(3, 0, 2), cd=(3, 0, 2)),
    ],
    ids=["a game", "never lost", "never lost, but drawn", "draws alone", "two groups"],
)
def test_unbounded_strengths_get_a_weak_prior(results: Results) -> None:
    found = fit(results)
    assert found.prior
    assert np.isfinite(found.elo).all()
    assert (np.abs(found.elo) < 800).all()


def test_draws_alone_tie_a_player_to_one_that_has_won_and_lost() -> None:
    found = fit(table(ab=(3, 0, 2), bc=(0, 4, 0)))
    assert not found.prior
    assert found.difference("b", "c").value == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("draws", [1, 96, 999])
def test_equal_players_are_sorted_by_name(draws: int) -> None:
    every = {first + second: (0, draws, 0) for first, second in itertools.combinations("abcdef", 2)}
    assert fit(table(**every)).order() == tuple("abcdef")


def test_intervals_between_unmet_groups_are_wide() -> None:
    found = fit(table(ab=(30, 0, 20), cd=(30, 0, 20)))
    inside, across = found.difference("a", "b"), found.difference("a", "c")
    assert across.high - across.low > 3 * (inside.high - inside.low)
    assert inside.low < across.value < inside.high


def test_unplayed_player_has_the_prior() -> None:
    found = fit(Results(), players=["a"] * 2 + [f"p{number}" for number in range(99)])
    assert found.of("a").elo == 0
    assert found.of("a").high == pytest.approx(1.96 * 400 * math.sqrt(0.99), rel=1e-3)
    assert found.of("a").games == 0


def strongly_connected(beaten: np.ndarray) -> bool:
    return bool(connected_components(csr_array(beaten), connection="strong")[0] == 1)


@pytest.mark.slow
@given(st.lists(st.integers(0, 1), min_size=12, max_size=12))
@settings(max_examples=25)
def test_maximum_exists_if_wins_are_strongly_connected(cells: list[int]) -> None:
    beaten = np.zeros((4, 4), int)  # Ford 1957
    beaten[~np.eye(4, dtype=bool)] = cells
    results = Results()
    for i, j in itertools.combinations(range(4), 2):
        results.add_score(("abcd"[i],), ("abcd"[j],), Score(int(beaten[i, j]), 0, int(beaten[j, i])))
    assert davidson.has_maximum(davidson.games_of(results, "abcd")) == strongly_connected(beaten)


def test_self_play_estimates_the_side_advantage() -> None:
    results = Results()
    for outcome, count in (("win", 30), ("loss", 10)):
        results.add(("a",), ("a",), outcome, count=count)
        results.add(("b",), ("c",), outcome, count=5)
    ratings = fit(results)
    assert ratings.players == ("b", "c")
    assert ratings.side[0] > 0
