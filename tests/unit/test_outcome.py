"""Who won: what the game says, else what two-sided zero-sum returns show."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.records.outcome import Outcome, outcomes


def by_returns(*returns: float, entities: tuple[int, ...] = ()) -> list[Outcome | None]:
    return outcomes(returns, [None] * len(returns), entities=entities or (1,) * len(returns))


def test_two_teams_with_opposite_returns_win_and_lose() -> None:
    assert by_returns(1, 1, -1, -1) == ["win", "win", "loss", "loss"]


def test_zero_for_everybody_is_a_draw() -> None:
    assert by_returns(0.0, 0.0, -0.0) == ["draw"] * 3


def test_one_winner_may_face_many_losers() -> None:
    assert by_returns(3, -1, -1, -1) == ["win", "loss", "loss", "loss"]


@pytest.mark.parametrize(
    "returns",
    [(2, -1.5, -0.5), (1, 1), (1, -0.9), (5.0,), (0.0,), (math.nan, math.nan), (math.inf, -math.inf), ()],
    ids=str,
)
def test_other_returns_have_no_winner(returns: tuple[float, ...]) -> None:
    assert by_returns(*returns) == [None] * len(returns)


def test_the_sum_is_over_entities_and_not_over_seats() -> None:
    assert by_returns(1, -1, -1, entities=(2, 1, 1)) == ["win", "loss", "loss"]
    assert by_returns(2, -1, entities=(1, 2)) == ["win", "loss"]
    assert by_returns(1, -1, entities=(2, 1)) == [None, None]


def test_rounding_of_long_sums_is_forgiven() -> None:
    gain = sum([0.1] * 1000)
    assert by_returns(gain, -100.0) == ["win", "loss"]
    assert by_returns(gain * (1 + 1e-6), -100.0) == [None, None]


def test_what_the_game_says_is_kept_against_the_returns() -> None:
    assert outcomes([1, -1], ["loss", "win"], entities=[1, 1]) == ["loss", "win"]
    assert outcomes([1, 1], ["draw", "draw"], entities=[1, 1]) == ["draw", "draw"]


def test_a_seat_without_a_word_is_filled_in_from_the_returns() -> None:
    assert outcomes([1, -1], ["win", None], entities=[1, 1]) == ["win", "loss"]


def test_returns_that_contradict_the_game_fill_in_nothing() -> None:
    assert outcomes([1, -1], ["loss", None], entities=[1, 1]) == ["loss", None]
    assert outcomes([5, 5], ["win", None], entities=[1, 1]) == ["win", None]


def test_other_words_and_things_under_the_key_are_not_said() -> None:
    assert outcomes([1, -1], ["victory", {"win": 1}], entities=[1, 1]) == ["win", "loss"]


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 returns, 1 stated, 2 entities"):
        outcomes([1, -1], [None], entities=[1, 1])


@given(st.floats(1e-6, 1e6), st.integers(1, 5), st.integers(1, 5), st.permutations(range(10)))
def test_the_order_of_seats_does_not_matter(gain: float, winners: int, losers: int, order: list[int]) -> None:
    returns = [gain / winners] * winners + [-gain / losers] * losers
    expected = ["win"] * winners + ["loss"] * losers
    order = [index for index in order if index < len(returns)]
    assert by_returns(*(returns[index] for index in order)) == [expected[index] for index in order]
