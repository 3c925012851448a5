"""Results of games do not depend on the writer and the order; the sequential test on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from arena.config.league import Gate
from arena.league.ratings.sprt import Verdict, expected_games, state
from arena.league.results import Encounter, Results, Score, encounters_of
from arena.records.outcome import Outcome


def test_a_game_is_the_same_from_both_sides() -> None:
    seen, other = Results(), Results()
    seen.add(("b",), ("a",), "win", count=3)
    other.add(("a",), ("b",), "loss", count=3)
    assert seen.pairs() == other.pairs() == {(("a",), ("b",)): Score(losses=3)}


def test_the_order_of_names_in_a_team_does_not_matter() -> None:
    results = Results([Encounter(("b", "a"), ("c", "c"), "win"), Encounter(("a", "b"), ("c", "c"), "draw")])
    assert results.pairs() == {(("a", "b"), ("c", "c")): Score(1, 1, 0)}


def test_team_against_itself_is_not_counted() -> None:
    results = Results([Encounter(("a", "b"), ("b", "a"), "win")])
    assert results.games == 0
    assert results.players == ()


def test_games_between_two_players_exclude_mixed_teams() -> None:
    results = Results()
    results.add(("a",), ("b",), "win", count=2)
    results.add(("b", "b"), ("a", "a"), "win", count=3)
    results.add(("a", "c"), ("b", "b"), "draw")
    results.add(("a", "b"), ("b", "b"), "draw")
    assert results.between("a", "b") == Score(2, 0, 3)
    assert results.between("b", "a") == Score(3, 0, 2)
    assert results.between("a", "c") == Score()


TWO = ((0, 1), (2,))


@pytest.mark.parametrize(
    ("sides", "outcomes", "expected"),
    [
        (TWO, ("win", "win", "loss"), Encounter(("a", "b"), ("c",), "win")),
        (TWO, ("draw", "draw", "draw"), Encounter(("a", "b"), ("c",), "draw")),
        (TWO, ("loss", "loss", "win"), Encounter(("a", "b"), ("c",), "loss")),
        (TWO, (None, None, None), None),
        (TWO, ("win", None, "loss"), None),
        (TWO, ("win", "loss", "loss"), None),
        (TWO, ("win", "win", "win"), None),
        (TWO, ("draw", "draw", "loss"), None),
        (((0,), (1,), (2,)), ("win", "loss", "loss"), None),
        ((), ("win", "win", "loss"), None),
    ],
)
def test_a_game_counts_where_two_sides_agree_on_how_it_ended(
    sides: Sequence[Sequence[int]], outcomes: Sequence[Outcome | None], expected: Encounter | None
) -> None:
    assert encounters_of(("b", "a", "c"), sides, outcomes) == (() if expected is None else (expected,))


def test_sides_ranked_by_returns_meet_pairwise() -> None:
    sides = ((0,), (1,), (2,))
    found = encounters_of(("a", "b", "c"), sides, ("win", "loss", "loss"), (3.0, 1.0, 1.0))
    assert found == (
        Encounter(("a",), ("b",), "win"),
        Encounter(("a",), ("c",), "win"),
        Encounter(("b",), ("c",), "draw"),
    )


def test_sides_without_a_finite_return_have_not_met() -> None:
    found = encounters_of(("a", "b", "c"), ((0,), (1,), (2,)), (None,) * 3, (2.0, math.nan, 1.0))
    assert found == (Encounter(("a",), ("c",), "win"),)


# The sequential test: what it says, and how often it is wrong, computed exactly


GATE = Gate(elo=100, alpha=0.05, beta=0.1)


def verdicts(gate: Gate, elo: float, *, games: int) -> dict[Verdict, float]:
    """The probability of each verdict on a player that is so much better: over all courses of decided games."""
    chance = 1 / (1 + 10 ** (-elo / 400))
    open_ = np.array([1.0])  # by the number of games won
    found = dict.fromkeys(Verdict, 0.0)
    for played in range(1, games + 1):
        open_ = np.append(open_ * (1 - chance), 0.0) + np.append(0.0, open_ * chance)
        for won in np.nonzero(open_)[0]:
            verdict = state(gate, Score(int(won), 0, int(played - won))).verdict
            if verdict is not Verdict.OPEN:
                found[verdict] += float(open_[won])
                open_[won] = 0.0
    found[Verdict.OPEN] = float(open_.sum())
    return found


@pytest.mark.parametrize(
    ("elo", "wrong", "error", "low"),
    [
        (0, Verdict.BETTER, GATE.alpha, GATE.alpha / 2),
        (-30, Verdict.BETTER, GATE.alpha, 0),
        (100, Verdict.NOT_BETTER, GATE.beta, GATE.beta / 2),
        (130, Verdict.NOT_BETTER, GATE.beta, 0),
    ],
)
def test_wrong_verdicts_are_within_the_error_and_near_it_at_the_bounds(
    elo: float, wrong: Verdict, error: float, low: float
) -> None:
    found = verdicts(GATE, elo, games=400)
    assert low < found[wrong] <= error
    assert found[Verdict.OPEN] < 1e-3


@pytest.mark.slow
def test_expected_games_equal_an_exhaustive_sum() -> None:
    shares = [verdicts(GATE, GATE.elo, games=games)[Verdict.OPEN] for games in range(0, 500, 20)]
    mean = 20 * (sum(shares) - 0.5 * shares[0])  # trapezia
    assert shares[-1] < 1e-3
    assert mean == pytest.approx(expected_games(GATE), rel=0.1)


@pytest.mark.parametrize("elo", [1e-9, 1e-3, 1, 4000, 1e9])
def test_small_differences_need_many_games_and_large_ones_few(elo: float) -> None:
    games = expected_games(Gate(elo=elo)) * (1 - 10 ** (-elo / 200)) ** 2
    assert 2 < games < 200


def test_ratio_is_the_likelihood_ratio() -> None:
    won = 1 / (1 + 10 ** (-100 / 400))
    expected = math.log(won**8 * (1 - won) ** 3 / 0.5**11)
    assert state(GATE, Score(8, 5, 3)).llr == pytest.approx(expected)


def test_draws_do_not_change_the_ratio() -> None:
    assert state(GATE, Score(8, 500, 3)) == state(GATE, Score(8, 0, 3))
