"""Adam against torch's own, and the vector that a module's parameters are views of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from arena import registry
from arena.errors import ConfigError
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


def test_flattening_keeps_the_weights() -> None:
    net = module()
    Adam(net, epsilon=1e-8)
    for left, right in zip(net.parameters(), module().parameters(), strict=True):
        assert torch.equal(left, right)


def test_loading_weights_into_the_module_writes_into_the_vector() -> None:
    net = module()
    adam = Adam(net, epsilon=1e-8)
    net.load_state_dict({name: torch.full_like(value, 2.0) for name, value in net.state_dict().items()})
    assert adam.vector.detach().sum() == 2 * sum(parameter.numel() for parameter in net.parameters())


def test_step_uses_a_gradient_set_from_outside() -> None:
    net = module()
    adam = Adam(net, epsilon=1e-8)
    for _ in range(2):
        adam.zero_grad()
        gradient_of(net, 0)
        assert adam.gradient.abs().sum() > 0
        adam.vector.grad = torch.zeros_like(adam.gradient)  # as a group may set it
        adam.step(0.1)
    for left, right in zip(net.parameters(), module().parameters(), strict=True):
        assert torch.equal(left, right)


def test_zero_learning_rate_changes_no_bit() -> None:
    net = module()
    adam = Adam(net, epsilon=1e-8)
    gradient_of(net, 0)
    adam.step(0.0)
    for left, right in zip(net.parameters(), module().parameters(), strict=True):
        assert torch.equal(left.view(torch.int32), right.view(torch.int32))


def test_the_state_of_another_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="numbers, this network has"):
        Adam(module(3), epsilon=1e-8).load_state_dict(Adam(module(30), epsilon=1e-8).state_dict())
