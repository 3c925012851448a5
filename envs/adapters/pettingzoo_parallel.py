"""A PettingZoo `ParallelEnv` as a `LaneGame`: its agents act at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import GameError
from arena.game.spaces import no_op
from envs.adapters.agents import AgentTable, Lives
from envs.adapters.lane import LaneStep, check_reset, picture, returned

_OF_RESET = ("observations", "infos")
_OF_STEP = ("observations", "rewards", "terminations", "truncations", "infos")

_NO_AGENTS = ("__common__",)  # keys of infos, as of RLlib's dictionaries


class ParallelGame:
    """Plays a parallel environment; entities are its `possible_agents`, active those in `agents`."""

    def __init__(self, env: Any) -> None:
        check_reset(env)
        self._env = env
        self._agents = AgentTable.of_pettingzoo(env)
        self._lives = Lives()  # agents that have left `agents`
        self._ended: set[Any] = set()  # agents that were terminated or truncated, also if `agents` keeps them
        self.entities = self._agents.entities
        self.observation_spaces = self._agents.observation_spaces
        self.action_spaces = self._agents.action_spaces
        self.mask_sizes = self._agents.mask_sizes

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        """Begins an episode."""
        given = self._env.reset(seed=seed, options=None if options is None else dict(options))
        observations, infos = returned(self._env, "reset", given, _OF_RESET)
        self._lives, self._ended = Lives(), set()
        present = self._agents.known("`agents`", dict.fromkeys(self._env.agents))
        self._agents.complete("observations", observations, present)
        self._agents.known("infos", infos, besides=_NO_AGENTS)
        return self._agents.lane_step(set(present), observations, {}, {}, {}, infos, over=not present)

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One joint step; agents that the environment keeps after their end get the no-op."""
        agents, joint = self._agents, {}
        for agent in self._env.agents:
            index = agents.index[agent]
            joint[agent] = no_op(self.action_spaces[index]) if actions[index] is None else actions[index]
        given = returned(self._env, "step", self._env.step(joint), _OF_STEP)
        observations, rewards, terminated, truncated, infos = given
        present = agents.known("`agents`", dict.fromkeys(self._env.agents))
        acted = [agent for agent in joint if agent not in self._ended]
        for what, values in zip(_OF_STEP[1:4], given[1:4], strict=True):
            agents.complete(what, values, acted)
        ended = {agent for agent in acted if terminated[agent] or truncated[agent]}
        left = next((agent for agent in acted if present and agent not in present and agent not in ended), None)
        if left is not None:
            raise GameError(
                f"no end of the agent {left!r}, which has left `agents`; expected it terminated or truncated"
            )
        # Nothing is learned from the last observation of an agent that is terminated.
        shown = [one for one in dict.fromkeys((*acted, *present)) if one not in self._ended and not terminated.get(one)]
        agents.complete("observations", observations, shown)
        agents.known("infos", infos, besides=_NO_AGENTS)
        self._lives.check_earned(rewards)
        self._lives.check_seen(present)
        self._lives.end(agent for agent in joint if agent not in present)
        self._ended |= ended
        return agents.lane_step(set(present), observations, rewards, terminated, truncated, infos, over=not present)

    def render(self) -> NDArray[np.uint8] | str | None:
        """The environment's picture or text."""
        return picture(self._env)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
