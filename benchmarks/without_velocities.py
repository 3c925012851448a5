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
    env = gymnasium.make("CartPole-v1")
    seen = env.observation_space
    assert isinstance(seen, spaces.Box)
    space = spaces.Box(seen.low[::2], seen.high[::2], dtype=np.float32)
    return TransformObservation(env, lambda observation: observation[::2], space)
