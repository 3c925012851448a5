"""Multi snake: its rules played out by hand, and what it shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arena import Ragged
from arena.errors import ConfigError
from arena.game.api import Step
from arena.testing import check_batched_env
from envs.multi_snake import MultiSnake

UP, DOWN, LEFT, RIGHT = range(4)


def begun(segments: list[Any], food: list[Any], ticks: int = 0, **options: Any) -> tuple[MultiSnake, dict[str, Any]]:
    """A game of one lane with this state, and its first observation."""
    env = MultiSnake(lanes=1, **{"size": 5, "snakes": len(segments), "max_length": 4, **options})
    env.reset(np.ones(1, np.bool_), [3])
    for snake, cells in enumerate(segments):
        env.segments[0, snake, : len(cells)], env.lengths[0, snake] = cells, len(cells)
    env.food[0], env.ticks[0] = food, ticks
    return env, env._frame().observations[0]


def played(env: MultiSnake, *moves: int) -> Step:
    return env.step([{"move": Ragged.of([moves], np.int64)}])


def cells(step: Step, kind: str) -> list[list[int]]:
    units: Ragged = step.frame.observations[0]["units"][kind]
    return [[int(number) for number in unit] for unit in units[0]]


def ended(step: Step) -> tuple[bool, bool]:
    return bool(step.terminated[0, 0]), bool(step.truncated[0, 0])


def test_snakes_food_and_colors_are_shown() -> None:
    _, shown = begun([[(0, 0), (0, 1)], [(4, 4)]], [(2, 2), (3, 3)], ticks=7)
    assert shown["globals"].tolist() == [[7.0]]
    units = {kind: ragged.tolist()[0] for kind, ragged in shown["units"].items()}
    assert units == {
        "SnakeHead": [[0, 1, 0], [4, 4, 1]],
        "SnakeBody": [[0, 0, 0]],
        "Food": [[2, 2, 0], [3, 3, 1]],
    }
    assert {key: part.tolist() for key, part in shown["actions"]["move"].items()} == {"actors": [[0, 1]]}


@pytest.mark.parametrize(("move", "head"), [(UP, [2, 3]), (DOWN, [2, 1]), (LEFT, [1, 2]), (RIGHT, [3, 2])])
def test_tail_follows_the_head(move: int, head: list[int]) -> None:
    start = {UP: (2, 1), DOWN: (2, 3), LEFT: (3, 2), RIGHT: (1, 2)}[move]
    env, _ = begun([[start, (2, 2)]], [(0, 0)])
    step = played(env, move)
    assert (cells(step, "SnakeHead"), cells(step, "SnakeBody")) == ([[*head, 0]], [[2, 2, 0]])
    assert step.rewards.tolist() == [[0.0]]
    assert ended(step) == (False, False)


def test_own_food_lets_a_snake_grow_and_comes_again_on_a_free_cell() -> None:
    env, _ = begun([[(0, 0)], [(4, 4)]], [(1, 0), (4, 0)])
    step = played(env, RIGHT, LEFT)
    assert cells(step, "SnakeBody") == [[0, 0, 0]]
    assert step.rewards[0, 0] == pytest.approx(1 / 3 / 2)
    again = cells(step, "Food")[0]
    assert again[:2] not in [[0, 0], [1, 0], [3, 4], [4, 0]]
    assert again[2] == 0


def test_snake_at_its_full_length_eats_without_growing() -> None:
    env, _ = begun([[(0, 0), (1, 0)], [(4, 4)]], [(2, 0), (0, 4)], max_length=2)
    step = played(env, RIGHT, LEFT)
    assert cells(step, "SnakeBody") == [[1, 0, 0]]
    assert step.rewards[0, 0] == 0
    assert cells(step, "Food")[0][:2] != [2, 0]


def test_all_snakes_at_full_length_terminate() -> None:
    env, _ = begun([[(0, 0)], [(4, 4), (4, 3)]], [(1, 0), (0, 4)], max_length=2)
    step = played(env, RIGHT, DOWN)
    assert (ended(step), step.rewards[0, 0]) == ((True, False), 0.5)


@pytest.mark.parametrize(
    ("segments", "moves"),
    [
        ([[(0, 0)], [(4, 4)]], (LEFT, LEFT)),  # off the board
        ([[(0, 0)], [(4, 4)]], (RIGHT, UP)),
        ([[(0, 0), (0, 1), (1, 1), (1, 0)], [(4, 4)]], (LEFT, LEFT)),  # its own tail, which would have moved away
        ([[(2, 2)], [(2, 3)]], (UP, RIGHT)),  # the other one moves later
    ],
)
def test_crash_ends_the_game_after_the_tick(segments: list[Any], moves: tuple[int, int]) -> None:
    env, _ = begun(segments, [(4, 0), (0, 4)])
    step = played(env, *moves)
    assert ended(step) == (True, False)
    assert step.frame.observations[0]["actions"]["move"]["actors"].total == 0
    assert len(cells(step, "SnakeHead")) == 2  # the last observation is there


def test_cell_that_an_earlier_snake_has_left_is_free() -> None:
    env, _ = begun([[(2, 3)], [(2, 2)]], [(4, 0), (0, 4)])
    assert ended(played(env, RIGHT, UP)) == (False, False)


def test_food_of_another_color_ends_the_game() -> None:
    env, _ = begun([[(0, 0)], [(4, 4)]], [(4, 0), (1, 0)])
    step = played(env, RIGHT, LEFT)
    assert (ended(step), step.rewards[0, 0]) == ((True, False), 0)
    assert len(cells(step, "Food")) == 2


def test_time_limit_truncates() -> None:
    env, _ = begun([[(0, 0)]], [(4, 4)], max_steps=2)
    assert ended(played(env, RIGHT)) == (False, False)
    assert ended(played(env, RIGHT)) == (False, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 2, "snakes": 3}, "snakes: got 3 snakes, and as many pieces of food, for 4 cells"),
        ({"max_length": 1}, "max_length: got 1"),
        ({"size": 0}, "size: got 0"),
    ],
)
def test_multi_snake_refuses_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MultiSnake(lanes=1, **options)


@pytest.mark.slow
def test_multi_snake_keeps_the_contract() -> None:
    options = {"size": 4, "max_length": 3, "max_steps": 20}
    check_batched_env(MultiSnake(lanes=2, **options), ticks=70, again=MultiSnake(lanes=2, **options))
