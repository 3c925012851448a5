"""Gradients in closed form against autograd, and Adam against torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from arena import registry
from fakes import ScriptedEnv, solo_group
from learning_steps import evaluate, play
from minibatches import disturb
from policies.a2c import A2C
from policies.common.adam import Adam
from policies.common.algorithm import Algorithm
from policies.common.on_policy import OnPolicyOptions
from policies.hppo import HPPO
from policies.impala import IMPALA
from policies.mappo import MAPPO
from policies.ppo import PPO

VECTOR = spaces.Box(-1, 1, (3,))
CHOICE, NUMBERS, FLAGS = spaces.Discrete(4), spaces.Box(-1, 2, (2,)), spaces.MultiBinary(3)
PAIR = spaces.MultiDiscrete([2, 3])
SMALL = {"hidden_sizes": (8, 6)}


def on_policy(kind: type[Any], actions: Any, **options: Any) -> Callable[[], tuple[Algorithm, Any]]:
    def make() -> tuple[Algorithm, Any]:
        env = ScriptedEnv(VECTOR, actions, ticks=60)
        env.seat_entities = ("first", "second")  # type: ignore[attr-defined]
        algorithm = kind(env, solo_group(), ticks=60, **{**SMALL, "n_steps": 12, "ent_coef": 0.3, **options})
        algorithm.rollout.begin(*env.reset())
        play(algorithm)
        batch = evaluate(algorithm)
        disturb(algorithm.network)  # so that ratios are not 1, and some are clipped
        return algorithm, batch

    return make


CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "ppo, choice": on_policy(PPO, CHOICE),
    "ppo, choices": on_policy(PPO, PAIR),
    "ppo, flags": on_policy(PPO, FLAGS),
    "ppo, numbers": on_policy(PPO, NUMBERS, clip_range_vf=0.2),
    "ppo, relu": on_policy(PPO, CHOICE, activation="relu"),
    "a2c, choice": on_policy(A2C, CHOICE),
    "a2c, numbers": on_policy(A2C, NUMBERS),
    "impala, choice": on_policy(IMPALA, CHOICE),
    "mappo, choice": on_policy(MAPPO, CHOICE),
    "hppo, choice": on_policy(HPPO, CHOICE, n_options=3, option_ticks=2),
}


def gradients(algorithm: Any, batch: Any) -> tuple[Tensor, list[Tensor]]:
    """The metrics of a minibatch, and the gradients of all weights."""
    algorithm.optimizer.zero_grad()
    return algorithm.backward(batch).double(), [algorithm.optimizer.gradient.clone()]


@pytest.mark.parametrize("case", CASES)
def test_closed_forms_equal_autograd(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, batch = CASES[case]()
    drawn = algorithm.generator.get_state()
    metrics, by_hand = gradients(algorithm, batch)
    monkeypatch.setattr(PPO, "has_gradient_by_hand", lambda *of: False)
    algorithm.generator.set_state(drawn)
    expected_metrics, expected = gradients(algorithm, batch)
    torch.testing.assert_close(metrics, expected_metrics, atol=1e-5, rtol=1e-4)
    for found, gradient in zip(by_hand, expected, strict=True):
        assert gradient.abs().max() > 1e-4
        torch.testing.assert_close(found, gradient, atol=2e-6 * float(gradient.abs().max()) + 1e-7, rtol=1e-3)


def doubled(kind: type[Any], name: str) -> type[Any]:
    """A subclass whose `loss` or `losses` are twice as large."""

    def twice(self: Any, *given: Any) -> Any:
        found = getattr(super(subclass, self), name)(*given)
        return 2 * found if isinstance(found, Tensor) else (2 * found[0], *found[1:])

    subclass = type("Doubled", (kind,), {name: twice})
    return subclass


@pytest.mark.parametrize(
    ("case", "name"),
    [
        *((case, "loss") for case in ("ppo, numbers", "a2c, choice", "hppo, choice")),
        *((case, "losses") for case in ("ppo, choice", "a2c, numbers", "hppo, choice")),
    ],
)
def test_a_subclass_with_another_loss_is_differentiated_by_torch(case: str, name: str) -> None:
    algorithm, batch = CASES[case]()
    drawn = algorithm.generator.get_state()
    _, plain = gradients(algorithm, batch)
    algorithm.generator.set_state(drawn)
    algorithm.__class__ = doubled(type(algorithm), name)
    _, found = gradients(algorithm, batch)
    for once, twice in zip(plain, found, strict=True):
        assert once.abs().max() > 1e-4
        torch.testing.assert_close(twice, 2 * once, atol=4e-6 * float(once.abs().max()) + 2e-7, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "space", "applies"),
    [
        ({}, VECTOR, True),
        ({"recurrent": "gru"}, VECTOR, False),
        ({}, spaces.Box(0, 255, (8, 8, 1), "uint8"), False),
    ],
    ids=["numbers", "memory", "picture"],
)
def test_closed_forms_are_for_perceptrons(options: dict[str, Any], space: Any, applies: bool) -> None:
    ppo = PPO(ScriptedEnv(space, CHOICE), solo_group(), ticks=40, **{**SMALL, "n_steps": 20, **options})
    assert ppo.has_gradient_by_hand(PPO) == applies
    ppo.device = torch.device("cuda")
    assert not ppo.has_gradient_by_hand(PPO)


# Adam against torch's own, and the vector that a module's parameters are views of


SEEN = spaces.Box(-1, 1, (3,), np.float32)


def module(outputs: int = 3) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, outputs))


def gradient_of(net: nn.Module, step: int) -> None:
    data = torch.randn(11, 5, generator=torch.Generator().manual_seed(step))
    net(data).square().mean().backward()


@pytest.mark.slow
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.99)])
def test_step_equals_torchs_adam_with_the_same_clipping(betas: tuple[float, float]) -> None:
    ours, theirs = module(), module()
    adam = Adam(ours, epsilon=1e-5, betas=betas)
    oracle = torch.optim.Adam(theirs.parameters(), eps=1e-5, betas=betas)
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


ROWS = "ppo", "a2c", "hppo", "dqn", "ddpg", "td3", "sac"
TEAMS = "mappo", "maddpg", "masac", "qmix"


@pytest.mark.parametrize("algorithm", [*ROWS, *TEAMS])
def test_every_optimizer_has_the_epsilon_of_the_options(algorithm: str) -> None:
    env = ScriptedEnv(SEEN, SEEN if algorithm in ("ddpg", "td3") else spaces.Discrete(3), rows=4)
    env.seat_entities = ("left", "right") if algorithm in TEAMS else ("only",)  # type: ignore[attr-defined]
    cls = registry.algorithm(algorithm)
    usual = 1e-5 if issubclass(cls.Options, OnPolicyOptions) else 1e-8
    for given, expected in ({}, usual), ({"adam_epsilon": 0.25}, 0.25):
        made = cls(env, solo_group(), ticks=1000, **given)
        optimizers = [made.optimizer] if issubclass(cls.Options, OnPolicyOptions) else made.optimizers.values()
        assert {optimizer.epsilon for optimizer in optimizers} == {expected}


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_the_optimizer_has_the_betas_of_the_options(algorithm: str) -> None:
    env, given = ScriptedEnv(SEEN, SEEN, rows=4), {"adam_beta1": 0.25, "adam_beta2": 0.5}
    assert registry.algorithm(algorithm)(env, solo_group(), ticks=1000, **given).optimizer.betas == (0.25, 0.5)
