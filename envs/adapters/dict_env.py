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

from gymnasium import spaces
from gymnasium.spaces import Space

from arena.errors import ConfigError, GameError
from arena.game.context import begin
from arena.game.spaces import no_op
from envs.adapters.agents import AgentGame
from envs.adapters.lane import LaneStep, flag

ALL = "__all__"  # the flag of all agents that are left
_OF_STEP = "obs, rewards, terminateds, truncateds, infos (or obs, rewards, dones, infos)"


def is_dict_env(env: Any) -> bool:
    """Whether a game has dictionaries by agent: its spaces are mappings, or it is a `MultiAgentEnv` of RLlib."""
    of_rllib = any(
        kind.__name__ == "MultiAgentEnv" and kind.__module__.partition(".")[0] == "ray" for kind in type(env).__mro__
    )
    by_agent = (getattr(env, name, None) for name in ("observation_spaces", "action_spaces"))
    return of_rllib or all(isinstance(one, Mapping) for one in by_agent)  # as `Dict` spaces are


class DictGame(AgentGame):
    """Plays an environment of dictionaries; entities are its `possible_agents`, else the keys of its spaces.

    An absent agent is not active, and still gets its rewards. The last observation of an agent that ends without one is
    its newest one, or zeros if it never had one. Older games of RLlib have their agents in `_agent_ids`, and, under
    Gymnasium's names, one space for all of them or a `Dict` with one for each.

    Raises:
        ConfigError: no agents, or an agent without spaces.
    """

    def __init__(self, env: Any) -> None:
        name = type(env).__name__
        agents = getattr(env, "possible_agents", None) or sorted(getattr(env, "_agent_ids", ()), key=str)
        if not agents and isinstance(listed := getattr(env, "observation_spaces", None), Mapping):
            agents = list(listed)
        if not agents:
            raise ConfigError(f"{name} has no agents: neither possible_agents nor observation_spaces name any")
        if len({str(agent) for agent in agents}) < len(agents):
            raise ConfigError(f"{name} has agents with equal names: {', '.join(map(repr, agents))}")
        found: list[list[Space[Any]]] = []
        for what in ("observation", "action"):
            declared = getattr(env, f"{what}_spaces", None) or getattr(env, f"{what}_space", None)
            by_agent: Any = dict(declared.spaces) if isinstance(declared, spaces.Dict) else declared
            of_all = isinstance(declared, spaces.Dict) and not set(agents) & set(by_agent)
            if of_all or not isinstance(by_agent, Mapping):
                by_agent = dict.fromkeys(agents, declared)
            without = next((agent for agent in agents if not isinstance(by_agent.get(agent), Space)), None)
            if without is not None:
                raise ConfigError(f"{name}: the agent {without!r} has no {what} space in `{what}_spaces`")
            found.append([by_agent[agent] for agent in agents])
        super().__init__(env, agents, *found)
        self._turn: Sequence[Any] = ()  # the agents that act next

    def reset(self, seed: int | None, options: Mapping[str, Any] | None) -> LaneStep:
        """Begins an episode; a game gets `seed` and `options` if its `reset` takes them."""
        result = begin(self._env, seed, options)
        observations, infos = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
        self.ended = set()
        self._turn = self.known("observations", observations)
        step = self.lane_step(set(self._turn), observations, {}, {}, {}, infos)
        pairs = zip(step.observations, self.observation_spaces, strict=True)
        return step._replace(observations=[no_op(space) if one is None else one for one, space in pairs])

    def step(self, actions: Sequence[Any]) -> LaneStep:
        """One step; the game gets the actions of the agents whose turn it is."""
        result = self._env.step({agent: actions[self.index[agent]] for agent in self._turn})
        if not isinstance(result, tuple) or len(result) not in (4, 5):
            found = f"{len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
            raise ConfigError(
                f"step() of {type(self._env).__name__} gave {found}; a game of dictionaries gives {_OF_STEP}"
            )
        observations, rewards, terminateds, *flags, infos = result
        truncateds: Mapping[Any, bool] = flags[0] if flags else {}
        present = self.known("observations", observations)
        self.known("rewards", rewards)
        self.known("terminateds", terminateds, besides=(ALL,))
        self.known("truncateds", truncateds, besides=(ALL,))
        if ALL not in terminateds:
            raise GameError(f"no flag {ALL!r} among the ends of agents; it says whether the episode is over")
        self.check_ended(present, rewards)
        terminated, truncated = {}, {}
        for agent in self.agents:
            if agent not in self.ended:
                ends = [flag(ends.get(agent, False)) for ends in (terminateds, truncateds)]
                if not any(ends):
                    ends = [flag(ends.get(ALL, False)) for ends in (terminateds, truncateds)]
                terminated[agent], truncated[agent] = ends
        self.ended.update(agent for agent in terminated if terminated[agent] or truncated[agent])
        self._turn = [agent for agent in present if agent not in self.ended]
        return self.lane_step(set(self._turn), observations, rewards, terminated, truncated, infos)
