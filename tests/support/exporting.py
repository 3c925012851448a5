"""Algorithms with weights and statistics of their own, for tests of what they export."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena import registry
from arena.game.spaces import flatten, leaves_of
from arena.preflight.stubs import SpecVectorEnv, StubGroup, from_spaces
from policies.common.normalization import Statistics

OBSERVATIONS: dict[str, Space[Any]] = {
    "mlp": spaces.Box(-2, 2, (5,), np.float32),
    "image": spaces.Box(0, 255, (20, 20, 3), np.uint8),
    "dict": spaces.Dict(
        {
            "position": spaces.Box(-2, 2, (3,), np.float64),
            "picture": spaces.Box(0, 255, (12, 12, 1), np.uint8),
            "parts": spaces.Tuple(
                (
                    spaces.Discrete(4, start=1),
                    spaces.MultiDiscrete([2, 3]),
                    spaces.MultiBinary(3),
                    spaces.Box(-2, 2, (2, 2), np.float32),
                )
            ),
        }
    ),
}
ACTIONS: dict[str, Space[Any]] = {
    "choice": spaces.Discrete(4, start=3),
    "choices": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "flags": spaces.MultiBinary([2, 2]),
    "numbers": spaces.Box(np.array([-0.5, 0.0], np.float32), np.array([2.0, 5.0], np.float32)),
}
ENTITIES = ("first", "second")
ON_POLICY = ("ppo", "a2c", "impala", "mappo", "bc")
OFF_POLICY = {
    "iql": ("choice", "numbers"),
    "dqn": ("choice",),
    "ddpg": ("choice", "numbers"),
    "td3": ("numbers",),
    "sac": ("choice", "numbers"),
    "maddpg": ("choice", "numbers"),
    "masac": ("choice", "numbers"),
    "vdn": ("choice",),
    "qmix": ("choice",),
}
CASES = [
    *((name, actions) for name in ON_POLICY for actions in ACTIONS),
    *((name, actions) for name, kinds in OFF_POLICY.items() for actions in kinds),
]
"""Every exporting algorithm with every kind of actions that it takes."""


def algorithm_of(name: str, observation: str, action: str, *, seed: int = 0, **more: Any) -> Any:
    """An algorithm with changed weights, whose observations are normalized if they can be."""
    space = OBSERVATIONS[observation]
    cls, known = registry.algorithm(name), registry.option_parameters(registry.algorithm(name)).names
    normalizes = "normalize_observations" in known and observation != "image"
    options: dict[str, Any] = {"hidden_sizes": (16, 16), "data": "nowhere", "normalize_observations": normalizes}
    options |= {"separate": True, **more}
    team = name in ("mappo", "maddpg", "masac", "vdn", "qmix")
    env = SpecVectorEnv(space, ACTIONS[action], rows=2 if team else 1, entities=ENTITIES if team else ENTITIES[:1])
    given = {option: value for option, value in options.items() if option in known}
    found = from_spaces(cls, env, StubGroup("blue", "gradients", seed, seed), ticks=10_000, options=given)
    generator, size = torch.Generator().manual_seed(seed), 0.5 if observation == "image" else 1.0
    with torch.no_grad():
        for parameter in found.network.parameters():
            noise = torch.empty_like(parameter).normal_(generator=generator)
            parameter.add_(noise, alpha=size / max(10, math.prod(parameter.shape[1:])) ** 0.5)  # outputs stay near 1
    if normalizes:
        random = np.random.default_rng(seed)
        normalizer = getattr(found.normalization, "observations", found.normalization)
        normalizer.update(
            [Statistics.of(random.normal(1.0, 2.0, (9, *one.mean.shape))) for one in normalizer.statistics]
        )
    return found


def observations_of(name: str, rows: int, *, seed: int = 0) -> Any:
    """A batched sample of a space of `OBSERVATIONS`."""
    from gymnasium.vector.utils import batch_space

    space = batch_space(OBSERVATIONS[name], rows)
    space.seed(seed)
    return space.sample()


def inputs_of(exported: Any, name: str, rows: int, *, seed: int = 0) -> list[NDArray[Any]]:
    """Arrays [rows, ...] of all inputs; the memory is not 0, entities take turns."""
    space = OBSERVATIONS[name]
    leaves = flatten(space, observations_of(name, rows, seed=seed))
    arrays = [np.ascontiguousarray(leaf, own.dtype) for leaf, own in zip(leaves, leaves_of(space), strict=True)]
    for given in exported.inputs[len(arrays) :]:
        if given["name"] == "entity":
            arrays.append(np.arange(rows) % given["n"])
        else:
            memory = np.random.default_rng(seed).uniform(-0.5, 0.5, (rows, *given["shape"]))
            arrays.append(memory.astype(np.float32))
    return arrays
