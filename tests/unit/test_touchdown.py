"""The rules of touchdown, one by one, on positions made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.testing import check_batched_env
from envs.touchdown import GRAY_LINE, GRAY_MATE, GRAY_OPPONENT, GRAY_SELF, Touchdown

STAY, RIGHT, LEFT, UP, DOWN = range(5)


def begun(lanes: int = 1, **options: Any) -> Touchdown:
    env = Touchdown(lanes=lanes, **options)
    env.reset(np.ones(lanes, bool), list(range(lanes)))
    return env


def played(positions: Any, moves: list[int], **options: Any) -> tuple[Touchdown, Any]:
    """One tick of one lane from these positions."""
    env = begun(team_size=len(moves) // 2, **options)
    env.positions[0] = positions
    return env, env.step([np.array([move]) for move in moves])


def test_a_continuous_move_is_clipped_and_scaled_to_a_tenth() -> None:
    env = begun(blue_actions="continuous")
    env.positions[0] = [(0.0, 0.0), (0.9, -0.9)]
    env.step([np.array([[0.5, -7.0]], np.float32), np.array([STAY])])
    np.testing.assert_allclose(env.positions[0, 0], (0.05, -0.1))


PAIR = [(0.3, 0.2), (-0.5, -0.5)]
RULES: dict[str, tuple[list[Any], list[int], Any, list[int] | None]] = {
    # From these positions, with these moves, to these; the rewards of a game that is over, None: it goes on.
    "stay": (PAIR, [STAY, STAY], PAIR, None),
    "right": (PAIR, [RIGHT, STAY], [(0.4, 0.2), (-0.5, -0.5)], None),
    "left": (PAIR, [LEFT, STAY], [(0.2, 0.2), (-0.5, -0.5)], None),
    "up": (PAIR, [UP, STAY], [(0.3, 0.3), (-0.5, -0.5)], None),
    "down": (PAIR, [DOWN, STAY], [(0.3, 0.1), (-0.5, -0.5)], None),
    "players stay inside the field": ([(0.95, 0.95), (-1.0, 0.5)], [RIGHT, LEFT], [(1.0, 0.95), (-1.0, 0.5)], None),
    "the own line is no goal": ([(1.0, 0.95), (0.5, -0.95)], [UP, DOWN], [(1.0, 1.0), (0.5, -1.0)], None),
    "blue arrives": ([(0, -0.8), (0.9, 0)], [DOWN, STAY], [(0, -0.9), (0.9, 0)], [1, -1]),
    "red arrives": ([(0, 0), (0.9, 0.8)], [STAY, UP], [(0, 0), (0.9, 0.9)], [-1, 1]),
    "both do: a draw": ([(0, -0.8), (0.9, 0.8)], [DOWN, UP], [(0, -0.9), (0.9, 0.9)], [0, 0]),
    "opponents that touch return": ([(0.0, 0.1), (0.05, -0.08)], [DOWN, STAY], [(0.0, 0.9), (0.05, -0.9)], None),
    "exactly a tenth is no touch": ([(0.3, 0.1), (0.3, -0.1)], [DOWN, STAY], [(0.3, 0.0), (0.3, -0.1)], None),
    "who is sent back has not crossed": ([(0.0, -0.85), (0.0, -0.9)], [DOWN, STAY], [(0.0, 0.9), (0.0, -0.9)], None),
    "teammates do not collide": ([(0, 0), (0, 0), (0.9, 0), (0.9, 0)], [STAY] * 4, [(0, 0)] * 2 + [(0.9, 0)] * 2, None),
    "one sends back two, bystanders stay": (
        [(0.0, 0.0), (0.8, 0.5), (0.05, 0.0), (-0.05, 0.0)],
        [STAY] * 4,
        [(0.0, 0.9), (0.8, 0.5), (0.05, -0.9), (-0.05, -0.9)],
        None,
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_tick_follows_the_rules(rule: str) -> None:
    positions, moves, expected, rewards = RULES[rule]
    env, step = played(positions, moves)
    np.testing.assert_allclose(env.positions[0], expected, atol=1e-12)
    assert step.rewards.tolist() == [rewards or [0] * len(moves)]
    assert not step.truncated.any()
    assert (step.terminated == (rewards is not None)).all()
    assert (step.frame.active == (rewards is None)).all()


def test_after_max_steps_the_game_is_truncated_and_not_terminated() -> None:
    env = begun(max_steps=3)
    steps = [env.step([np.array([STAY])] * 2) for _ in range(3)]
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True]
    assert not any(step.terminated.any() or step.rewards.any() for step in steps)


def test_a_vector_shows_oneself_then_mates_then_opponents() -> None:
    _, step = played([(0.1, 0.2), (0.3, 0.4), (-0.1, -0.2), (-0.3, -0.4)], [STAY] * 4)
    blue_1 = [0.3, 0.4, 0.1, 0.2, -0.1, -0.2, -0.3, -0.4]
    red_0 = [-0.1, -0.2, -0.3, -0.4, 0.1, 0.2, 0.3, 0.4]
    np.testing.assert_allclose(step.frame.observations[1][0], blue_1, rtol=1e-6)
    np.testing.assert_allclose(step.frame.observations[2][0], red_0, rtol=1e-6)
    assert step.frame.observations[0].dtype == np.float32


def test_mirrored_red_sees_and_moves_as_blue_does() -> None:
    places = np.array([(0.3, 0.5), (-0.2, -0.4)])
    plain, as_blue = played(places, [LEFT, STAY])
    turned, as_red = played(-places[::-1], [STAY, LEFT], mirror=True)
    np.testing.assert_allclose(as_red.frame.observations[1], as_blue.frame.observations[0], rtol=1e-6)
    np.testing.assert_allclose(turned.positions[0, 1], -plain.positions[0, 0])


def test_image_shows_each_player_in_the_gray_of_its_role() -> None:
    positions = [(0, 0.5), (0.5, 0.5), (0, -0.5), (-1.0, -0.5)]
    _, step = played(positions, [STAY] * 4, blue_obs="image")
    image = step.frame.observations[0][0, :, :, 0]
    assert step.frame.observations[0].shape == (1, 84, 84, 1)
    assert image.dtype == np.uint8
    assert image[21, 42] == GRAY_SELF  # y = +0.5 is a quarter from the top, x = 0 the middle column
    assert image[21, 62] == GRAY_MATE
    assert image[62, 42] == GRAY_OPPONENT
    assert image[62, 0] == GRAY_OPPONENT
    assert [int((image == gray).sum()) for gray in (GRAY_SELF, GRAY_MATE, GRAY_OPPONENT)] == [25, 25, 50]
    assert (image[[4, 79]] == GRAY_LINE).all()
    assert step.frame.observations[2].shape == (1, 8)  # red sees vectors


@pytest.mark.slow
@settings(max_examples=10)
@given(
    seeds=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=4),
    team_size=st.integers(1, 3),
    max_steps=st.integers(5, 40),
    data=st.integers(0, 2**32 - 1),
)
def test_batched_lanes_equal_single_lanes(seeds: list[int], team_size: int, max_steps: int, data: int) -> None:
    lanes = len(seeds)
    options = {"team_size": team_size, "max_steps": max_steps, "red_actions": "continuous"}
    together = Touchdown(lanes=lanes, **options)
    alone = [Touchdown(lanes=1, **options) for _ in seeds]
    together.reset(np.ones(lanes, bool), seeds)
    for env, seed in zip(alone, seeds, strict=True):
        env.reset(np.ones(1, bool), [seed])
    rng = np.random.default_rng(data)
    for _ in range(60):
        forward = rng.random((team_size, lanes)) < 0.7  # random walks seldom meet or arrive
        blue = np.where(forward, DOWN, rng.integers(0, 5, (team_size, lanes)))
        red = rng.uniform(-1, 1, (team_size, lanes, 2)).astype(np.float32)
        step = together.step([*blue, *red])
        assert (step.rewards[:, 0] == -step.rewards[:, -1]).all()  # zero-sum
        over = (step.terminated | step.truncated).all(axis=1)
        for lane, env in enumerate(alone):
            own = env.step([*blue[:, [lane]], *red[:, [lane]]])
            for ours, theirs in zip(step[1:], own[1:], strict=True):
                np.testing.assert_array_equal(ours[lane], theirs[0])
            if over[lane]:
                env.reset(np.ones(1, bool))
        together.reset(over)
        np.testing.assert_array_equal(together.positions, np.concatenate([env.positions for env in alone]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"team_size": 2, "max_steps": 20},
        {"blue_obs": "image", "red_actions": "continuous", "max_steps": 20, "mirror": True},
    ],
)
def test_touchdown_keeps_the_contract(options: dict[str, Any]) -> None:
    check_batched_env(Touchdown(lanes=3, **options), ticks=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"team_size": 0}, "team_size: got 0, expected a whole number of at least 1"),
        ({"max_steps": 2.5}, "max_steps: got 2.5"),
        ({"blue_obs": "vectr"}, "blue_obs: got 'vectr'; did you mean 'vector'"),
        ({"red_actions": "both"}, "red_actions: .* known: continuous, discrete"),
        ({"mirror": "yes"}, "mirror: got 'yes', expected true or false"),
    ],
)
def test_wrong_option_lists_allowed_values(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Touchdown(lanes=1, **options)
