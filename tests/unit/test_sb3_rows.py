"""The seat's rows as Stable-Baselines3's own vector environments show them, and the random streams of a worker."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import DummyVecEnv

from arena.errors import ConfigError
from fakes import ScriptedEnv
from policies.sb3.vec_env import GlobalStreams, Rows, from_zero, to_env

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
CHOICE = spaces.Discrete(3)


class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Its first episode is always the same one."""

    def __init__(self, seed: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=12))
        self.first: int | None = seed

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        seed, self.first = self.first, None
        return self.env.reset(seed=seed, options=options)


def test_environment_equals_the_librarys_own() -> None:
    makers = [lambda seed=seed: Seeded(seed) for seed in range(4)]
    env = gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    streams = GlobalStreams(0)
    with streams:
        compare(Rows(env, streams), DummyVecEnv(makers))
    env.close()


def compare(mine: Rows, theirs: DummyVecEnv) -> None:
    """Steps both with the same actions."""
    np.testing.assert_array_equal(mine.reset(), theirs.reset())
    rng, cut, fallen = np.random.default_rng(0), 0, 0
    for _ in range(60):
        actions = rng.integers(2, size=4)
        (seen, rewards, done, infos), (expected, their_rewards, their_done, their_infos) = (
            rows.step(actions) for rows in (mine, theirs)
        )
        np.testing.assert_array_equal(seen, expected)
        np.testing.assert_array_equal(rewards, their_rewards)
        np.testing.assert_array_equal(done, their_done)
        assert rewards.dtype == their_rewards.dtype
        for row in np.flatnonzero(done):
            assert infos[row]["TimeLimit.truncated"] == their_infos[row]["TimeLimit.truncated"]
            np.testing.assert_array_equal(infos[row]["terminal_observation"], their_infos[row]["terminal_observation"])
            cut += infos[row]["TimeLimit.truncated"]
            fallen += not infos[row]["TimeLimit.truncated"]
        assert not any(infos[row] for row in np.flatnonzero(~done))
    assert cut > 3
    assert fallen > 3


@pytest.mark.parametrize(
    ("space", "given", "expected"),
    [
        (spaces.Discrete(3, start=-1), np.array([0, 2]), [-1, 1]),
        (spaces.MultiDiscrete([2, 3], start=[4, 0]), np.array([[0, 2], [1, 0]]), [[4, 2], [5, 0]]),
        (spaces.MultiBinary(2), np.array([[0.0, 1.0]], np.float32), [[0, 1]]),
        (spaces.Box(-1, 1, (1,), np.float64), np.array([[0.5]], np.float32), [[0.5]]),
    ],
    ids=str,
)
def test_actions_come_in_the_games_own_choices_and_dtype(space: Any, given: Any, expected: Any) -> None:
    actions = to_env(space, given)
    assert actions.tolist() == expected
    assert actions.dtype == space.dtype
    assert not np.any(getattr(from_zero(space), "start", 0))


def play(env: ScriptedEnv, *, ticks: int) -> None:
    streams = GlobalStreams(0)
    with streams:
        rows = Rows(env, streams)
        rows.reset()
        for _ in range(ticks):
            rows.step(np.zeros(4, np.int64))


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"masks": lambda tick: np.ones((4, 3), np.int8)}, "has action masks"),
        ({"active": lambda tick: np.array([True, True, False, True])}, "row 2 of the seat may not act"),
    ],
    ids=["masks", "turns"],
)
def test_unsupported_library_features_are_refused_before_play(told: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{message}.* use an algorithm of the arena's own, such as ppo"):
        play(ScriptedEnv(VECTOR, CHOICE, **told), ticks=0)


def test_entity_that_ends_early_is_refused_at_its_end() -> None:
    env = ScriptedEnv(VECTOR, CHOICE, active=lambda tick: np.arange(4) * (tick == 2) < 3)
    with pytest.raises(ConfigError, match="an entity can end before the others"):
        play(env, ticks=9)
    assert env.tick == 2


def test_an_environment_that_resets_on_the_next_step_is_refused() -> None:
    env = ScriptedEnv(VECTOR, CHOICE)
    env.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ConfigError, match="resets on the same step"):
        Rows(env, GlobalStreams(0))


# ------------------------------------------------------------------------------------------------- random streams


def draw() -> tuple[Any, ...]:
    return np.random.random(), np.random.randint(1000), float(torch.rand(1)), float(torch.randn(1))


def drawn(streams: GlobalStreams, times: int = 1) -> list[Any]:
    found = []
    for _ in range(times):
        with streams:
            found.append(draw())
    return found


def test_random_stream_of_a_worker_is_isolated() -> None:
    undisturbed = drawn(GlobalStreams(1), 3)
    streams, found = GlobalStreams(1), []
    with streams:
        for _ in range(3):
            found.append(draw())
            with streams.left():
                draw()
                drawn(GlobalStreams(2), 2)
    assert found == undisturbed
