"""Who has won an episode, by the declared rule of its game."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.config.fields import OutcomeRule
from arena.errors import NotZeroSum
from arena.records.outcome import Outcome, outcomes, suggested, without_winner_words


def zero_sum(*returns: float, entities: tuple[int, ...] = ()) -> list[Outcome | None]:
    return said_and_paid(returns, [None] * len(returns), entities=entities or (1,) * len(returns), rule="zero_sum")


def said_and_paid(
    returns: Sequence[float | None],
    stated: Sequence[object],
    *,
    entities: Sequence[int],
    rule: OutcomeRule | None,
    sides: Sequence[Sequence[int]] = (),
) -> list[Outcome | None]:
    return [*outcomes(returns, stated, entities=entities, rule=rule, sides=sides)]


def test_two_teams_with_opposite_returns_win_and_lose() -> None:
    assert zero_sum(1, 1, -1, -1) == ["win", "win", "loss", "loss"]


def test_all_zero_returns_are_a_draw() -> None:
    assert zero_sum(0.0, 0.0, -0.0) == ["draw"] * 3


def test_one_winner_may_face_many_losers() -> None:
    assert zero_sum(3, -1, -1, -1) == ["win", "loss", "loss", "loss"]


@pytest.mark.parametrize("returns", [(2, -1.5, -0.5), (1, 1), (1, -0.9)], ids=str)
def test_returns_that_are_not_of_two_sides_that_add_up_to_zero_are_refused(returns: tuple[float, ...]) -> None:
    with pytest.raises(NotZeroSum):
        zero_sum(*returns)


@pytest.mark.parametrize("rule", ["zero_sum", "higher_return"])
@pytest.mark.parametrize("returns", [(5.0,), (0.0,), (None, None), (math.inf, -math.inf), ()], ids=str)
def test_returns_that_show_nothing_have_no_winner(returns: tuple[float | None, ...], rule: OutcomeRule) -> None:
    nothing = [None] * len(returns)
    assert said_and_paid(returns, nothing, entities=(1,) * len(returns), rule=rule) == nothing


def test_the_sum_is_over_entities_and_not_over_seats() -> None:
    assert zero_sum(1, -1, -1, entities=(2, 1, 1)) == ["win", "loss", "loss"]
    assert zero_sum(2, -1, entities=(1, 2)) == ["win", "loss"]
    with pytest.raises(NotZeroSum):
        zero_sum(1, -1, entities=(2, 1))


def test_rounding_of_long_sums_is_forgiven() -> None:
    gain = sum([0.1] * 1000)
    assert zero_sum(gain, -100.0) == ["win", "loss"]
    with pytest.raises(NotZeroSum):
        zero_sum(gain * (1 + 1e-6), -100.0)


def test_unknown_outcome_values_are_ignored() -> None:
    assert said_and_paid([1, -1], ["victory", {"win": 1}], entities=[1, 1], rule="info") == [None, None]


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 returns, 1 stated, 2 entities"):
        outcomes([1, -1], [None], entities=[1, 1], rule=None)


@given(st.floats(1e-6, 1e6), st.integers(1, 5), st.integers(1, 5), st.permutations(range(10)))
def test_the_order_of_seats_does_not_matter(gain: float, winners: int, losers: int, order: list[int]) -> None:
    returns = [gain / winners] * winners + [-gain / losers] * losers
    expected = ["win"] * winners + ["loss"] * losers
    order = [index for index in order if index < len(returns)]
    assert zero_sum(*(returns[index] for index in order)) == [expected[index] for index in order]


@pytest.mark.parametrize("rule", ["zero_sum", "higher_return"])
def test_seat_that_took_no_part_has_no_outcome_and_changes_none(rule: OutcomeRule) -> None:
    found = said_and_paid([None, 2, None, -2], [None] * 4, entities=[1, 1, 1, 1], rule=rule)
    assert found == [None, "win", None, "loss"]
    assert said_and_paid([None, 2], [None] * 2, entities=[1, 1], rule=rule) == [None, None]


def test_side_that_took_no_part_is_not_beaten() -> None:
    def by_sides(*returns: float | None) -> list[Outcome | None]:
        sides = [(0, 1), (2, 3)]
        return said_and_paid(returns, [None] * 4, entities=[1] * 4, rule="higher_return", sides=sides)

    assert by_sides(None, 1, 3, 0) == [None, "loss", "win", "win"]
    assert by_sides(None, None, 3, 0) == [None] * 4


def test_rule_info_ignores_returns() -> None:
    assert said_and_paid([1, -1], ["win", None], entities=[1, 1], rule="info") == ["win", None]
    assert said_and_paid([1, -1], [None, None], entities=[1, 1], rule="info") == [None, None]


@pytest.mark.parametrize("rule", [None, "none"])
def test_without_a_rule_and_with_none_there_are_no_winners(rule: OutcomeRule | None) -> None:
    assert said_and_paid([1, -1], ["win", "loss"], entities=[1, 1], rule=rule) == [None, None]


def test_rule_zero_sum_ignores_infos_and_checks_returns() -> None:
    assert said_and_paid([1, -1], ["loss", "win"], entities=[1, 1], rule="zero_sum") == ["win", "loss"]
    assert said_and_paid([None, 1], [None, None], entities=[1, 1], rule="zero_sum") == [None, None]
    with pytest.raises(NotZeroSum):
        outcomes([1, 0], [None, None], entities=[1, 1], rule="zero_sum")


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ((4, 2), ["win", "loss"]),
        ((-4, -2), ["loss", "win"]),
        ((0.1 + 0.2, 0.3), ["draw", "draw"]),
        ((3, 1, 2), ["win", "loss", "loss"]),
        ((3, 3, 2), ["draw", "draw", "loss"]),
        ((1, 1, 1), ["draw"] * 3),
        ((math.inf, 1), [None, None]),
        ((5,), [None]),
    ],
)
def test_with_higher_return_the_best_side_wins(returns: tuple[float, ...], expected: list[Outcome | None]) -> None:
    entities = (1,) * len(returns)
    assert said_and_paid(returns, (None,) * len(returns), entities=entities, rule="higher_return") == expected


def test_with_higher_return_a_side_has_the_mean_of_its_entities() -> None:
    # side 0: (1 * 6 + 3 * 0) / 4 = 1.5 against 2, though its seats have the higher mean
    found = said_and_paid([6, 0, 2], [None] * 3, entities=[1, 3, 1], rule="higher_return", sides=((0, 1), (2,)))
    assert found == ["loss", "loss", "win"]


@pytest.mark.parametrize(
    ("episodes", "rule"),
    [
        ([([1, -1], [None, None]), ([0, 0], [None, None])], "zero_sum"),
        ([([1, 1], [None, None]), ([3, 3], [None, None])], "none"),
        ([([1, -1], [None, None]), ([2, 1], [None, None])], "higher_return"),
        ([([0, 0], [None, None]), ([5, 5], ["win", "loss"])], "info"),
        ([([0, 0], [None, None])], None),
        ([], None),
    ],
    ids=["opposite", "shared", "general-sum", "stated", "all-drawn", "no-episode"],
)
def test_suggested_rule_fits_the_episodes(episodes: list[tuple[list[float], list[object]]], rule: str | None) -> None:
    assert suggested(episodes, entities=[1, 1]) == rule


def test_line_on_a_game_without_winners_names_the_key() -> None:
    assert "`envs.game.outcome` is none" in without_winner_words({"game": "none"})[0]
    assert "set `envs.game.outcome` to zero_sum" in without_winner_words({"game": None})[0]
    assert "its infos name none" in without_winner_words({"game": "info"})[0]
    assert without_winner_words({}) == []


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_float32_rewards_shared_among_a_team_are_zero_sum(scale: float) -> None:
    gain, loss = float(np.float32(scale)) * 100, float(np.float32(-scale / 3)) * 100
    assert zero_sum(gain, loss, entities=(1, 3)) == ["win", "loss"]
