"""Gymnasium's games with observations of positions only: a policy without memory cannot know velocities.

They run in environment processes, so this module imports neither torch nor MPI.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation


def cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole-v1; the observation is float32 [2]: the cart's position and the pole's angle."""
    return _shown("CartPole-v1", slice(None, None, 2))


def pendulum() -> gymnasium.Env[Any, Any]:
    """Pendulum-v1; the observation is float32 [2]: the cosine and the sine of the angle."""
    return _shown("Pendulum-v1", slice(2))


def _shown(name: str, numbers: slice) -> gymnasium.Env[Any, Any]:
    """A game of Gymnasium of which only these numbers of an observation are shown."""
    env = gymnasium.make(name)
    seen = env.observation_space
    assert isinstance(seen, spaces.Box)
    space = spaces.Box(seen.low[numbers], seen.high[numbers], dtype=np.float32)
    return TransformObservation(env, lambda observation: observation[numbers], space)
