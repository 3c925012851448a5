"""Algorithms need environments that reset on the same step."""

from __future__ import annotations

import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from arena.errors import ConfigError
from fakes import ScriptedEnv
from policies.common import algorithm


def test_an_environment_must_reset_on_the_same_step() -> None:
    env = ScriptedEnv(spaces.Discrete(2), spaces.Discrete(2))
    for metadata in ({}, {"autoreset_mode": AutoresetMode.SAME_STEP}):
        env.metadata = metadata
        algorithm.check_autoreset(env, "PPO")
    env.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ConfigError, match="PPO needs a vector environment that resets on the same step, not"):
        algorithm.check_autoreset(env, "PPO")
