"""Who has won an episode, by the declared rule of its game."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from arena.config.fields import OutcomeRule
from arena.errors import NotZeroSum
from arena.records.outcome import Outcome, outcomes, suggested, without_winner_text


def judged(
    rule: OutcomeRule | None,
    *returns: float | None,
    stated: Sequence[object] = (),
    entities: Sequence[int] = (),
    sides: Sequence[Sequence[int]] = (),
) -> list[Outcome | None]:
    stated, entities = stated or [None] * len(returns), entities or [1] * len(returns)
    return [*outcomes(returns, stated, entities=entities, rule=rule, sides=sides)]


GAIN = sum([0.1] * 1000)  # not 100


@pytest.mark.parametrize(
    ("returns", "entities", "expected"),
    [
        ((1, 1, -1, -1), (), ["win", "win", "loss", "loss"]),
        ((0.0, 0.0, -0.0), (), ["draw"] * 3),
        ((3, -1, -1, -1), (), ["win", "loss", "loss", "loss"]),
        ((2, -1.5, -0.5), (), None),  # three values
        ((1, 1), (), None),
        ((1, -0.9), (), None),
        ((1, 0), (), None),
        ((1, -1, -1), (2, 1, 1), ["win", "loss", "loss"]),  # the sum is over entities and not over seats
        ((2, -1), (1, 2), ["win", "loss"]),
        ((1, -1), (2, 1), None),
        ((GAIN, -100.0), (), ["win", "loss"]),  # rounding of long sums is forgiven
        ((GAIN * (1 + 1e-6), -100.0), (), None),
        *(  # float32 rewards that a team shares
            ((float(np.float32(scale)) * 100, float(np.float32(-scale / 3)) * 100), (1, 3), ["win", "loss"])
            for scale in (1e-3, 1.0, 1e4)
        ),
    ],
)
def test_zero_sum_returns_decide_and_others_are_refused(
    returns: tuple[float, ...], entities: tuple[int, ...], expected: list[Outcome] | None
) -> None:
    if expected is None:
        with pytest.raises(NotZeroSum):
            judged("zero_sum", *returns, entities=entities)
    else:
        assert judged("zero_sum", *returns, entities=entities) == expected


@pytest.mark.parametrize("rule", ["zero_sum", "higher_return"])
@pytest.mark.parametrize("returns", [(5.0,), (None, None), (math.inf, -math.inf), ()], ids=str)
def test_returns_that_show_nothing_have_no_winner(returns: tuple[float | None, ...], rule: OutcomeRule) -> None:
    assert judged(rule, *returns) == [None] * len(returns)


@pytest.mark.parametrize("rule", ["zero_sum", "higher_return"])
def test_seat_that_took_no_part_has_no_outcome_and_changes_none(rule: OutcomeRule) -> None:
    assert judged(rule, None, 2, None, -2) == [None, "win", None, "loss"]
    assert judged(rule, None, 2) == [None, None]


def test_side_that_took_no_part_is_not_beaten() -> None:
    sides = [(0, 1), (2, 3)]
    assert judged("higher_return", None, 1, 3, 0, sides=sides) == [None, "loss", "win", "win"]
    assert judged("higher_return", None, None, 3, 0, sides=sides) == [None] * 4


@pytest.mark.parametrize(
    ("rule", "stated", "expected"),
    [
        ("info", ["win", None], ["win", None]),
        ("info", [None, None], [None, None]),
        ("info", ["victory", {"win": 1}], [None, None]),  # which some games use for other purposes
        (None, ["win", "loss"], [None, None]),
        ("none", ["win", "loss"], [None, None]),
        ("zero_sum", ["loss", "win"], ["win", "loss"]),
    ],
)
def test_infos_decide_by_the_rule_info_alone(rule: OutcomeRule | None, stated: Any, expected: Any) -> None:
    assert judged(rule, 1, -1, stated=stated) == expected


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
    assert judged("higher_return", *returns) == expected


def test_with_higher_return_a_side_has_the_mean_of_its_entities() -> None:
    # side 0: (1 * 6 + 3 * 0) / 4 = 1.5 against 2, though its seats have the higher mean
    found = judged("higher_return", 6, 0, 2, entities=[1, 3, 1], sides=((0, 1), (2,)))
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
    assert "`envs.game.outcome` is none" in without_winner_text({"game": "none"})[0]
    assert "set `envs.game.outcome` to zero_sum" in without_winner_text({"game": None})[0]
    assert "its infos name none" in without_winner_text({"game": "info"})[0]
    assert without_winner_text({}) == []
