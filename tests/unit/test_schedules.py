"""Options that change in the course of a run: their numbers, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete

from arena import registry
from arena.errors import ConfigError
from fakes import ScriptedEnv, solo_group
from policies.a2c import A2C
from policies.common.options import Curve, value_at
from policies.ddpg import DDPG
from policies.dqn import DQN


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.3, [0.3, 0.3, 0.3, 0.3, 0.3]),
        (Curve(start=1.0, end=0.0), [1.0, 0.75, 0.5, 0.25, 0.0]),
        (Curve(start=0.0, end=2.0, until=0.5), [0.0, 1.0, 2.0, 2.0, 2.0]),
        (Curve(start=1.0, end=0.0, shape="cosine"), [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0]),
        (((0.25, 1.0), (0.75, 3.0)), [1.0, 1.0, 2.0, 3.0, 3.0]),
        (((0.0, 0.7),), [0.7] * 5),
    ],
)
def test_value_at_parts_of_the_run(value: Any, expected: list[float]) -> None:
    assert [value_at(value, part / 4) for part in range(5)] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("ppo", {"learning_rate": {"start": 1e-3}}, "'end' is missing"),
        ("ppo", {"learning_rate": {"start": 1e-3, "end": -1}}, "at least 0"),
        ("ppo", {"learning_rate": {"start": 1e-3, "end": 0, "shape": "cosin"}}, "did you mean 'cosine'"),
        ("ppo", {"learning_rate": {"start": 1e-3, "end": 0, "until": 0}}, "more than 0 and at most 1"),
        ("a2c", {"learning_rate": [[0.5, 1e-3], [0.2, 0]]}, "go forward from 0 to 1"),
        ("a2c", {"ent_coef": [[0.5, 1e-3], [0.5, 0]]}, "go forward from 0 to 1"),
        ("mappo", {"ent_coef": [[0, 1e-3], [100_000, 0]]}, "not ticks"),
        ("hppo", {"ent_coef": []}, "pairs of a part of the run and a value"),
        ("sac", {"ent_coef": [[0, 1e-3, 1]]}, "pairs of a part of the run and a value"),
        ("td3", {"noise_std": [0.5, 0.1]}, "expected a list"),
        ("dqn", {"epsilon": [[0, 2], [1, 0]]}, "at most 1"),
        ("dqn", {"epsilon": 0.1, "exploration_final_eps": 0.2}, "no effect where epsilon is set"),
        ("dqn", {"learning_rate": [[0, 1], [1, 0]], "learning_rate_schedule": "constant"}, "learning_rate is a sch"),
        ("ppo", {"device": "cuda", "ent_coef": [[0, 1], [1, 0]], "cuda_graphs": True}, "false where ent_coef follows"),
        ("bc", {"data": "x", "learning_rate": [[1, 0], [0, 1]]}, "go forward from 0 to 1"),
        ("vdn", {"learning_rate": [[1, 0], [0, 1]]}, "go forward from 0 to 1"),
        ("qmix", {"learning_rate": [[1, 0], [0, 1]]}, "go forward from 0 to 1"),
        ("sb3:PPO", {"clip_range": [[1, 0.2], [0, 0.1]]}, "go forward from 0 to 1"),
    ],
)
def test_a_wrong_schedule_is_refused(algorithm: str, options: dict[str, Any], message: str) -> None:
    name = list(options)[-1]
    with pytest.raises(ConfigError, match=rf"options\.{name}.*: .*{message}"):
        registry.decode_options(registry.algorithm(algorithm), options, path="")


def worker(cls: Any, actions: Any, **options: Any) -> Any:
    decoded = registry.decode_options(cls, options, path="policies.blue")
    return cls(ScriptedEnv(Box(-1, 1, (2,)), actions, rows=1, ticks=100), solo_group(), ticks=100, **decoded)


def test_old_spellings_and_schedules_give_the_same_numbers() -> None:
    """Of the learning rate and of epsilon, at each part of a run."""
    old = worker(DQN, Discrete(2), learning_rate=0.1, exploration_fraction=0.4, exploration_final_eps=0.2)
    epsilon = {"start": 1, "end": 0.2, "until": 0.4}
    new = worker(DQN, Discrete(2), learning_rate={"start": 0.1, "end": 0}, epsilon=epsilon)
    for tick in range(101):
        old.ticks_done = new.ticks_done = tick
        assert (old.learning_rate, old.epsilon) == pytest.approx((new.learning_rate, new.epsilon), abs=1e-12)
    assert old.export_as == new.export_as == {"choice": "values", "epsilon": pytest.approx(0.2)}


def test_entropy_and_noise_are_those_of_now() -> None:
    a2c = worker(A2C, Discrete(2), ent_coef=[[0, 0.4], [1, 0.2]])
    ddpg = worker(DDPG, Box(-1, 1, (1,)), noise_std={"start": 1, "end": 0}, action_noise="correlated")
    for algorithm, name, expected in ((a2c, "ent_coef", 0.3), (ddpg, "noise_std", 0.5)):
        algorithm.ticks_done = 50
        assert getattr(algorithm.options, name) == pytest.approx(expected)
        assert algorithm.schedules()[name] == pytest.approx(expected)
    ddpg.ticks_done = 100  # the noise has ended
    leaves = [torch.ones(1, 2)]
    assert torch.equal(ddpg.explore(leaves, None), ddpg.act(leaves, None, None))
