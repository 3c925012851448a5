"""Games and players of the learning benchmark that neither the arena nor other libraries have."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

_CHOICES = 3  # rock, paper, scissors


class Foraging:
    """Level-based foraging (Papoudakis et al. 2021, arXiv 2006.07869) of the package lbforaging, of the list interface.

    The returns of all entities add up to 1 where all food is eaten. An episode terminates after 50 ticks, too.
    """

    def __init__(self, task: str = "Foraging-8x8-2p-2f-coop-v3") -> None:
        importlib.import_module("lbforaging")  # registers the tasks
        self._env: Any = gymnasium.make(task, disable_env_checker=True).unwrapped
        self.observation_spaces, self.action_spaces = list(self._env.observation_space), list(self._env.action_space)

    def reset(self, *, seed: int | None = None) -> list[Any]:
        """Begins an episode on a new field."""
        return list(self._env.reset(seed=seed)[0])

    def step(self, actions: Sequence[Any]) -> tuple[list[Any], list[float], bool, list[dict[str, Any]]]:
        """One move of each; moves that are not possible are none."""
        seen, rewards, over, _, _ = self._env.step(actions)
        return list(seen), rewards, over, [{} for _ in actions]


class TwoCartPoles(ParallelEnv[str, Any, Any]):
    """Two CartPoles in one game: neither sees the other, and the game goes on until both have ended.

    Entities: `pole_0`, `pole_1`; observations, actions and rewards are Gymnasium's.
    """

    metadata = {"name": "two_cartpoles"}

    def __init__(self) -> None:
        self.possible_agents = ["pole_0", "pole_1"]
        self.agents: list[str] = []
        self._poles = {name: gymnasium.make("CartPole-v1") for name in self.possible_agents}
        self.observation_spaces = {name: pole.observation_space for name, pole in self._poles.items()}
        self.action_spaces = {name: pole.action_space for name, pole in self._poles.items()}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """What a pole sees: position, velocity, angle, angular velocity."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Push left or right."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode of both; each has its own random stream."""
        self.agents = list(self.possible_agents)
        seeds = (None, None) if seed is None else np.random.SeedSequence(seed).generate_state(2).tolist()
        begun = {name: self._poles[name].reset(seed=own) for name, own in zip(self.agents, seeds, strict=True)}
        return {name: seen for name, (seen, _) in begun.items()}, {name: {} for name in begun}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """One push of each pole that still stands."""
        moved = {name: self._poles[name].step(actions[name]) for name in self.agents}
        seen, rewards, terminated, truncated, infos = (
            {name: step[part] for name, step in moved.items()} for part in range(5)
        )
        self.agents = [name for name in self.agents if not (terminated[name] or truncated[name])]
        return seen, rewards, terminated, truncated, infos

    def close(self) -> None:
        """Closes both."""
        for pole in self._poles.values():
            pole.close()


def hold(observations: NDArray[np.float32], infos: Mapping[str, Any], *, env: Any) -> NDArray[np.int64]:
    """Rock-paper-scissors (`envs.matrix`): a random choice on the first tick, the same one until the episode ends.

    An opponent that has observed the choice once can win all later ticks.
    """
    first = observations[:, 2 * _CHOICES] == 1  # [B]
    choices: NDArray[np.int64] = np.where(first, env.action_space.sample(), observations[:, :_CHOICES].argmax(axis=1))
    return choices
