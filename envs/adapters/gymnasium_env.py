"""A `gymnasium.Env` as a `LaneGame` with one entity, `agent_0`."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.spaces import Space, Tuple

from arena.errors import ConfigError
from envs.adapters.lane import LaneGame, LaneStep, check_reset, flag, returned, several_agents

_OF_RESET = ("observation", "info")
_OF_STEP = ("observation", "reward", "terminated", "truncated", "info")


class GymnasiumGame(LaneGame):
    """Plays a Gymnasium environment; action masks come from `info["action_mask"]`."""

    entities: tuple[str, ...] = ("agent_0",)
    mask_sizes: tuple[int, ...] = (0,)

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        check_reset(env)
        super().__init__(env)
        self.observation_spaces: tuple[Space[Any], ...] = (env.observation_space,)
        self.action_spaces: tuple[Space[Any], ...] = (env.action_space,)
        sizes = {len(one.spaces) if isinstance(one, Tuple) else 0 for one in (env.observation_space, env.action_space)}
        if len(sizes) == 1 and 0 not in sizes and getattr(env.unwrapped, "n_agents", None) in sizes:
            raise several_agents(sizes.pop())  # spaces by agent, as lbforaging's and rware's

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        try:
            result = self._env.reset(seed=seed, options=None if options is None else dict(options))
        except (TypeError, ValueError) as error:
            _refuse_unpacked(error)
            raise
        observation, info = returned(self._env, "reset", result, _OF_RESET)
        return LaneStep((observation,), (True,), (info,), (0.0,), (False,), (False,))

    def step(self, actions: Sequence[Any]) -> LaneStep:
        try:
            result = self._env.step(actions[0])
        except (TypeError, ValueError) as error:
            _refuse_unpacked(error)
            raise
        observation, reward, terminated, truncated, info = returned(self._env, "step", result, _OF_STEP)
        ends = flag(terminated), flag(truncated)
        return LaneStep((observation,), (not any(ends),), (info,), (reward,), ends[:1], ends[1:])


def _refuse_unpacked(error: Exception) -> None:
    """Refuses a game of which a wrapper of Gymnasium cannot unpack what it gave; other errors are the game's own."""
    place = deque(traceback.walk_tb(error.__traceback__), maxlen=1)[0][0]
    if "unpack" in str(error) and place.f_globals["__name__"].startswith("gymnasium."):
        raise ConfigError(
            f"{place.f_code.co_name}() of Gymnasium's {type(place.f_locals.get('self')).__name__} cannot read what the "
            f"game gave: {error}; reset() gives {', '.join(_OF_RESET)}, and step() {', '.join(_OF_STEP)} (older games "
            "have `done` instead: terminated says an end by the rules, truncated by a time limit)"
        ) from error
