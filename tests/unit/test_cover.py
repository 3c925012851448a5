"""Cover: its reward by hand and by formula, its observation, its end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.testing import check_batched_env
from envs.cover import Cover


def begun(lanes: int = 1, **options: Any) -> Cover:
    env = Cover(lanes=lanes, **options)
    env.reset(np.ones(lanes, bool), list(range(lanes)))
    return env


def slow_reward(players: Any, targets: Any) -> float:
    """The formula of the module, term by term."""
    return -sum(min(math.dist(player, target) for player in players) for target in targets) / len(targets)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), lanes=st.integers(1, 4), players=st.integers(1, 4))
def test_batched_lanes_equal_the_formula(seed: int, lanes: int, players: int) -> None:
    env = Cover(lanes=lanes, players=players)
    env.reset(np.ones(lanes, bool), [seed + lane for lane in range(lanes)])
    rng = np.random.default_rng(seed)
    moves = np.array([(0, 0), (0.1, 0), (-0.1, 0), (0, 0.1), (0, -0.1)])
    for _ in range(5):
        before, actions = env.positions.copy(), rng.integers(0, 5, (players, lanes))
        step = env.step(list(actions))
        for lane in range(lanes):
            places = np.clip(before[lane] + moves[actions[:, lane]], -1, 1)
            np.testing.assert_allclose(step.rewards[lane], slow_reward(places, env.targets[lane]))


def test_observation_is_own_position_targets_then_others() -> None:
    env = begun(players=2)
    env.positions[0] = [(0.5, 0.25), (-0.5, 0.0)]
    env.targets[0] = [(1, 1), (0, -1)]
    seen = env.step([np.array([0])] * 2).frame.observations[1]
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen[0], [-0.5, 0, 1.5, 1, 0.5, -1, 1.0, 0.25])


def test_game_is_truncated_after_max_steps() -> None:
    env = begun(max_steps=2)
    first, second = (env.step([np.array([0])] * 3) for _ in range(2))
    assert not first.truncated.any()
    assert second.truncated.all()
    assert second.rewards.all()
    assert not second.terminated.any()
    assert not second.frame.active.any()


@pytest.mark.parametrize("options", [{"max_steps": 10}, {"players": 1, "max_steps": 7}])
def test_cover_keeps_the_contract(options: dict[str, Any]) -> None:
    check_batched_env(Cover(lanes=3, **options), ticks=40)


def test_wrong_option_lists_allowed_values() -> None:
    with pytest.raises(ConfigError, match="players: got 0, expected a whole number of at least 1"):
        Cover(lanes=1, players=0)
