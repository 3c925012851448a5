"""A PettingZoo `AECEnv` as a `LaneGame`: its agents act in turn, one per tick.

A tick is the step of the agent that is to move, followed by the steps with None by which PettingZoo removes ended
agents. `AECEnv.rewards` holds the rewards of the last step; a tick's rewards are those of its one real step, so they
add up to PettingZoo's cumulative rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError, ProtocolError
from arena.game.api import Info
from arena.game.arrays import copied
from envs.adapters.agents import AgentTable, Lives
from envs.adapters.lane import LaneStep, check_reset, picture


class AECGame:
    """Plays an AEC environment; only the agent that is to move is active.

    Observations are refreshed for the agent to move and for agents that ended at this tick; at a reset, for all.
    """

    def __init__(self, env: Any) -> None:
        check_reset(env)
        self._env = env
        self._agents = AgentTable.of_pettingzoo(env)
        self._lives = Lives()  # an agent has ended when it has left `agents`
        self.entities = self._agents.entities
        self.observation_spaces = self._agents.observation_spaces
        self.action_spaces = self._agents.action_spaces
        self.mask_sizes = self._agents.mask_sizes

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        """Begins an episode."""
        self._env.reset(seed=seed, options=None if options is None else dict(options))
        self._lives = Lives()
        self._check_agents()
        return self._moment({agent: self._look(agent) for agent in self._env.agents}, {})

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One turn of the agent that is to move."""
        env = self._env
        env.step(actions[self._agents.index[env.agent_selection]])
        self._check_agents()
        rewards = copied(env.rewards)
        terminated = {agent: bool(env.terminations[agent]) for agent in env.agents}
        truncated = {agent: bool(env.truncations[agent]) for agent in env.agents}
        seen = {agent: self._look(agent) for agent in env.agents if terminated[agent] or truncated[agent]}
        self._remove_ended()
        self._lives.check_earned(rewards)
        self._lives.check_seen(env.agents)
        self._lives.end(agent for agent in terminated if agent not in env.agents)
        if env.agents:
            seen[env.agent_selection] = self._look(env.agent_selection)
        return self._moment(seen, rewards, terminated, truncated)

    def _check_agents(self) -> None:
        """Checks that the game's mappings have its agents, after a reset or the step of the agent that was to move."""
        env = self._env
        present = self._agents.known("`agents`", dict.fromkeys(env.agents))
        for what in ("rewards", "terminations", "truncations", "infos"):
            values = getattr(env, what, None)
            if values is None:
                raise ConfigError(
                    f"{type(env.unwrapped).__name__} has no {what}; expected rewards, terminations, truncations and "
                    "infos by agent (older games have `dones`: set terminations where the rules end an agent, and "
                    "truncations where a time limit does)"
                )
            self._agents.complete(what, values, present if values or what != "infos" else ())
        if present:
            self._agents.known("an `agent_selection`", {env.agent_selection: None})

    def _remove_ended(self) -> None:
        """Removes ended agents from the game: each leaves `agents` by one step with None."""
        env = self._env
        for _ in range(len(env.agents)):
            if not env.agents or not self._selected_ended():
                return
            env.step(None)
        if env.agents and self._selected_ended():
            raise ProtocolError(f"{env}: {env.agent_selection!r} has ended, but step(None) does not remove it")

    def _selected_ended(self) -> bool:
        agent = self._env.agent_selection
        return bool(self._env.terminations[agent] or self._env.truncations[agent])

    def _look(self, agent: Any) -> tuple[Any, Info]:
        # Copied at once: the game may change them when another agent is looked at or removed.
        shown: tuple[Any, Info] = copied(
            self._agents.split(agent, self._env.observe(agent), self._env.infos.get(agent, {}))
        )
        return shown

    def _moment(
        self,
        seen: Mapping[Any, tuple[Any, Info]],
        rewards: Mapping[Any, float],
        terminated: Mapping[Any, bool] | None = None,
        truncated: Mapping[Any, bool] | None = None,
    ) -> LaneStep:
        agents, env = self._agents.agents, self._env
        mover = env.agent_selection if env.agents else None
        return LaneStep(
            observations=[seen[agent][0] if agent in seen else None for agent in agents],
            active=[agent == mover for agent in agents],
            infos=[seen[agent][1] if agent in seen else {} for agent in agents],
            rewards=[rewards.get(agent, 0.0) for agent in agents],
            terminated=[bool(terminated and terminated.get(agent)) for agent in agents],
            truncated=[bool(truncated and truncated.get(agent)) for agent in agents],
            over=not env.agents,
        )

    def render(self) -> NDArray[np.uint8] | str | None:
        """The environment's picture or text."""
        return picture(self._env)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()
