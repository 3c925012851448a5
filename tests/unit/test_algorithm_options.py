"""Options and spaces that the algorithms refuse: one table for all of them."""

from __future__ import annotations

import importlib
import re
from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text

from arena import registry
from arena.errors import ConfigError


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("ppo", {"n_epochs": 0}, "whole number, at least 1"),
        ("ppo", {"n_steps": 2.5}, "whole number"),
        ("ppo", {"learning_rate": -1e-3}, "at least 0"),
        ("ppo", {"learning_rate": "fast"}, "found 'fast'; expected a number"),
        ("ppo", {"gamma": 1.5}, "at most 1"),
        ("ppo", {"gae_lambda": float("nan")}, "at most 1"),
        ("ppo", {"target_kl": 0}, "more than 0, or null"),
        ("ppo", {"clip_range_vf": 0}, "more than 0, or null"),
        ("ppo", {"max_grad_norm": 0}, "more than 0, or null"),
        ("ppo", {"adam_epsilon": 0}, "more than 0"),
        ("a2c", {"adam_beta1": 1}, "less than 1"),
        ("ppo", {"learning_rate_schedule": "liner"}, "did you mean 'linear'"),
        ("ppo", {"activation": "gelu"}, "known: relu, tanh"),
        ("ppo", {"device": "gpu"}, "known: auto, cpu, cuda"),
        ("ppo", {"hidden_sizes": [64, 0]}, "found 0; expected a whole number, at least 1"),
        ("ppo", {"hidden_sizes": [2**64, 64]}, "found 18446744073709551616; expected a whole number"),
        ("ppo", {"hidden_sizes": 64}, "expected a list"),
        ("ppo", {"normalize_advantage": 1}, "true or false"),
        ("ppo", {"clip_observations": 0}, "expected a number, at least 1e-06, or null"),
        ("ppo", {"recurrent": "rnn"}, "known: gru, lstm"),
        ("ppo", {"recurrent": "gru", "hidden_size": 0}, "whole number, at least 1"),
        ("ppo", {"minibatch_size": 256, "recurrent": "lstm", "sequence_length": 300}, "expected 256 at most: a mini"),
        ("hppo", {"n_options": 0}, "at least 1"),
        ("hppo", {"n_steps": 4, "option_ticks": 5}, "got 5, expected 4 at most"),
        ("mappo", {"recurrent": "gru", "sequence_length": 300}, "got 300, expected 256 at most"),
        ("dqn", {"dueling": None}, "true or false"),
        ("dqn", {"exploration_fraction": 1.5}, "at most 1"),
        ("dqn", {"exploration_initial_eps": -0.1}, "at least 0"),
        ("dqn", {"buffer_size": 0}, "at least 1"),
        ("dqn", {"learning_starts": -1}, "whole number, at least 0"),
        ("dqn", {"learning_starts": 200_000}, "more than buffer_size, 100000"),
        ("dqn", {"batch_size": 100_001}, "more than buffer_size"),
        ("dqn", {"n_step": 100_001}, "more than buffer_size"),
        ("dqn", {"n_step": 0}, "at least 1"),
        ("dqn", {"train_every": True}, "whole number"),
        ("dqn", {"training_intensity": "high"}, "found 'high'; expected auto, or a number"),
        ("dqn", {"training_intensity": 0}, "found 0; expected auto, or a number, more than 0"),
        ("dqn", {"tau": 0}, "more than 0 and at most 1"),
        ("dqn", {"priority_alpha": 2}, "at most 1"),
        ("dqn", {"priority_epsilon": -1e-9}, "at least 0"),
        ("dqn", {"prioritized": True, "priority_alpha": 0}, "got 0, expected more than 0"),
        ("dqn", {"prioritized": True, "priority_epsilon": 0}, "got 0, expected more than 0"),
        ("dqn", {"target_update_interval": 0}, "at least 1"),
        ("ddpg", {"noise_std": -0.1}, "at least 0"),
        ("ddpg", {"noise_theta": 0}, "never changes"),
        ("ddpg", {"action_noise": "gausian"}, "did you mean 'gaussian'"),
        ("ddpg", {"gumbel_temperature": 0}, "a number, more than 0"),
        ("td3", {"output_penalty": 0.1}, "or take ddpg"),
        ("td3", {"policy_delay": 0}, "whole number, at least 1"),
        ("td3", {"target_policy_noise": -1}, "at least 0"),
        ("sac", {"ent_coef": "automatic"}, "auto, or a number"),
        ("sac", {"ent_coef": -0.1}, "at least 0"),
        ("sac", {"target_entropy": "high"}, "auto, or a number"),
        ("sac", {"ent_coef": 0.1, "target_entropy": -1.0}, "target_entropy has no effect where ent_coef is 0.1"),
        ("maddpg", {"shared_actor": "yes"}, "true or false"),
        ("masac", {"gumbel_temperature": -1}, "a number, more than 0"),
        ("vdn", {"n_step": 0}, "at least 1"),
        ("qmix", {"mixing_units": 0}, "at least 1"),
        ("qmix", {"hypernet_sizes": 64}, "expected a list"),
        ("bc", {"data": "runs/x", "batch_size": 0}, "found 0"),
        ("iql", {"data": "runs/x", "expectile": 1}, "V would rise without end"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name(algorithm: str, options: dict[str, Any], message: str) -> None:
    """The last option of a row is the wrong one."""
    name = list(options)[-1]
    with pytest.raises(ConfigError, match=rf"options\.{name}.*: .*{re.escape(message)}"):
        registry.decode_options(registry.algorithm(algorithm), options, path="")


SEEN = Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize(
    ("algorithm", "observations", "actions", "message"),
    [
        ("ppo", Text(3), Discrete(4), "no fixed layout"),
        ("ppo", SEEN, Text(3), "actions can be Discrete"),
        ("ppo", SEEN, Dict(a=Discrete(2), b=Box(0, 9, (2,), np.int64)), "actions can be Discrete"),
        ("ppo", SEEN, Dict(), "nothing to choose"),
        ("bc", SEEN, Dict(a=Discrete(2), b=Box(-1, 1, (2,))), "ppo and a2c take such actions"),
        ("dqn", SEEN, Dict(a=Discrete(2)), "actions have to be Discrete.*ppo and a2c"),
        *((name, SEEN, Dict(a=Discrete(2)), "ppo and a2c take such") for name in ("sac", "td3", "maddpg", "masac")),
        ("ddpg", SEEN, Dict(a=Discrete(2)), "ppo and a2c take such"),
        ("ppo", SEEN, Box(0, 255, (2,), np.uint8), "actions can be Discrete"),
        ("dqn", Text(3), Discrete(4), "no fixed layout"),
        ("dqn", SEEN, MultiDiscrete([2, 3]), "actions have to be Discrete.*ppo and a2c"),
        ("dqn", SEEN, Box(-1, 1, (2,)), "actions have to be Discrete.*ppo and a2c"),
        ("qmix", SEEN, Box(-1, 1, (2,)), "QMIX needs a value for every action"),
        ("ddpg", SEEN, Box(-np.inf, np.inf, (2,)), "need finite bounds"),
        ("ddpg", SEEN, Box(np.zeros(2, np.float32), np.array([1, np.inf], np.float32)), "need finite bounds"),
        ("ddpg", SEEN, Box(0, 9, (2,), np.int64), "no Box of floats; wrap the environment so that its actions are one"),
        ("td3", SEEN, Discrete(3), "no Box of floats; dqn, ddpg, sac, ppo and a2c take such actions"),
        ("ddpg", SEEN, MultiBinary(2), "no Box of floats; ppo and a2c take such actions"),
        ("ddpg", SEEN, Box(0.0, 1.0, (0,)), "holds no number"),
        *((name, SEEN, MultiDiscrete([2, 3]), "Box of floats") for name in ("sac", "maddpg", "masac")),
        *((name, SEEN, Box(-np.inf, np.inf, (2,)), "finite bounds") for name in ("sac", "maddpg", "masac")),
    ],
    ids=str,
)
def test_spaces_that_an_algorithm_cannot_take_are_refused(
    algorithm: str, observations: Any, actions: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.algorithm(algorithm).check(observations, actions)


NEEDED: dict[str, dict[str, Any]] = {"bc": {"data": "x"}, "iql": {"data": "x"}, "scripted": {"action": 0}}
OURS = [name for name, entry in registry.ALGORITHMS.items() if not entry.extra and name != "random"]


@pytest.mark.parametrize("name", OURS)
def test_options_may_be_written_as_the_struct_of_the_module(name: str) -> None:
    cls = registry.algorithm(name)
    assert importlib.import_module(cls.__module__).Options is cls.Options
    given = msgspec.structs.asdict(cls.Options(**NEEDED.get(name, {})))
    found = registry.configured_algorithm(name, given, acts=False, path="policies.blue")
    assert cls.Options(**found.options) == cls.Options(**given)
