"""Tournaments as data: which pairs play, when an order is decided, pairs whose games contradict it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from arena.config.matches import Match
from arena.errors import percent
from arena.league.ratings.contradictions import Contradiction
from arena.league.ratings.intervals import of_share
from arena.league.ratings.ranking import Standings, _ratios_of_equality, decided, most_informative
from arena.league.results import Results, Score
from arena.league.tournament import (
    OrderUncertainty,
    Rule,
    Table,
    distinct_settings,
    next_batch,
    not_behind,
    rows_of_returns,
    seated,
    table,
    widened,
)
from arena.terminal.standings import contradiction_lines, verdict_lines
from simulated_leagues import Tournament, results_of

DUEL = Match(env="g", seats=("?", "?"), sides=((0,), (1,)), lanes=4)
TEAMS = Match(env="g", seats=(("?", "?"), "?", "?"), sides=((0,), (1, 2)), lanes=1)
RULE = Rule(games=1000, error=0.05, elo=50)


def games(batch: Any) -> int:
    return sum(match.copies * match.lanes for match in batch.matches) * batch.episodes


def test_every_pair_of_a_batch_plays_both_sides_of_every_setting_alike() -> None:
    batch = next_batch([DUEL, TEAMS], ["a", "b", "c"], Results(), RULE, played=0)
    assert batch is not None
    counts = Counter[Any]()
    for match in batch.matches:
        counts[len(match.seats), match.seats] += match.copies
    duels = {seats: count for (size, seats), count in counts.items() if size == 2}
    assert all(duels[one, other] == duels[other, one] for one, other in duels)
    assert sum(count for (size, _), count in counts.items() if size == 3) == sum(duels.values())
    assert {name for pair in duels for name in pair} == {"a", "b", "c"}


def test_budget_is_used_in_whole_meetings_and_never_exceeded() -> None:
    found = Tournament("abc", lambda *_: (0.5, 0.0, 0.5), Rule(games=301, error=1e-9, elo=1), lanes=4)
    assert found.results.games == 296  # 37 meetings of 8 games


def test_batches_grow_with_the_played_games() -> None:
    small = next_batch([DUEL], ["a", "b"], Results(), RULE, played=0)
    large = next_batch([DUEL], ["a", "b"], Results(), RULE, played=800)
    assert small is not None
    assert large is not None
    assert games(small) == 8  # the meeting of the only pair
    assert games(large) == 192  # a quarter of 800, in whole meetings of every pair


def test_a_budget_below_one_meeting_has_no_batch() -> None:
    assert next_batch([DUEL], ["a", "b"], Results(), RULE._replace(games=7), played=0) is None


def test_table_marks_undecided_neighbors() -> None:
    results = Results()
    results.add_score(("a",), ("b",), Score(wins=20, losses=19))
    for name in "ab":
        results.add_score((name,), ("c",), Score(wins=90, losses=10))
    found = table(results, ["a", "b", "c"], RULE)
    assert not found.decided
    assert [(doubt.upper, doubt.lower) for doubt in found.open] == [("a", "b")]
    assert [(row.rank, row.score.games) for row in found.rows] == [(1, 139), (2, 139), (3, 200)]


@pytest.mark.parametrize("share", [0.6, 0.55])
def test_so_many_more_games_as_said_settle_a_pair(share: float) -> None:
    def after(games: int) -> Table:
        results, won = Results(), round(games * share)
        results.add_score(("a",), ("b",), Score(wins=won, losses=games - won))
        for name in "ab":
            results.add_score((name,), ("c",), Score(wins=200, losses=20))
        return table(results, ["a", "b", "c"], RULE._replace(elo=20))

    (first, second), (pair,) = after(100).doubts, after(100).open
    assert pair == first and (pair.upper, pair.lower) == ("a", "b") and second.games_left == 0
    needed = pair.games_left
    assert after(100 + needed // 2).doubts[0].games_left == pytest.approx(needed / 2, rel=0.6)
    assert after(100 + needed).doubts[0].games_left <= needed / 5
    assert after(100 + 2 * needed).open == []


@pytest.mark.parametrize(
    ("probabilities", "listed"),
    [((0.21, 0.07, 0.01, 0.04), "ABD"), ((0.4, 0.5, 0.1, 0.0), "ABC"), ((0.01, 0.31, 0.01, 0.01), "B")],
)
def test_open_neighbors_sum_to_more_than_the_error(probabilities: tuple[float, ...], listed: str) -> None:
    doubts = [
        OrderUncertainty(name, name.lower(), found, equal=False)
        for name, found in zip("ABCD", probabilities, strict=True)
    ]
    undecided = Table([], doubts, error=0.3, prior=False)
    assert "".join(doubt.upper for doubt in undecided.open) == listed
    assert sum(doubt.probability for doubt in undecided.open) > undecided.error


@pytest.mark.slow
def test_equal_players_beside_a_weak_one_are_decided() -> None:
    def chances(first: int, second: int) -> Sequence[float]:
        return 0.8 * (second == 2), 0.2 if 2 in (first, second) else 1.0, 0.8 * (first == 2)

    played = Tournament(["a", "b", "weak"], chances, RULE._replace(games=10_000, elo=20), lanes=4)
    last = played.tables[-1]
    assert [(doubt.lower == "weak", doubt.equal) for doubt in last.doubts] == [(False, True), (True, False)]
    assert last.decided
    assert played.results.games < 2000


def test_returns_of_the_same_games_rank_players_within_their_intervals() -> None:
    """In simulated games players differ by 0, 0 and 1, with a deviation of 10 of the games and of 1 of each player."""
    random, truth = np.random.default_rng(0), {"a": 1.0, "b": 1.0, "c": 0.0}
    missed, missed_returns, last, left = 0, 0, 0, 0
    for _ in range(400):
        shared = random.normal(0, 10, 50)
        rows = rows_of_returns({name: list(shared + value + random.normal(0, 1, 50)) for name, value in truth.items()})
        best = truth[rows[0]["player"]]
        within = [row["difference_low"] <= truth[row["player"]] - best <= row["difference_high"] for row in rows[1:]]
        missed += not all(within)
        missed_returns += not rows[0]["return_low"] <= best <= rows[0]["return_high"]
        last += rows[2]["player"] == "c"
        left += len(not_behind(rows)) == 1
    assert missed <= 25, "5 % of 400 are 20; without Bonferroni 39"
    assert 8 <= missed_returns <= 35, "a single interval of 95 %"
    assert last == 400, "of a difference of 1 the games have a deviation of 0.2"
    assert left >= 360, "a and b are not separated"


def test_settings_are_found_again_in_the_matches_of_a_batch() -> None:
    batch = next_batch([DUEL, TEAMS], ["a", "b", "c"], Results(), RULE, played=0)
    assert batch is not None
    again = distinct_settings(batch.matches)
    assert [seated(setting, ("?", "?")) for setting in again] == [DUEL, TEAMS]


def test_lanes_are_added_while_the_budget_covers_all_pairs() -> None:
    narrow = Match(env="g", seats=("?", "?"), sides=((0,), (1,)))
    assert [setting.lanes for setting in widened([narrow, DUEL], 4, RULE._replace(games=10_000))] == [16, 16]
    assert [setting.lanes for setting in widened([narrow, DUEL], 4, RULE._replace(games=128))] == [2, 4]
    assert [setting.lanes for setting in widened([narrow], 4, RULE._replace(games=10))] == [1]


# Pairs whose own games contradict an order: games of cycles do, games of transitive leagues do not for long


Chances = Callable[[int, int], np.ndarray]
"""Who has the first side, and who the other -> of a win, a draw and a loss of the first, float64 [3]."""

CIRCLE = np.array([[0.5, 0.61, 0.13], [0.39, 0.5, 0.61], [0.87, 0.39, 0.5]])  # the closing pair wins most


def davidson(strengths: np.ndarray, *, nu: float = 0.0, side: float = 0.0) -> Chances:
    def chances(first: int, second: int) -> np.ndarray:
        odds = 10 ** ((strengths[first] - strengths[second] + side) / 800)
        weights = np.array([odds, nu, 1 / odds])
        return np.asarray(weights / weights.sum())

    return chances


def with_luck(strengths: np.ndarray, share: float) -> Chances:
    """So many games are won by either with the same chance, the others as strengths say."""
    usual = davidson(strengths)
    return lambda first, second: (1 - share) * usual(first, second) + share * np.array([0.5, 0.0, 0.5])


def found_in(results: Results, *, elo: float = 20) -> list[Contradiction]:
    return Standings(results, results.players, elo=elo).contradictions()


BEATS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])  # rock, paper and scissors


def with_a_player_of_chance(first: int, second: int) -> np.ndarray:
    """Rock, paper, scissors, and a fourth player that draws its moves."""
    if 3 in (first, second):
        return np.full(3, 1 / 3)
    found = BEATS[first, second]
    return np.array([found > 0, found == 0, found < 0], np.float64)


def played(players: int, chances: Chances, seed: int, *, lanes: int, games: int, elo: float = 20) -> Tournament:
    names = [f"p{number}" for number in range(players)]
    return Tournament(names, chances, Rule(games, error=0.05, elo=elo), lanes=lanes, seed=seed)


def circle() -> Results:
    return results_of(ab=(96, 0, 0), bc=(192, 0, 0), ca=(32, 0, 0))


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [pytest.param(4, marks=pytest.mark.long), 16])
def test_rock_paper_scissors_and_chance_all_meet_and_are_not_ordered(lanes: int) -> None:
    for seed in range(2):
        tournament = played(4, with_a_player_of_chance, seed, lanes=lanes, games=800)
        last = tournament.tables[-1]
        assert not last.unmet
        assert len(tournament.results.pairs()) == 6
        assert not any(found.decided for found in tournament.tables)
        circles = {frozenset(pair.circle) for found in tournament.tables for pair in found.contradictions}
        assert frozenset({"p0", "p1", "p2"}) in circles
        strengths = [row.elo for row in last.rows if row.player != "p3"]
        assert max(strengths) - min(strengths) < 150


def test_every_pair_meets_once_before_any_pair_meets_again() -> None:
    tournament = played(7, davidson(300.0 * np.arange(7)), 0, lanes=2, games=21 * 4)
    assert {score.games for score in tournament.results.pairs().values()} == {4}
    assert len(tournament.results.pairs()) == 21
    sides = tournament.results.by_side()
    assert {score.games for score in sides.values()} == {2}
    assert len(sides) == 42


def test_cycle_contradicts_every_order_and_is_named() -> None:
    results = circle()
    found = found_in(results)
    assert found
    assert not decided(results, "abc")
    assert not table(results, "abc", Rule(games=1000, error=0.05, elo=20)).decided
    for pair in found:
        assert pair.beats
        assert pair.circle in {("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")}
        assert pair.circle[:2] == (pair.lower, pair.upper)
        assert pair.score == 1
        assert 0.5 < pair.low < pair.high == 1


@pytest.mark.long
def test_order_of_a_cycle_is_rarely_decided_with_few_closing_games() -> None:
    def chances(first: int, second: int) -> np.ndarray:
        return np.array([CIRCLE[first, second], 0.0, CIRCLE[second, first]])

    found = [played(3, chances, seed, lanes=4, games=800).tables[-1].decided for seed in range(20)]
    assert sum(found) <= 2  # 19 where a lower player has to beat the upper one


def hidden() -> Results:
    """Neighbors are settled, and the pair of the first and the last player has few games."""
    return results_of(ab=(113, 0, 71), bc=(38, 0, 2), ac=(8, 0, 8))


def test_contradicting_pair_keeps_the_order_open() -> None:
    rule, setting = Rule(1000, error=0.05, elo=20), Match(env="g", seats=("?", "?"), sides=((0,), (1,)))
    found = table(hidden(), "abc", rule)
    (pair,) = found.contradictions
    assert (pair.lower, pair.upper, pair.score, pair.games, pair.beats, pair.circle) == ("c", "a", 0.5, 16, False, ())
    assert (pair.low, pair.high) == of_share(8, 16)
    assert (found.open, found.decided, decided(hidden(), "abc")) == ([], False, False)
    batch = next_batch([setting], "abc", hidden(), rule, played=hidden().games)
    assert batch is not None
    assert {frozenset(match.seats) for match in batch.matches} == {frozenset("ac")}
    assert 16 <= sum(match.copies for match in batch.matches) * batch.episodes < 16 + 2 * batch.episodes


def test_the_pair_that_keeps_an_order_open_is_named() -> None:
    rule = Rule(1000, error=0.05, elo=20)
    (line,) = verdict_lines(table(hidden(), "abc", rule), rule, hidden().games)
    (pair,) = found_in(hidden())
    assert line == (
        "the order is not decided after 240 games: those of a and c (c scores 50.0 %, expected "
        f"{percent(pair.expected, 1)}) contradict it"
    )


def test_many_undecided_pairs_are_counted() -> None:
    rule, names = Rule(1000, error=0.05, elo=20), [f"p{number}" for number in range(9)]
    results = Results()
    for one, other in itertools.combinations(names, 2):
        results.add_score((one,), (other,), Score(wins=5, losses=5))
    (line,) = verdict_lines(table(results, names, rule), rule, results.games)
    assert line.count("more games)") == 3
    assert line.endswith(", and 5 more pairs, together more than the error")


def test_misfit_with_the_right_sign_leaves_the_order_decided() -> None:
    results = hidden()
    results.add_score(("a",), ("c",), Score(wins=20, losses=2))
    assert not found_in(results)
    assert decided(results, "abc")


def test_side_advantage_of_a_pair_is_no_contradiction() -> None:
    """The second player of a pair scores more, as it alone has had the side that is better."""
    results = Results()
    for first, second, wins in (("a", "b", 80), ("b", "a", 72), ("b", "c", 80), ("c", "b", 72), ("c", "a", 68)):
        results.add_score((first,), (second,), Score(wins=wins, losses=100 - wins), sided=True)
    assert Standings(results, "abc").order == ("a", "b", "c")
    assert results.between("c", "a") == Score(wins=68, losses=32)
    assert not found_in(results)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("players", "chances", "lanes", "elo"),
    [
        (3, davidson(np.zeros(3), nu=0.5), 4, 100),
        pytest.param(6, davidson(100.0 * np.arange(6), nu=0.3, side=100.0), 1, 100, marks=pytest.mark.long),
        (6, davidson(300.0 * np.arange(6)), 4, 100),  # with upsets of which fewer than one is expected
        pytest.param(8, davidson(60.0 * np.arange(8), nu=2.0), 4, 60, marks=pytest.mark.long),
    ],
)
def test_transitive_tournaments_come_to_an_end(players: int, chances: Chances, lanes: int, elo: float) -> None:
    tournament = played(players, chances, 0, lanes=lanes, games=20_000, elo=elo)
    assert tournament.tables[-1].decided
    assert tournament.results.games < 10_000


def test_cycles_below_the_resolution_contradict_nothing() -> None:
    won = (53_000, 0, 47_000)  # 21 Elo, where 0 are expected
    results = results_of(ab=won, bc=won, ca=won)
    assert not found_in(results, elo=25)
    assert found_in(results, elo=15)[0].circle


def test_luck_misfits_strengths_and_keeps_the_order() -> None:
    results = results_of(ab=(3600, 0, 400), bc=(3600, 0, 400), ac=(3640, 0, 360))  # 98.8 % would fit the other pairs
    assert not found_in(results)
    assert decided(results, "abc")


def test_a_tournament_of_a_game_with_luck_is_decided() -> None:
    strengths = np.array([0.0, 200.0, 500.0, 600.0, 800.0])
    last = played(5, with_luck(strengths, 0.2), 0, lanes=4, games=4000, elo=50).tables[-1]
    assert last.decided
    assert [row.player for row in last.rows] == ["p4", "p3", "p2", "p1", "p0"]


def test_contradictions_are_printed_with_scores_and_intervals() -> None:
    found = found_in(circle())
    pairs, circles, remedy = contradiction_lines(found)
    low = percent(of_share(found[0].games, found[0].games)[0], 1)
    assert (
        f"scores 100.0 % [{low}, 100.0 %] against {found[0].upper}, which stands higher, where their strengths" in pairs
    )
    assert found[0].expected < 0.5 and f"predict {percent(found[0].expected, 1)}" in pairs
    assert circles.endswith(f"{' beats '.join([*found[0].circle, found[0].circle[0]])}")
    assert remedy == "see payoffs and Nash averaging in the report, which need no order"
    assert contradiction_lines([]) == []


# Which pair is played next, and when an order is decided


NAT = 400 / math.log(10)


@pytest.mark.parametrize("wins", [11, 30])
def test_two_players_are_compared_by_walds_test(wins: int) -> None:
    ratio = math.exp((wins - 10) * 50 / NAT)
    assert Standings(results_of(ab=(wins, 0, 10)), "ab", elo=50).wrong == pytest.approx(1 / (1 + ratio), rel=1e-6)


def test_two_players_are_ordered_at_the_bound_of_the_error() -> None:
    needed = math.ceil(math.log(19) / (50 / NAT))  # 1 / (1 + r) <= 0.05
    assert not decided(results_of(ab=(9 + needed, 0, 10)), "ab", 0.05, elo=50)
    assert decided(results_of(ab=(10 + needed, 0, 10)), "ab", 0.05, elo=50)
    assert not decided(results_of(ab=(10 + needed, 0, 10)), "ab", 0.01, elo=50)


def test_equality_by_draws_is_walds_test() -> None:
    many = math.tanh(20 / NAT / 2)  # the share of games that, all of them won, scores as 20 Elo do without draws
    assert many == pytest.approx(2 / (1 + 10 ** (-20 / 400)) - 1)
    needed = math.ceil(math.log(19) / math.log((1 - many / 4) / (1 - many)))
    assert not decided(results_of(ab=(0, needed - 1, 0)), "ab", 0.05, elo=20)
    assert decided(results_of(ab=(0, needed, 0)), "ab", 0.05, elo=20)
    standings = Standings(results_of(ab=(0, needed, 0)), "ab", elo=20)
    assert standings.doubts[0].equal
    ratio = ((1 - many / 4) / (1 - many)) ** needed
    assert standings.wrong == pytest.approx(1 / (1 + ratio))
    lost = Standings(results_of(ab=(0, needed, 1)), "ab", elo=20)
    assert lost.wrong > standings.wrong


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


def test_games_of_larger_teams_do_not_make_players_equal() -> None:
    results = Results()
    results.add_score(("a", "c"), ("b", "c"), Score(draws=500))
    assert not Standings(results, "ab", elo=20).doubts[0].equal
    results.add_score(("b", "b"), ("a", "a"), Score(draws=500))
    assert Standings(results, "ab", elo=20).doubts[0].equal


def test_a_pair_that_is_settled_by_draws_is_not_played_for_ever() -> None:
    results = results_of(ab=(0, 400, 0), ac=(9, 0, 3), bc=(9, 0, 3))
    pairs = most_informative(results, "abc", count=20)
    assert ("a", "b") not in pairs
    assert ("b", "a") not in pairs


def test_undecided_pairs_and_unplayed_players_are_played_first() -> None:
    results = results_of(ab=(90, 0, 10), ac=(92, 0, 8), bc=(12, 0, 10))
    assert set(most_informative(results, "abc", count=5, elo=50)) == {("b", "c")}
    assert "a" in Standings(results, "abc", elo=50).next_pair(of="a")
    results = results_of(ab=(90, 0, 10), ac=(99, 0, 1), bc=(90, 0, 10))
    assert "d" in most_informative(results, "abcd", elo=50)[0]
    met = Counter(name for pair in most_informative(Results(), "abcdef", count=6) for name in pair)
    assert set(met) == set("abcdef")


def test_pairs_are_deterministic_with_the_stronger_first() -> None:
    results = results_of(ab=(5, 2, 12), bc=(7, 0, 6), ac=(3, 3, 9))
    order = Standings(results, "abc").order
    pairs = most_informative(results, "abc", count=9)
    assert pairs == most_informative(results, "cab", count=9)
    assert all(order.index(first) < order.index(second) for first, second in pairs)
