"""A PettingZoo `ParallelEnv` as a `LaneGame`: its agents act at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Info
from arena.game.spaces import no_op
from envs.adapters.agents import AgentTable, Lives
from envs.adapters.lane import LaneStep, picture


class ParallelGame:
    """Plays a parallel environment; entities are its `possible_agents`, active those in `agents`."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._cast = AgentTable.of_pettingzoo(env)
        self._lives = Lives()  # an agent has ended when it has left `agents`
        self.entities = self._cast.entities
        self.observation_spaces = self._cast.observation_spaces
        self.action_spaces = self._cast.action_spaces
        self.mask_sizes = self._cast.mask_sizes

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        """Begins an episode."""
        observations, infos = self._env.reset(seed=seed, options=None if options is None else dict(options))
        self._lives = Lives()
        return self._moment(observations, {}, {}, {}, infos)

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One joint step; agents that the environment keeps after their end get the no-op."""
        joint = {}
        for agent in self._env.agents:
            index = self._cast.index[agent]
            joint[agent] = no_op(self.action_spaces[index]) if actions[index] is None else actions[index]
        given = self._env.step(joint)
        self._lives.check_earned(given[1])
        self._lives.check_seen(self._env.agents)
        self._lives.end(agent for agent in joint if agent not in self._env.agents)
        return self._moment(*given)

    def _moment(
        self,
        observations: Mapping[Any, Any],
        rewards: Mapping[Any, float],
        terminated: Mapping[Any, bool],
        truncated: Mapping[Any, bool],
        infos: Mapping[Any, Info],
    ) -> LaneStep:
        present = set(self._env.agents)
        return self._cast.lane_step(present, observations, rewards, terminated, truncated, infos, over=not present)

    def render(self) -> NDArray[np.uint8] | str | None:
        """The environment's picture or text."""
        return picture(self._env)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
