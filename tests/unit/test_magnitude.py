"""Numbers far from 0: normalization keeps their differences, and without it the user is told of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from arena.errors import BudgetReached
from arena.game.ragged import Ragged
from arena.game.spaces import large_numbers
from arena.testing import check_batched_env
from envs.adapters.adapt import adapt
from fakes import ScriptedEnv, solo_group
from policies.a2c import A2C
from policies.dqn import DQN
from policies.hppo import HPPO
from policies.ppo import PPO

OFFSET = 1.7e9  # seconds since 1970: in float32 neighbors differ by 128


class Clock(ScriptedEnv):
    """Sees the offset plus 0 or 1, which is the right action."""

    def __init__(self, ticks: int, dtype: Any = np.float64, offset: float = OFFSET) -> None:
        def reward(seen: Any, actions: Any) -> Any:
            self.rewards.append(float((seen[:, 0] - offset == actions).mean()))
            return (seen[:, 0] - offset == actions).astype(np.float64)

        space = spaces.Box(offset, offset + 1, (1,), dtype)
        super().__init__(space, spaces.Discrete(2), rows=8, ticks=ticks, length=20, reward=reward)
        self.rewards: list[float] = []
        draw = np.random.default_rng(1)
        self.observation_space.sample = lambda: offset + draw.integers(2, size=(8, 1)).astype(dtype)  # type: ignore


FAST = {"learning_rate": 5e-3, "gamma": 0.0, "hidden_sizes": (16,)}
MEMORY = {"recurrent": "gru", "sequence_length": 8, "hidden_size": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "ticks", "options"),
    [
        (PPO, 480, {"n_steps": 16, "minibatch_size": 32}),
        (DQN, 480, {"learning_starts": 64, "buffer_size": 2000}),
        pytest.param(PPO, 480, {"n_steps": 16, "minibatch_size": 32, **MEMORY}, marks=pytest.mark.long),
        pytest.param(HPPO, 480, {"n_steps": 16, "minibatch_size": 32}, marks=pytest.mark.long),
        pytest.param(A2C, 960, {"learning_rate": 2e-2}, marks=pytest.mark.long),
    ],
)
def test_normalized_observations_keep_differences_far_from_zero(
    algorithm: Any, ticks: int, options: dict[str, Any]
) -> None:
    env, group = Clock(ticks), solo_group()
    made = algorithm(env, group, ticks=ticks, normalize_observations=True, **{**FAST, **options})
    with pytest.raises(BudgetReached):
        made.run()
    assert np.mean(env.rewards[-60:]) > 0.85
    assert group.told == []
    seen = np.array([[OFFSET], [OFFSET + 1]] * 4)
    assert made.actor(greedy=True)(seen, {}).tolist() == [0, 1] * 4
    if hasattr(made, "served") and made.served is not None and "recurrent" not in options:
        act = made.served()[1]
        assert act(seen, None, np.zeros((8, 0), np.float32), None)[0].tolist() == [0, 1] * 4


def test_a_policy_without_normalization_tells_the_user_once() -> None:
    for algorithm, options in ((PPO, {"n_steps": 8}), (DQN, {"learning_starts": 16, "buffer_size": 500})):
        group, env = solo_group(), Clock(40, np.int64)
        with pytest.raises(BudgetReached):
            algorithm(env, group, ticks=40, hidden_sizes=(8,), **options).run()
        (words,) = group.told
        assert words.startswith("observation[0]: numbers up to 1,700,000,001, far beyond")
        assert "neighbors differ by 128" in words
        assert "normalize_observations: true" in words


def test_large_numbers_names_components_of_the_space() -> None:
    space = spaces.Dict(
        a=spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
        b=spaces.Tuple([spaces.Discrete(5000), spaces.Box(0, 255, (9,), np.uint8)]),
        c=spaces.Sequence(spaces.Box(0, 9000, (2,), np.float32), stack=True),
        d=spaces.Box(0, 60_000, (), np.uint16),
    )
    a = np.zeros((3, 2, 2))
    a[1, 1, 0], a[2, 0, 0] = -5e6, np.inf
    leaves = [a, np.full(3, 4999), np.full((3, 9), 255, np.uint8), np.array([[1, 5000]], np.float32), np.full(3, 999)]
    words = large_numbers(space, leaves)
    assert words.startswith("observation['a'][1][0], observation['c'][1]: numbers up to 5,000,000, far beyond")
    assert "neighbors differ by 0.5" in words
    leaves[0], leaves[3] = np.zeros((3, 2, 2)), Ragged.empty(3, np.dtype(np.float32), (2,)).values
    assert large_numbers(space, leaves) == ""


class LargeId(gymnasium.Env[Any, Any]):
    """Sees an id that counts up to 5,000."""

    observation_space = spaces.Dict(id=spaces.Box(0, 5000, (1,), np.float32))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = 5
        return {"id": np.full(1, 4999, np.float32)}, {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return {"id": np.full(1, 5000 - self.left, np.float32)}, 0.0, self.left == 0, False, {}


def test_check_advises_normalization() -> None:
    advice: list[str] = []
    check_batched_env(adapt(LargeId, {}, 2), advise=advice.append)
    (words,) = advice
    assert "observation['id'][0]: numbers up to 5,000" in words
