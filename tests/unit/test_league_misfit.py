"""Whether games fit one strength per player: those of transitive leagues do, those that go round in a circle do not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from arena.commands.contesting import verdict_lines
from arena.config.matches import MatchConfig
from arena.league.misfit import ALARM, Misfit, misfit
from arena.league.pairing import decided
from arena.league.ratings import fit
from arena.league.results import Results, Score
from arena.league.tournament import Rule, Table, next_batch, table
from arena.screen.standings import misfit_lines

Chances = Callable[[int, int], np.ndarray]
"""Who has the first side, and who the other -> of a win, a draw and a loss of the first, float64 [3]."""

CIRCLE = np.array([[0.5, 0.61, 0.13], [0.39, 0.5, 0.61], [0.87, 0.39, 0.5]])  # the closing pair wins most
MIXED = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])  # of rock, paper and scissors


def found_in(results: Results, *, elo: float = 20) -> Misfit:
    return misfit(results, fit(results), elo=elo)


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


def mirrored(first: int, second: int) -> np.ndarray:
    """Mixtures of rock, paper and scissors that are mirror images of each other: all are equally good."""
    joint = np.outer(MIXED[first], MIXED[second])
    won = sum(joint[move, move - 1] for move in range(3))
    return np.array([won, np.trace(joint), 1 - won - np.trace(joint)])


class Played:
    """A whole tournament, what is said of it looked at after every batch."""

    def __init__(self, players: int, chances: Chances, seed: int, *, lanes: int, games: int, elo: float = 20) -> None:
        names, rng = [f"p{number}" for number in range(players)], np.random.default_rng(seed)
        setting = MatchConfig(env="g", seats=("?", "?"), sides=((0,), (1,)), lanes=lanes)
        rule = Rule(games, error=0.05, elo=elo)
        self.results, self.seen = Results(), list[Table]()
        while (batch := next_batch([setting], names, self.results, rule, played=self.results.games)) is not None:
            for match in batch.matches:
                first, second = (str(name) for name in match.seats)
                count = match.copies * match.lanes * batch.episodes
                score = Score(*rng.multinomial(count, chances(int(first[1:]), int(second[1:]))).tolist())
                self.results.add_score((first,), (second,), score, sided=True)
            self.seen.append(table(self.results, names, rule))


def circle(games: int = 96) -> Results:
    """The second of each two, as a wins against b, b against c, and c against a."""
    results = Results()
    for first, second, count in (("a", "b", games), ("b", "c", 2 * games), ("c", "a", games // 3)):
        results.add_score((first,), (second,), Score(wins=count))
    return results


def test_a_circle_does_not_fit_strengths_and_who_stands_low_is_said_to_beat_who_stands_high() -> None:
    found = found_in(circle())
    assert found.p < 1e-10
    assert found.circular
    upsets = {(one.first, one.second) for one in found.surprises if one.upset}
    order = fit(circle()).order()
    assert upsets
    assert all(order.index(winner) > order.index(loser) for (winner,), (loser,) in upsets)
    assert all(one.score == 1 and one.expected < 0.9 for one in found.surprises)


def test_a_circle_has_no_order_that_is_decided() -> None:
    results = circle()
    assert not decided(results, "abc")
    assert not table(results, "abc", Rule(games=1000, error=0.05, elo=20)).decided


@pytest.mark.parametrize("seed", range(6))
def test_mirror_images_are_never_said_to_be_in_order_and_all_pairs_play_alike_then(seed: int) -> None:
    tournament = Played(3, mirrored, seed, lanes=16, games=2000)
    assert not any(found.decided for found in tournament.seen)
    assert tournament.results.games > 2000 - 2 * 16
    games = [score.games for score in tournament.results.pairs().values()]
    assert max(games) - min(games) <= 2 * 16 * 6
    assert max(abs(row.elo) for row in tournament.seen[-1].rows) < 20


def test_the_order_of_a_circle_is_seldom_decided_though_the_pair_that_closes_it_plays_few_games() -> None:
    def chances(first: int, second: int) -> np.ndarray:
        return np.array([CIRCLE[first, second], 0.0, CIRCLE[second, first]])

    seen = [Played(3, chances, seed, lanes=4, games=800).seen[-1] for seed in range(20)]
    assert sum(found.decided for found in seen) <= 1  # 10 where no more is asked for than no sure alarm


def hidden() -> Results:
    """Whoever stands next to each other is settled, and strengths follow these games: the last pair has few."""
    results = Results()
    for first, second, score in (("a", "b", (113, 0, 71)), ("b", "c", (38, 0, 2)), ("a", "c", (8, 0, 8))):
        results.add_score((first,), (second,), Score(*score))
    return results


def test_a_pair_whose_own_games_speak_against_the_order_keeps_it_open_and_plays_next() -> None:
    rule, setting = Rule(1000, error=0.05, elo=20), MatchConfig(env="g", seats=("?", "?"), sides=((0,), (1,)))
    found = table(hidden(), "abc", rule)
    assert found.misfit.p > 0.05
    assert found.misfit.against == ((("a",), ("c",)),)
    assert (found.open, found.decided, decided(hidden(), "abc")) == ([], False, False)
    batch = next_batch([setting], "abc", hidden(), rule, played=hidden().games)
    assert batch is not None
    assert {frozenset(match.seats) for match in batch.matches} == {frozenset("ac")}


def test_the_pair_that_keeps_an_order_open_is_named() -> None:
    rule = Rule(1000, error=0.05, elo=20)
    (line,) = verdict_lines(table(hidden(), "abc", rule), rule, hidden().games)
    assert line == "the order is not decided after 240 games: those of a and c speak against it"


def test_a_pair_that_strengths_are_wrong_of_but_not_who_is_better_leaves_the_order_decided() -> None:
    results = hidden()
    results.add_score(("a",), ("c",), Score(wins=6, losses=1))
    assert not found_in(results).against
    assert decided(results, "abc")


@pytest.mark.parametrize(
    ("players", "chances", "lanes"),
    [
        (3, davidson(np.zeros(3), nu=0.5), 1),
        (6, davidson(np.zeros(6)), 1),
        (6, davidson(100.0 * np.arange(6), nu=0.3, side=100.0), 1),
        (6, davidson(300.0 * np.arange(6)), 1),  # with upsets of which fewer than one is expected
        (8, davidson(30.0 * np.arange(8), nu=2.0), 4),
        (5, lambda first, second: np.array([1.0, 0.0, 0.0]) if first != second else np.array([0.5, 0, 0.5]), 4),
    ],
)
def test_games_that_fit_are_not_called_a_misfit_after_any_batch(players: int, chances: Chances, lanes: int) -> None:
    for seed in range(4):
        tournament = Played(players, chances, seed, lanes=lanes, games=600)
        assert min(found.misfit.p for found in tournament.seen) >= ALARM


def test_the_evidence_is_1_at_most_in_the_mean_where_the_strengths_are_right() -> None:
    """Over all ways in which few games of two pairs can end, each with its chance."""
    chances, total = davidson(np.array([0.0, 150.0, 350.0]), nu=0.4), 0.0
    known = Results()  # so many games of all pairs, as they are expected, that a few more leave the strengths
    for first, second in ((0, 1), (1, 2), (0, 2)):
        share = np.round(1e7 * chances(first, second)).astype(int)
        known.add_score((f"p{first}",), (f"p{second}",), Score(*share.tolist()))
    ratings = fit(known)
    scores = [Score(won, drawn, 3 - won - drawn) for won, drawn in product(range(4), range(4)) if won + drawn <= 3]
    ways = {(3, 0, 0): 1, (0, 3, 0): 1, (0, 0, 3): 1, (1, 1, 1): 6}
    for score, other in product(scores, scores):
        results = Results()
        results.add_score(("p0",), ("p1",), score)
        results.add_score(("p0",), ("p2",), other)
        found = misfit(results, ratings, elo=1e-9)
        chance = ways.get(score, 3) * np.prod(chances(0, 1) ** score)
        chance *= ways.get(other, 3) * np.prod(chances(0, 2) ** other)
        total += float(chance) * (1 / found.p if found.p < 1 else 0.0)
    assert 0 < total <= 1


def test_strengths_that_are_wrong_by_less_than_the_difference_that_counts_are_no_misfit() -> None:
    results = Results()
    for first, second in (("a", "b"), ("b", "c"), ("c", "a")):
        results.add_score((first,), (second,), Score(wins=53_000, losses=47_000))  # 21 Elo, where 0 are expected
    assert found_in(results, elo=25).p == 1
    assert found_in(results, elo=15).circular


@pytest.mark.parametrize("games", [(4000, 3640, 360), (400, 364, 36)])
def test_luck_is_a_misfit_that_leaves_the_order_as_it_is(games: tuple[int, int, int]) -> None:
    count, won, lost = games
    results = Results()
    for first, second in (("a", "b"), ("b", "c")):
        results.add_score((first,), (second,), Score(count * 9 // 10, 0, count // 10))
    results.add_score(("a",), ("c",), Score(won, 0, lost))  # 91 % where 98.8 % would fit the other two pairs
    found = found_in(results)
    assert found.p < ALARM
    assert not found.circular
    assert decided(results, "abc")


@pytest.mark.parametrize("seed", range(3))
def test_a_tournament_of_a_game_with_luck_is_decided(seed: int) -> None:
    strengths = np.array([0.0, 200.0, 500.0, 600.0, 800.0])
    tournament = Played(5, with_luck(strengths, 0.2), seed, lanes=4, games=4000, elo=50)
    assert tournament.seen[-1].decided
    assert [row.player for row in tournament.seen[-1].rows] == ["p4", "p3", "p2", "p1", "p0"]


def test_the_side_that_wins_is_no_misfit_where_pairs_differ_in_what_it_is_worth() -> None:
    results = Results()
    for first, second in (("a", "b"), ("b", "a")):  # whoever is first wins; against c it does not matter
        results.add_score((first,), (second,), Score(wins=200), sided=True)
        for one, other, score in ((first, "c", Score(150, 0, 50)), ("c", first, Score(50, 0, 150))):
            results.add_score((one,), (other,), score, sided=True)
    assert found_in(results).p == 1


def test_without_games_there_is_no_misfit() -> None:
    assert misfit(Results(), fit(Results(), players="ab"), elo=20) == Misfit()


def test_a_misfit_is_said_in_a_line_with_the_pairs_that_make_it() -> None:
    (line,) = misfit_lines(found_in(circle()))
    assert line.startswith("these games do not fit one strength per player: ")
    assert "c scores 100.0% against a (expected " in line
    assert line.endswith("who leads depends on who meets whom; see payoffs and Nash averaging in the report")
    assert misfit_lines(Misfit()) == []
