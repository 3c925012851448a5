"""The gradients by hand of PPO and A2C are those that torch finds for their losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from fakes import ScriptedEnv, solo_group
from learning_steps import evaluate, play
from minibatches import disturb
from policies.a2c import A2C
from policies.common.algorithm import Algorithm
from policies.hppo import HPPO
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
