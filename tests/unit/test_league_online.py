"""The rating that follows game after game."""

from __future__ import annotations

import numpy as np
import pytest

from arena.league.ratings.online import OnlineRatings
from arena.league.results import Encounter


def rated(*encounters: Encounter) -> OnlineRatings:
    ratings = OnlineRatings()
    ratings.extend(encounters)
    return ratings


def test_who_wins_rises_and_who_loses_falls() -> None:
    found = rated(Encounter(("a",), ("b",), "loss"))
    assert found.of("b").mean > 25 > found.of("a").mean
    assert found.of("a").deviation < 25 / 3
    assert found.players == ("a", "b")


def test_a_draw_of_equals_moves_nobody_and_makes_both_surer() -> None:
    found = rated(Encounter(("a",), ("b",), "draw"))
    assert found.of("a").mean == found.of("b").mean == pytest.approx(25)
    assert found.of("a").deviation < 25 / 3


def test_all_members_of_a_team_rise() -> None:
    found = rated(Encounter(("a", "b"), ("c", "d", "e"), "win"))
    assert min(found.of("a").mean, found.of("b").mean) > 25 > max(found.of(name).mean for name in "cde")


def test_a_player_on_two_seats_of_a_team_is_one_player() -> None:
    found = rated(Encounter(("a", "a"), ("b", "b"), "win"))
    assert found.of("a").mean > 25 > found.of("b").mean
    assert found.of("a").games == 1


def test_what_a_player_wins_on_one_side_it_loses_on_the_other() -> None:
    found = rated(Encounter(("a", "b"), ("a", "c"), "win"))
    assert found.of("a").mean == pytest.approx(25)
    assert found.of("b").mean > 25 > found.of("c").mean


def test_a_team_against_itself_leaves_no_trace() -> None:
    assert rated(Encounter(("a",), ("a",), "win")).players == ()


def test_the_ordinal_is_three_deviations_below_the_mean() -> None:
    found = rated(Encounter(("a",), ("b",), "win")).of("a")
    assert found.ordinal == pytest.approx(found.mean - 3 * found.deviation)


def test_the_order_of_players_is_found() -> None:
    rng, ratings = np.random.default_rng(0), OnlineRatings()
    for _ in range(1500):
        first, second = rng.choice(6, 2, replace=False)
        won = rng.random() < 1 / (1 + 10 ** ((first - second) * 120 / 400))  # p0 is the best
        ratings.add(Encounter((f"p{first}",), (f"p{second}",), "win" if won else "loss"))
    assert sorted(ratings.players, key=lambda name: -ratings.of(name).mean) == [f"p{number}" for number in range(6)]
