"""Games that change one object in place and return it every time, and games whose infos use the arena's words."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

OURS = {
    "active": False,
    "void": True,
    "given": True,
    "given_action": 1,
    "episode": {"r": 1.0, "_r": 2.0},
    "_active": False,
    "_action_mask": [0, 0],
    "game/void": 7,
    "lives": 3,
    "_lives": 4,
}
"""Infos of a game that are full of our own words."""


class Bits(gymnasium.Env[Any, Any]):
    """The right action is the bit that it sees; five steps. `keys` are its infos."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, keys: dict[str, Any] | None = None) -> None:
        self.keys = keys or {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.played = 0
        return self._see(), dict(self.keys)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.played += 1
        reward = float(action == self.bit)
        return self._see(), reward, False, self.played >= 5, dict(self.keys)

    def _see(self) -> Any:
        self.bit = int(self.np_random.integers(2))
        return np.array([self.bit], np.float32)


class InPlace(gymnasium.Env[Any, Any]):
    """Counts from 50 to 55 in one array, which is its observation, and nested in its info; all lanes share a list."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)
    shared = np.zeros(1)

    def __init__(self) -> None:
        self.state, self.mask = np.zeros(1, np.float32), np.ones(2, np.int8)
        self.info = {"n": self.state, "nested": {"list": [self.state]}, "shared": self.shared, "action_mask": self.mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state[0] = self.shared[0] = 50
        self.mask[:] = 1, 0
        return self.state, self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.state += 1
        self.shared[0] = self.state[0]
        self.mask[:] = (0, 1) if self.state[0] == 55 else (1, 1)
        return self.state, 1.0, False, bool(self.state[0] == 55), self.info


class InPlaceParallel(ParallelEnv[str, Any, Any]):
    """As `InPlace`, for two agents, with the dictionaries reused too."""

    metadata = {"name": "in_place"}
    possible_agents = ["a", "b"]

    def __init__(self) -> None:
        self.games = {agent: InPlace() for agent in self.possible_agents}
        self.seen: dict[str, Any] = {}
        self.infos: dict[str, Any] = {}

    def observation_space(self, agent: str) -> Any:
        return InPlace.observation_space

    def action_space(self, agent: str) -> Any:
        return InPlace.action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = list(self.possible_agents)
        for agent, game in self.games.items():
            self.seen[agent], self.infos[agent] = game.reset(seed=seed)
        return self.seen, self.infos

    def step(self, actions: dict[str, Any]) -> Any:
        results = {agent: game.step(actions[agent]) for agent, game in self.games.items()}
        self.agents = [agent for agent in self.agents if not results[agent][3]]
        return self.seen, *({agent: of[i] for agent, of in results.items()} for i in (1, 2, 3)), self.infos


class InPlaceInTurns(AECEnv[str, Any, Any]):
    """Two agents in turn, who share one array for what they observe; the second move ends the game."""

    metadata = {"name": "in_turns"}
    possible_agents = ["a", "b"]

    def __init__(self) -> None:
        super().__init__()
        self.shown = np.zeros(1, np.float32)

    def observation_space(self, agent: str) -> Any:
        return InPlace.observation_space

    def action_space(self, agent: str) -> Any:
        return InPlace.action_space

    def observe(self, agent: str) -> Any:
        self.shown[0] = 10 * (1 + self.possible_agents.index(agent)) + self.played
        return self.shown

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents, self.played = list(self.possible_agents), 0
        self.agent_selection = "a"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict(self.rewards)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.played += 1
        self.agent_selection = "ba"[self.played % 2 == 0]
        if self.played == 2:
            self.terminations = dict.fromkeys(self.agents, True)


class Depth(gymnasium.Env[Any, Any]):
    """Gives a value that the declared dtype may not hold, from the second step on."""

    action_space = spaces.Discrete(2)

    def __init__(self, value: Any, declared: str = "uint8", given: str | None = None, space: Any = None) -> None:
        bounds = (0, 255) if declared == "uint8" else (-np.inf, np.inf)
        self.observation_space = spaces.Box(*bounds, (2,), np.dtype(declared).type) if space is None else space
        self.value, self.given = value, given

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.played = 0
        return np.zeros(2, self.observation_space.dtype), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.played += 1
        seen = [self.value, 1] if self.played > 1 else [0, 1]
        return seen if self.given is None else np.array(seen, self.given), 0.0, False, False, {}
