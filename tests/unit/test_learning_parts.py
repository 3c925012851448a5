"""What algorithms share that learn as a group: the mean of a group of one, and when the next episode begins."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from arena.errors import ConfigError
from fakes import ScriptedEnv
from policies.common import algorithm


def test_the_mean_over_one_worker_is_its_own() -> None:
    gradient = torch.ones(3)
    assert algorithm.alone([gradient], weight=2.0, loss=0.5) == {"loss": 0.5}
    assert gradient.tolist() == [1, 1, 1]


def test_who_says_nothing_resets_on_the_same_step() -> None:
    env = ScriptedEnv(spaces.Discrete(2), spaces.Discrete(2))
    for metadata in ({}, {"autoreset_mode": AutoresetMode.SAME_STEP}):
        env.metadata = metadata
        algorithm.check_autoreset(env, "PPO")
    env.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ConfigError, match="PPO needs a vector environment that resets on the same step, not"):
        algorithm.check_autoreset(env, "PPO")


@pytest.mark.parametrize("name", ["common.on_policy", "common.off_policy", "bc"])
def test_all_algorithms_mean_the_same_by_it(name: str) -> None:
    assert import_module(f"policies.{name}").alone is algorithm.alone
