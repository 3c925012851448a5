"""Matrix games: rewards, known solutions, observations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from arena.errors import ConfigError
from arena.testing import check_batched_env
from envs.matrix import GAMES, Matrix


def begun(lanes: int = 1, **options: Any) -> Matrix:
    env = Matrix(lanes=lanes, **options)
    env.reset(np.ones(lanes, bool))
    return env


def paid(game: str, *joint: tuple[int, int]) -> tuple[list[float], Any]:
    """The returns of both players, and the last step."""
    env = begun(game=game)
    steps = [env.step([np.array([first]), np.array([second])]) for first, second in joint]
    return sum(step.rewards[0] for step in steps).tolist(), steps[-1]


def test_two_step_game_has_the_optimum_8_and_a_safe_side_of_7() -> None:
    returns = {
        (first, *second): paid("two_step", (first, other), second)[0]
        for first, other in itertools.product((0, 1), repeat=2)
        for second in itertools.product((0, 1), repeat=2)
    }
    assert max(pays[0] for pays in returns.values()) == 8
    assert returns[1, 1, 1] == [8, 8]
    assert returns[1, 0, 0] == [0, 0]
    assert all(pays == [7, 7] for path, pays in returns.items() if path[0] == 0)


def test_the_two_step_game_shows_its_state_and_terminates_after_two() -> None:
    env = begun(lanes=2, game="two_step")
    step = env.step([np.array([0, 1]), np.array([1, 0])])
    np.testing.assert_array_equal(step.frame.observations[1], [[0, 1, 0], [0, 0, 1]])
    assert not step.terminated.any()
    step = env.step([np.zeros(2, int)] * 2)
    assert step.terminated.all()
    assert not step.truncated.any()
    np.testing.assert_array_equal(env.reset(np.array([True, False])).observations[0][0], [1, 0, 0])


def test_repeated_games_are_truncated_after_their_rounds() -> None:
    env = begun(game="matching_pennies", rounds=3)
    steps = [env.step([np.zeros(1, int)] * 2) for _ in range(4)]
    assert [step.truncated.all() for step in steps] == [False, False, True, False]
    assert not any(step.terminated.any() for step in steps)
    assert steps[3].rewards.tolist() == [[0, 0]]  # over, and not reset


def test_observation_has_the_own_last_action_first() -> None:
    env = Matrix(lanes=2, payoffs=[[1, 2, 3], [4, 5, 6]])
    frame = env.reset(np.ones(2, bool))
    np.testing.assert_array_equal(frame.observations[0], [[0, 0, 0, 0, 0, 1]] * 2)
    frame = env.step([np.array([1, 0]), np.array([2, 0])]).frame
    np.testing.assert_array_equal(frame.observations[0][0], [0, 1, 0, 0, 1, 0])
    np.testing.assert_array_equal(frame.observations[1][0], [0, 0, 1, 0, 1, 0])
    assert env.reset(np.array([True, False])).observations[0][0, -1] == 1


def test_custom_table_is_zero_sum_or_has_both_payoffs() -> None:
    step = begun(payoffs=[[2, -3]]).step([np.array([0]), np.array([1])])
    assert step.rewards.tolist() == [[-3, 3]]
    step = begun(payoffs=[[[1, 2], [3, 4]]]).step([np.array([0]), np.array([1])])
    assert step.rewards.tolist() == [[3, 4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"game": "prisoner_dilemma"}, "did you mean 'prisoners_dilemma'"),
        ({"payoffs": [[1], [2, 3]]}, r"expected numbers \[n_0\]\[n_1\]\[2\]"),
        ({"payoffs": []}, "expected numbers"),
        ({"payoffs": [[float("nan")]]}, "expected numbers"),
        ({"payoffs": [[[1, 2, 3]]]}, "expected numbers"),
        ({"payoffs": [[1]], "game": "stag_hunt"}, "give one of them"),
        ({"rounds": 0}, "rounds: got 0"),
        ({"game": "two_step", "rounds": 5}, "always has two ticks"),
    ],
)
def test_wrong_option_lists_allowed_values(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Matrix(lanes=1, **options)


@pytest.mark.parametrize("options", [*({"game": game} for game in GAMES), {"payoffs": [[1, 2, 3]], "rounds": 1}])
def test_matrix_games_keep_the_contract(options: dict[str, Any]) -> None:
    check_batched_env(Matrix(lanes=3, **options), ticks=30)
