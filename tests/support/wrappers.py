"""Wrappers, and games to be wrapped."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from in_process import NOTES
from workers import Player


class Painting(gymnasium.Env[Any, Any]):
    """Shows a picture drawn from the seed; ends after `length` steps; the reward is ten times the action."""

    def __init__(self, length: int = 7, shape: tuple[int, ...] = (6, 9, 3)) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(5, start=-2)
        self.length = length

    def _paint(self) -> Any:
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._paint(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._paint(), 10.0 * float(action), self.steps == self.length, False, {"step": self.steps}


class Shifted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds to observations and rewards, and puts the last action into the info."""

    def __init__(self, env: Any, by: float = 1.0, *, bonus: float = 0.0) -> None:
        super().__init__(env)
        self.by, self.bonus = by, bonus

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation + observation.dtype.type(self.by), {**info, "options": options}

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return (
            observation + observation.dtype.type(self.by),
            float(reward) + self.bonus,
            terminated,
            truncated,
            {**info, "action": action},
        )


class Noisy(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Adds noise from the environment's own stream."""

    def observation(self, observation: Any) -> Any:
        return observation + self.np_random.normal(size=observation.shape).astype(np.float32)


class FewerActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has another space of actions."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.action_space = spaces.Discrete(1)


class Frames(Player):
    """Records the observations of each tick, and of the end of an episode."""

    face = "vector"

    def run(self) -> None:
        observations, _ = self.env.reset()
        NOTES.append((observations[..., 0].tolist(), None))
        while True:
            observations, _, _, truncated, infos = self.env.step(np.zeros(self.env.num_envs, np.int64))
            last = [infos["final_obs"][row][..., 0].tolist() for row in np.flatnonzero(infos.get("_final_obs", []))]
            NOTES.append((observations[..., 0].tolist(), (last, truncated.tolist()) if last else None))


def nothing(env: Any) -> int:
    """No wrapper: returns a number."""
    return 3
