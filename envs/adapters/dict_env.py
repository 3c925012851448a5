"""A game with dictionaries by agent, such as RLlib's `MultiAgentEnv`, as a `LaneGame`.

    class MyGame:
        observation_spaces = {"runner": ..., "catcher": ...}       one Gymnasium space per agent
        action_spaces = {"runner": ..., "catcher": ...}
        def reset(self, *, seed=None, options=None): return {agent: obs, ...}, {agent: info, ...}
        def step(self, actions): return obs, rewards, terminateds, truncateds, infos

`reset` may give the observations alone, and take no arguments; `step` may give `obs, rewards, dones, infos`. The
agents whose observations a call gives act next, and no others: so agents may come late, leave, and take turns. The flag
of an agent ends it, the flag `"__all__"` ends all that are left; in `truncateds` missing flags are false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError, GameError
from arena.game.api import Info
from arena.game.reset import begin
from arena.game.spaces import no_op
from envs.adapters.agents import AgentTable, Lives
from envs.adapters.lane import LaneStep, picture

ALL = "__all__"  # the flag of all agents that are left
_COMMON = "__common__"  # an info of no agent
_OF_STEP = "obs, rewards, terminateds, truncateds, infos (or obs, rewards, dones, infos)"


def is_dict_env(env: Any) -> bool:
    """Whether a game has dictionaries by agent: its spaces are mappings, or it is a `MultiAgentEnv` of RLlib."""
    of_rllib = any(
        kind.__name__ == "MultiAgentEnv" and kind.__module__.partition(".")[0] == "ray" for kind in type(env).__mro__
    )
    return of_rllib or all(_is_by_agent(getattr(env, name, None)) for name in ("observation_spaces", "action_spaces"))


class DictGame:
    """Plays an environment of dictionaries; entities are its `possible_agents`, else the keys of its spaces.

    An absent agent is not active, and still gets its rewards. The last observation of an agent that ends without one is
    its newest one, or zeros if it never had one.

    Raises:
        ConfigError: no agents, or an agent without spaces.
    """

    def __init__(self, env: Any) -> None:
        self._env = env
        self._agents = _agent_table(env)
        self.entities = self._agents.entities
        self.observation_spaces = self._agents.observation_spaces
        self.action_spaces = self._agents.action_spaces
        self.mask_sizes = self._agents.mask_sizes
        self._lives = Lives()
        self._turn: Sequence[Any] = ()  # the agents that act next

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        """Begins an episode; a game gets `seed` and `options` if its `reset` takes them."""
        given = begin(self._env, seed, options)
        observations, infos = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
        self._lives = Lives()
        self._turn = self._agents.known("observations", observations)
        blank = {agent: no_op(space) for agent, space in zip(self._agents.agents, self.observation_spaces, strict=True)}
        step = self._lane_step(observations, infos, {}, {}, {})
        filled = [
            blank[agent] if seen is None else seen
            for agent, seen in zip(self._agents.agents, step.observations, strict=True)
        ]
        return step._replace(observations=filled)

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One step; the game gets the actions of the agents whose turn it is."""
        given = self._env.step({agent: actions[self._agents.index[agent]] for agent in self._turn})
        if not isinstance(given, tuple) or len(given) not in (4, 5):
            found = f"{len(given)} values" if isinstance(given, tuple) else f"one {type(given).__name__}"
            raise ConfigError(
                f"step() of {type(self._env).__name__} gave {found}; a game of dictionaries gives {_OF_STEP}"
            )
        if len(given) == 4:
            observations, rewards, terminateds, infos = given
            truncateds: Mapping[Any, bool] = {}
        else:
            observations, rewards, terminateds, truncateds, infos = given
        seen, earned = self._agents.known("observations", observations), self._agents.known("rewards", rewards)
        for what, flags in (("terminateds", terminateds), ("truncateds", truncateds)):
            self._agents.known(what, flags, besides=(ALL,))
        if ALL not in terminateds:
            raise GameError(f"no flag {ALL!r} among the ends of agents; it says whether the episode is over")
        left = [agent for agent in self._agents.agents if agent not in self._lives.ended]
        terminated = {agent: bool(terminateds.get(agent, False)) for agent in left}
        truncated = {agent: bool(truncateds.get(agent, False)) for agent in left}
        self._lives.check_seen(seen)
        self._lives.check_earned({agent: rewards[agent] for agent in earned})
        for agent in left:
            if not (terminated[agent] or truncated[agent]):
                terminated[agent] = bool(terminateds[ALL])
                truncated[agent] = bool(truncateds.get(ALL, False))
        self._lives.end(agent for agent in left if terminated[agent] or truncated[agent])
        self._turn = [agent for agent in seen if agent not in self._lives.ended]
        return self._lane_step(observations, infos, rewards, terminated, truncated)

    def _lane_step(
        self,
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Info],
        rewards: Mapping[Any, float],
        terminated: Mapping[Any, bool],
        truncated: Mapping[Any, bool],
    ) -> LaneStep:
        self._agents.known("infos", infos, besides=(_COMMON,))
        return self._agents.lane_step(set(self._turn), observations, rewards, terminated, truncated, infos)

    def render(self) -> NDArray[np.uint8] | str | None:
        """The environment's picture or text."""
        return picture(self._env)

    def close(self) -> None:
        """Closes the environment, if it has `close`."""
        if hasattr(self._env, "close"):
            self._env.close()


def _is_by_agent(given: Any) -> bool:
    return isinstance(given, Mapping)  # as `Dict` spaces are


def _agent_table(env: Any) -> AgentTable:
    """The agents of a game and their spaces.

    Older games of RLlib have their agents in `_agent_ids`, and, under Gymnasium's names, one space for all of them or a
    `Dict` with one for each.
    """
    name = type(env).__name__
    found: list[Any] = [
        getattr(env, f"{what}s", None) or getattr(env, what, None) for what in ("observation_space", "action_space")
    ]
    observed, acted = (dict(given.spaces) if isinstance(given, spaces.Dict) else given for given in found)
    agents = getattr(env, "possible_agents", None) or sorted(getattr(env, "_agent_ids", ()), key=str)
    if not agents and _is_by_agent(getattr(env, "observation_spaces", None)):
        agents = list(env.observation_spaces)
    if not agents:
        raise ConfigError(f"{name} has no agents: neither possible_agents nor observation_spaces name any")
    if len({str(agent) for agent in agents}) < len(agents):
        raise ConfigError(f"{name} has agents with equal names: {', '.join(map(repr, agents))}")

    def of_each(by_agent: Any, given: Any, what: str) -> list[Space[Any]]:
        if not _is_by_agent(by_agent) or (isinstance(given, spaces.Dict) and not set(agents) & set(by_agent)):
            by_agent = dict.fromkeys(agents, given)  # one space for all
        without = next((agent for agent in agents if not isinstance(by_agent.get(agent), Space)), None)
        if without is not None:
            raise ConfigError(f"{name}: the agent {without!r} has no {what} space in `{what}_spaces`")
        return [by_agent[agent] for agent in agents]

    return AgentTable(agents, of_each(observed, found[0], "observation"), of_each(acted, found[1], "action"))
