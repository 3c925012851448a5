"""A `gymnasium.Env` as a `LaneGame` with one entity, `agent_0`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import GameError
from arena.game.api import Info
from envs.adapters.lane import LaneStep, picture

_OF_RESET = ("observation", "info")
_OF_STEP = ("observation", "reward", "terminated", "truncated", "info")


class GymnasiumGame:
    """Plays a Gymnasium environment; action masks come from `info["action_mask"]`."""

    entities: tuple[str, ...] = ("agent_0",)
    mask_sizes: tuple[int, ...] = (0,)

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self._env = env
        self.observation_spaces: tuple[Space[Any], ...] = (env.observation_space,)
        self.action_spaces: tuple[Space[Any], ...] = (env.action_space,)

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        """Begins an episode."""
        given = self._env.reset(seed=seed, options=None if options is None else dict(options))
        observation, info = _checked(given, "reset", _OF_RESET)
        return _moment(observation, info, 0.0, terminated=False, truncated=False)

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One step."""
        observation, reward, terminated, truncated, info = _checked(self._env.step(actions[0]), "step", _OF_STEP)
        return _moment(observation, info, reward, terminated=terminated, truncated=truncated)

    def render(self) -> NDArray[np.uint8] | str | None:
        """The environment's picture or text."""
        return picture(self._env)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def _checked(given: Any, call: str, names: Sequence[str]) -> Sequence[Any]:
    if isinstance(given, (tuple, list)) and len(given) == len(names):
        return given
    found = f"{len(given)} values" if isinstance(given, tuple) else f"one {type(given).__name__}"
    raise GameError(f"{found} from {call}(); Gymnasium's gives {len(names)}: {', '.join(names)}")


def _moment(observation: Any, info: Info, reward: Any, *, terminated: bool, truncated: bool) -> LaneStep:
    over = bool(terminated or truncated)
    return LaneStep((observation,), (not over,), (info,), (reward,), (terminated,), (truncated,))
