"""Winners: the outcome stated by the game, else by two-sided zero-sum returns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.config.fields import OutcomeRule
from arena.errors import NotZeroSum
from arena.records.outcome import Ending, Outcome, Winners, outcomes


def by_returns(*returns: float, entities: tuple[int, ...] = ()) -> list[Outcome | None]:
    return said_and_paid(returns, [None] * len(returns), entities=entities or (1,) * len(returns))


def said_and_paid(
    returns: Sequence[float],
    stated: Sequence[object],
    *,
    entities: Sequence[int],
    rule: OutcomeRule | None = None,
    sides: Sequence[Sequence[int]] = (),
) -> list[Outcome | None]:
    return [*outcomes(returns, stated, entities=entities, rule=rule, sides=sides).outcomes]


def ending(
    *returns: float, env: str = "game", number: int = 0, stated: Sequence[object] = (), cut: bool = False
) -> Ending:
    verdict = outcomes(returns, stated or (None,) * len(returns), entities=(1,) * len(returns))
    found = (None,) * len(returns) if cut else verdict.outcomes
    return Ending(env, (0, 1, 2, number), found, returns, (1,) * len(returns), verdict.settled and not cut, cut)


def test_two_teams_with_opposite_returns_win_and_lose() -> None:
    assert by_returns(1, 1, -1, -1) == ["win", "win", "loss", "loss"]


def test_all_zero_returns_are_a_draw() -> None:
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


def test_outcome_of_the_game_overrides_the_returns() -> None:
    assert said_and_paid([1, -1], ["loss", "win"], entities=[1, 1]) == ["loss", "win"]
    assert said_and_paid([1, 1], ["draw", "draw"], entities=[1, 1]) == ["draw", "draw"]


def test_missing_outcome_is_filled_in_from_the_returns() -> None:
    assert said_and_paid([1, -1], ["win", None], entities=[1, 1]) == ["win", "loss"]


def test_returns_that_contradict_the_game_fill_in_nothing() -> None:
    assert said_and_paid([1, -1], ["loss", None], entities=[1, 1]) == ["loss", None]
    assert said_and_paid([5, 5], ["win", None], entities=[1, 1]) == ["win", None]


def test_unknown_outcome_values_are_ignored() -> None:
    assert said_and_paid([1, -1], ["victory", {"win": 1}], entities=[1, 1]) == ["win", "loss"]


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="2 returns, 1 stated, 2 entities"):
        outcomes([1, -1], [None], entities=[1, 1])


@given(st.floats(1e-6, 1e6), st.integers(1, 5), st.integers(1, 5), st.permutations(range(10)))
def test_the_order_of_seats_does_not_matter(gain: float, winners: int, losers: int, order: list[int]) -> None:
    returns = [gain / winners] * winners + [-gain / losers] * losers
    expected = ["win"] * winners + ["loss"] * losers
    order = [index for index in order if index < len(returns)]
    assert by_returns(*(returns[index] for index in order)) == [expected[index] for index in order]


def test_outcomes_of_infos_are_final_and_of_returns_are_not() -> None:
    assert outcomes([1, -1], ["win", None], entities=[1, 1]).settled
    assert not outcomes([1, -1], [None, None], entities=[1, 1]).settled


@pytest.mark.parametrize("rule", [None, "zero_sum", "higher_return"])
def test_seat_that_took_no_part_has_no_outcome_and_changes_none(rule: OutcomeRule | None) -> None:
    nan = math.nan
    found = outcomes([nan, 2, nan, -2], [None] * 4, entities=[1, 1, 1, 1], rule=rule)
    assert found.outcomes == (None, "win", None, "loss")
    assert found.settled == (rule is not None)
    assert outcomes([nan, 2], [None] * 2, entities=[1, 1], rule=rule).outcomes == (None, None)


def test_side_that_took_no_part_is_not_beaten() -> None:
    def by_sides(*returns: float) -> list[str | None]:
        sides = [(0, 1), (2, 3)]
        return [*outcomes(returns, [None] * 4, entities=[1] * 4, rule="higher_return", sides=sides).outcomes]

    assert by_sides(math.nan, 1, 3, 0) == [None, "loss", "win", "win"]
    assert by_sides(math.nan, math.nan, 3, 0) == [None] * 4


@pytest.mark.parametrize("rule", ["info", "zero_sum", "higher_return", "none"])
def test_configured_rule_is_final(rule: OutcomeRule) -> None:
    assert outcomes([1, -1], [None, None], entities=[1, 1], rule=rule).settled


def test_rule_info_ignores_returns() -> None:
    assert said_and_paid([1, -1], ["win", None], entities=[1, 1], rule="info") == ["win", None]
    assert said_and_paid([1, -1], [None, None], entities=[1, 1], rule="info") == [None, None]


def test_rule_none_has_no_winners() -> None:
    assert said_and_paid([1, -1], ["win", "loss"], entities=[1, 1], rule="none") == [None, None]


def test_rule_zero_sum_ignores_infos_and_checks_returns() -> None:
    assert said_and_paid([1, -1], ["loss", "win"], entities=[1, 1], rule="zero_sum") == ["win", "loss"]
    assert said_and_paid([math.nan, 1], [None, None], entities=[1, 1], rule="zero_sum") == [None, None]
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


def test_a_game_without_rule_has_winners_as_long_as_it_is_zero_sum() -> None:
    winners, draw, win = Winners(), ending(0.0, -0.0), ending(1.0, -1.0, number=1)
    assert winners.see([draw, win]) == []
    assert [winners.outcomes(one) for one in (draw, win)] == [("draw", "draw"), ("win", "loss")]
    assert winners.see([ending(1.0, 0.0, number=2), ending(2.0, 0.0, number=3)]) == ["game"]
    assert [winners.outcomes(one) for one in (draw, win)] == [(None, None)] * 2


def test_infos_count_in_a_general_sum_game() -> None:
    winners, stated = Winners(), ending(5.0, 3.0, stated=("win", "loss"))
    assert winners.see([stated]) == []
    winners.see([ending(1.0, 0.0)])
    assert winners.outcomes(stated) == ("win", "loss")


def test_old_records_keep_outcomes_that_returns_do_not_imply() -> None:
    winners = Winners()
    winners.see([ending(1.0, 0.0)])
    assert winners.holds(ending(5.0, 3.0, stated=("win", "loss"))._replace(settled=False))
    assert not winners.holds(ending(1.0, -1.0))


def test_another_game_a_cut_episode_and_one_seat_show_nothing() -> None:
    winners = Winners()
    assert winners.see([ending(1.0, 0.0, cut=True), ending(4.0), ending(math.nan, 1.0)]) == []
    winners.see([ending(1.0, 0.0, env="other")])
    assert winners.outcomes(ending(1.0, -1.0)) == ("win", "loss")


def test_the_line_names_the_episode_its_returns_and_the_key() -> None:
    winners = Winners()
    winners.see([ending(4.5, 2.0, number=3)])
    (line,) = winners.words({"game": None})
    assert "round 0, match 1, lane 2, episode 3: returns 4.5 and 2" in line
    assert "`envs.game.outcome`" in line
    assert "`envs.game.outcome` is none" in Winners().words({"game": "none"})[0]
    assert Winners().words({"game": None, "other": "higher_return"}) == []


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_float32_rewards_shared_among_a_team_are_zero_sum(scale: float) -> None:
    gain, loss = float(np.float32(scale)) * 100, float(np.float32(-scale / 3)) * 100
    assert by_returns(gain, loss, entities=(1, 3)) == ["win", "loss"]
