"""Results of games do not depend on the writer and the order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

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
