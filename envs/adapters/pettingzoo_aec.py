"""A PettingZoo `AECEnv` as a `LaneGame`: its agents act in turn, one per tick.

A tick is the step of the agent that is to move, followed by the steps with None by which PettingZoo removes ended
agents. `AECEnv.rewards` holds the rewards of the last step; a tick's rewards are those of its one real step, so they
add up to PettingZoo's cumulative rewards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arena.errors import ConfigError, ProtocolError
from arena.game.arrays import copied
from envs.adapters.agents import PettingZooGame
from envs.adapters.lane import LaneStep, check_reset, flag


class AECGame(PettingZooGame):
    """Plays an AEC environment; only the agent that is to move is active.

    Observations are refreshed for the agent to move and for agents that ended at this tick; at a reset, for all.
    """

    def __init__(self, env: Any) -> None:
        check_reset(env)
        self.in_turns = True
        super().__init__(env)

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        self._env.reset(seed=seed, options=None if options is None else dict(options))
        self.ended = set()
        self._check_mappings()
        return self._lane_step(self._look(self._env.agents), {}, {}, {})

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One turn of the agent that is to move."""
        env = self._env
        env.step(actions[self.index[env.agent_selection]])
        self._check_mappings()
        rewards = copied(env.rewards)
        terminated = {agent: flag(env.terminations[agent]) for agent in env.agents}
        truncated = {agent: flag(env.truncations[agent]) for agent in env.agents}
        looked = self._look(agent for agent in env.agents if terminated[agent] or truncated[agent])
        for left in range(len(env.agents), -1, -1):  # each ended agent leaves `agents` by one step with None
            if not env.agents or not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                break
            if not left:
                raise ProtocolError(f"{env}: {env.agent_selection!r} has ended, but step(None) does not remove it")
            env.step(None)
        self.check_ended(env.agents, rewards)
        self.ended.update(agent for agent in terminated if agent not in env.agents)
        if env.agents:
            looked |= self._look([env.agent_selection])
        return self._lane_step(looked, rewards, terminated, truncated)

    def _check_mappings(self) -> None:
        """Checks that the game's mappings have its agents, after a reset or the step of the agent that was to move."""
        env = self._env
        present = self.present()
        for what in ("rewards", "terminations", "truncations", "infos"):
            values = getattr(env, what, None)
            if values is None:
                raise ConfigError(
                    f"{type(env.unwrapped).__name__} has no {what}; expected rewards, terminations, truncations and "
                    "infos by agent (older games have `dones`: set terminations where the rules end an agent, and "
                    "truncations where a time limit does)"
                )
            self.complete(what, values, present if values or what != "infos" else ())
        if present:
            self.known("an `agent_selection`", {env.agent_selection: None})

    def _look(self, agents: Iterable[Any]) -> dict[Any, Any]:
        """Observations and infos, copied at once: the game may change them when another agent is looked at."""
        env = self._env
        return {agent: copied((env.observe(agent), env.infos.get(agent, {}))) for agent in agents}

    def _lane_step(
        self,
        looked: Mapping[Any, Any],
        rewards: Mapping[Any, float],
        terminated: Mapping[Any, bool],
        truncated: Mapping[Any, bool],
    ) -> LaneStep:
        env = self._env
        observations, infos = ({agent: one[part] for agent, one in looked.items()} for part in (0, 1))
        active = [env.agent_selection] if env.agents else []
        return self.lane_step(active, observations, rewards, terminated, truncated, infos, over=not env.agents)
