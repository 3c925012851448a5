"""Adam against torch's own, and the vector that a module's parameters are views of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from arena import registry
from fakes import ScriptedEnv, solo_group
from policies.common.adam import Adam
from policies.common.on_policy import OnPolicyOptions

SEEN = spaces.Box(-1, 1, (3,), np.float32)


def module(outputs: int = 3) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, outputs))


def gradient_of(net: nn.Module, step: int) -> None:
    data = torch.randn(11, 5, generator=torch.Generator().manual_seed(step))
    net(data).square().mean().backward()


@pytest.mark.slow
def test_step_equals_torchs_adam_with_the_same_clipping() -> None:
    ours, theirs = module(), module()
    adam, oracle = Adam(ours, epsilon=1e-5), torch.optim.Adam(theirs.parameters(), eps=1e-5)
    for step in range(30):
        rate = 0.01 / (1 + step)
        adam.zero_grad()
        gradient_of(ours, step)
        adam.clip_grad_norm(0.3)
        adam.step(rate)
        oracle.zero_grad()
        gradient_of(theirs, step)
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.3)
        oracle.param_groups[0]["lr"] = rate
        oracle.step()
    for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=0)


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "mappo", "hppo", "dqn", "ddpg", "td3", "sac", "maddpg", "masac"])
def test_every_optimizer_has_the_epsilon_of_the_options(algorithm: str) -> None:
    env = ScriptedEnv(SEEN, SEEN if algorithm in ("ddpg", "td3") else spaces.Discrete(3), rows=4)
    env.seat_entities = ("left", "right") if algorithm.startswith("ma") else ("only",)  # type: ignore[attr-defined]
    cls = registry.algorithm(algorithm)
    usual = 1e-5 if issubclass(cls.Options, OnPolicyOptions) else 1e-8
    for given, expected in ({}, usual), ({"adam_epsilon": 0.25}, 0.25):
        made = cls(env, solo_group(), ticks=1000, **given)
        optimizers = [made.optimizer] if issubclass(cls.Options, OnPolicyOptions) else made.optimizers.values()
        assert {optimizer.epsilon for optimizer in optimizers} == {expected}
