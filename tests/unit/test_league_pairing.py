"""Which pair is played next, and when an order is decided."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from arena.league.ratings.ranking import Standings, _ratios_of_equality, decided, most_informative
from arena.league.results import Results, Score
from simulated_leagues import results_of as table

NAT = 400 / math.log(10)


CLEAR = {"ab": (60, 0, 20), "ac": (60, 0, 20)}


@pytest.mark.parametrize("wins", [11, 30])
def test_two_players_are_compared_by_walds_test(wins: int) -> None:
    ratio = math.exp((wins - 10) * 50 / NAT)
    assert Standings(table(ab=(wins, 0, 10)), "ab", elo=50).wrong == pytest.approx(1 / (1 + ratio), rel=1e-6)


def test_two_players_are_ordered_at_the_bound_of_the_error() -> None:
    needed = math.ceil(math.log(19) / (50 / NAT))  # 1 / (1 + r) <= 0.05
    assert not decided(table(ab=(9 + needed, 0, 10)), "ab", 0.05, elo=50)
    assert decided(table(ab=(10 + needed, 0, 10)), "ab", 0.05, elo=50)
    assert not decided(table(ab=(10 + needed, 0, 10)), "ab", 0.01, elo=50)


def test_equality_by_draws_is_walds_test() -> None:
    many = math.tanh(20 / NAT / 2)  # the share of games that, all of them won, scores as 20 Elo do without draws
    assert many == pytest.approx(2 / (1 + 10 ** (-20 / 400)) - 1)
    needed = math.ceil(math.log(19) / math.log((1 - many / 4) / (1 - many)))
    assert not decided(table(ab=(0, needed - 1, 0)), "ab", 0.05, elo=20)
    assert decided(table(ab=(0, needed, 0)), "ab", 0.05, elo=20)
    standings = Standings(table(ab=(0, needed, 0)), "ab", elo=20)
    assert standings.doubts[0].equal
    ratio = ((1 - many / 4) / (1 - many)) ** needed
    assert standings.wrong == pytest.approx(1 / (1 + ratio))
    lost = Standings(table(ab=(0, needed, 1)), "ab", elo=20)
    assert lost.wrong > standings.wrong


def test_many_draws_alone_do_not_show_equality() -> None:
    standings = Standings(table(ab=(100, 1800, 100)), "ab", elo=20)  # a tenth is decided; 20 Elo are 0.0575
    assert not standings.doubts[0].equal
    assert standings.wrong == pytest.approx(0.5)


@pytest.mark.parametrize("by_side", [False, True])
def test_unequal_players_are_rarely_found_equal(by_side: bool) -> None:
    """One wins where games are drawn else; or it wins from the better side, and now and then from the worse one."""
    many, rng, count = math.tanh(50 / NAT / 2), np.random.default_rng(by_side), 400
    decided, played = np.cumsum(rng.random((count, 300)) < many, axis=1), np.arange(1, 301)
    ends = np.zeros((decided.size, 3, 3))
    if by_side:
        ends[:, 0, 0] = np.broadcast_to(played, decided.shape).ravel()
        ends[:, 1, 0], ends[:, 1, 2] = (played - decided).ravel(), decided.ravel()
    else:
        ends[:, 2, 0], ends[:, 2, 1] = decided.ravel(), (played - decided).ravel()
    ratios = _ratios_of_equality(ends, 50 / NAT)[0].max(axis=0).reshape(decided.shape)
    wrong = int((ratios >= math.log(19)).any(axis=1).sum())
    assert 0 < wrong <= count * 0.05 + 3 * (count * 0.05 * 0.95) ** 0.5


def by_side(first: Score, second: Score) -> Results:
    """Games of a, on the first side, against b, and of b against a."""
    results = Results()
    results.add_score(("a",), ("b",), first, sided=True)
    results.add_score(("b",), ("a",), second, sided=True)
    return results


@pytest.mark.parametrize("always", [Score(wins=200), Score(losses=200)])
def test_players_are_equal_if_the_side_decides(always: Score) -> None:
    standings = Standings(by_side(always, always), "ab", elo=20)
    assert standings.doubts[0].equal
    many = math.tanh(20 / NAT / 2)
    assert standings.wrong == pytest.approx(1 / (1 + ((1 - many / 4) / (1 - many)) ** 200), rel=1e-6)


def test_winner_from_both_sides_is_not_equal() -> None:
    seldom = Score(wins=180, losses=20)  # a tenth; 20 Elo are 0.0575
    assert not Standings(by_side(Score(wins=200), seldom), "ab", elo=20).doubts[0].equal
    assert not Standings(by_side(Score(wins=200), Score()), "ab", elo=20).doubts[0].equal, "one side is unknown"


def test_winner_from_the_worse_side_is_rarely_found_equal() -> None:
    many, rng, count = math.tanh(50 / NAT / 2), np.random.default_rng(1), 400
    lost = np.cumsum(rng.random((count, 300)) < many, axis=1)
    played = np.arange(1, 301)
    ends = np.zeros((lost.size, 3, 3))
    ends[:, 0, 0] = np.broadcast_to(played, lost.shape).ravel()  # of a: it wins from the better side, and now and then
    ends[:, 1, 0], ends[:, 1, 2] = (played - lost).ravel(), lost.ravel()  # from the worse one
    ratios = _ratios_of_equality(ends, 50 / NAT)[0].max(axis=0).reshape(lost.shape)
    wrong = int((ratios >= math.log(19)).any(axis=1).sum())
    assert 0 < wrong <= count * 0.05 + 3 * (count * 0.05 * 0.95) ** 0.5


def test_games_of_larger_teams_do_not_make_players_equal() -> None:
    results = Results()
    results.add_score(("a", "c"), ("b", "c"), Score(draws=500))
    assert not Standings(results, "ab", elo=20).doubts[0].equal
    results.add_score(("b", "b"), ("a", "a"), Score(draws=500))
    assert Standings(results, "ab", elo=20).doubts[0].equal


def test_a_pair_that_is_settled_by_draws_is_not_played_for_ever() -> None:
    results = table(ab=(0, 400, 0), ac=(9, 0, 3), bc=(9, 0, 3))
    pairs = most_informative(results, "abc", count=20)
    assert ("a", "b") not in pairs
    assert ("b", "a") not in pairs


def test_one_undecided_pair_keeps_the_order_undecided() -> None:
    assert not decided(table(**CLEAR, bc=(20, 0, 20)), "abc", elo=50)
    assert decided(table(**CLEAR, bc=(40, 0, 10)), "abc", elo=50)


def test_games_of_other_players_are_used() -> None:
    direct = Standings(table(ab=(20, 0, 12)), "ab", elo=50)
    over = Standings(table(ab=(20, 0, 12), ax=(30, 0, 10), bx=(10, 0, 30)), "ab", elo=50)
    assert over.order == ("a", "b")
    assert over.wrong < direct.wrong


def test_undecided_pairs_and_unplayed_players_are_played_first() -> None:
    results = table(ab=(90, 0, 10), ac=(92, 0, 8), bc=(12, 0, 10))
    assert set(most_informative(results, "abc", count=5, elo=50)) == {("b", "c")}
    assert "a" in Standings(results, "abc", elo=50).next_pair(of="a")
    results = table(ab=(90, 0, 10), ac=(99, 0, 1), bc=(90, 0, 10))
    assert "d" in most_informative(results, "abcd", elo=50)[0]
    met = Counter(name for pair in most_informative(Results(), "abcdef", count=6) for name in pair)
    assert set(met) == set("abcdef")


def test_pairs_are_deterministic_with_the_stronger_first() -> None:
    results = table(ab=(5, 2, 12), bc=(7, 0, 6), ac=(3, 3, 9))
    order = Standings(results, "abc").order
    pairs = most_informative(results, "abc", count=9)
    assert pairs == most_informative(results, "cab", count=9)
    assert all(order.index(first) < order.index(second) for first, second in pairs)
