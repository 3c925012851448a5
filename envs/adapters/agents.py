"""What games with named agents have in common: agents, their spaces, masks inside observations, and which have ended.

Many games of PettingZoo and RLlib observe a `Dict` of the observation itself and an `action_mask`. The adapters use the
inner observation, and pass the mask as an action mask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gymnasium import spaces
from gymnasium.spaces import Space

from arena.errors import ConfigError, GameError
from arena.game.api import Info
from arena.game.infos import MASK
from arena.game.spaces import mask_size
from envs.adapters.lane import LaneGame, LaneStep, flag

_INNER = ("observation", "observations")  # the key of the observation itself in PettingZoo, and in RLlib
COMMON = "__common__"  # the key of an info of no agent, as of RLlib's dictionaries


class AgentGame(LaneGame):
    """A game whose entities are its agents; each agent lives once per episode.

    Attributes:
        agents: as the game names them.
        index: the number of each agent.
        ended: agents that have ended in this episode.
    """

    def __init__(
        self, env: Any, agents: Sequence[Any], observed: Sequence[Space[Any]], acted: Sequence[Space[Any]]
    ) -> None:
        super().__init__(env)
        self.agents, self.index = tuple(agents), {agent: index for index, agent in enumerate(agents)}
        self.ended: set[Any] = set()
        self.entities = tuple(map(str, agents))
        self.action_spaces: tuple[Space[Any], ...] = tuple(acted)
        observation_spaces: list[Space[Any]] = []
        sizes: list[int] = []
        self._inner: list[str | None] = []  # of each agent the key of the observation itself; None: it is no such Dict
        for space, size in zip(observed, map(mask_size, acted), strict=True):
            inner = None
            if isinstance(space, spaces.Dict) and size:
                inner = next((name for name in _INNER if set(space.spaces) == {name, MASK}), None)
                if inner is not None and space.spaces[MASK].shape != (size,):
                    inner = None
            self._inner.append(inner)
            sizes.append(0 if inner is None else size)
            observation_spaces.append(space[inner] if inner is not None and isinstance(space, spaces.Dict) else space)
        self.mask_sizes, self.observation_spaces = tuple(sizes), tuple(observation_spaces)

    def known(self, what: str, mapping: Any, besides: Sequence[str] = ()) -> list[Any]:
        """The agents in a mapping of the game; raises `GameError` if a key is no agent, and not in `besides`."""
        if not isinstance(mapping, Mapping):
            raise GameError(f"a {type(mapping).__name__} as {what}; expected a mapping by agent")
        unknown = next((name for name in mapping if name not in self.index and name not in besides), None)
        if unknown is not None:
            raise GameError(f"{what} of the unknown agent {unknown!r}; agents are {', '.join(self.entities)}")
        return [name for name in mapping if name not in besides]

    def complete(self, what: str, mapping: Any, agents: Iterable[Any]) -> None:
        """Checks that a mapping has these agents, and no unknown ones; raises `GameError`."""
        self.known(what, mapping)
        missing = next((agent for agent in agents if agent not in mapping), None)
        if missing is not None:
            raise GameError(f"{what} without the agent {missing!r}; expected one for each agent that plays")

    def check_ended(self, present: Iterable[Any], rewards: Mapping[Any, Any]) -> None:
        """Checks that agents that have ended are not seen again, and get no rewards; raises `GameError`."""
        for agent in self.ended & rewards.keys():
            if rewards[agent]:
                raise GameError(
                    f"the reward {rewards[agent]!r} for {agent!r}, which has ended before: an entity lives once per "
                    "episode; give the reward on the tick on which it ends"
                )
        again = next((agent for agent in present if agent in self.ended), None)
        if again is not None:
            raise GameError(f"{again!r} again, which has ended before: an entity lives once per episode")

    def split(self, agent: Any, observation: Any, info: Info) -> tuple[Any, Info]:
        """The observation without its mask, and the info with it."""
        inner = self._inner[self.index[agent]]
        if observation is None or inner is None or not isinstance(info, Mapping):
            return observation, info
        lacks = [key for key in (inner, MASK) if not isinstance(observation, Mapping) or key not in observation]
        if lacks:
            raise GameError(f"an observation of {agent!r} without {' and '.join(map(repr, lacks))}, as its space has")
        return observation[inner], {**info, MASK: observation[MASK]}

    def lane_step(
        self,
        active: Collection[Any],
        observations: Mapping[Any, Any],
        rewards: Mapping[Any, float],
        terminated: Mapping[Any, bool],
        truncated: Mapping[Any, bool],
        infos: Mapping[Any, Info],
        *,
        over: bool = False,
    ) -> LaneStep:
        """The contents of mappings by agent, in the order of the agents; the agents in `active` act next."""
        self.known("infos", infos, besides=(COMMON,))
        split = [self.split(agent, observations.get(agent), infos.get(agent, {})) for agent in self.agents]
        return LaneStep(
            observations=[observation for observation, _ in split],
            active=[agent in active for agent in self.agents],
            infos=[info for _, info in split],
            rewards=[rewards.get(agent, 0.0) for agent in self.agents],
            terminated=[flag(terminated.get(agent, False)) for agent in self.agents],
            truncated=[flag(truncated.get(agent, False)) for agent in self.agents],
            over=over,
        )


class PettingZooGame(AgentGame):
    """A game of PettingZoo, whose agents are its `possible_agents`; `ended` are those that have left `agents`."""

    def __init__(self, env: Any) -> None:
        agents = getattr(env, "possible_agents", None)
        if not agents:
            raise ConfigError(f"{env} has no possible_agents; the arena must know all entities before a game begins")
        super().__init__(env, agents, [*map(env.observation_space, agents)], [*map(env.action_space, agents)])

    def present(self) -> list[Any]:
        """The agents that play; raises `ConfigError` if the game does not say."""
        if (agents := getattr(self._env, "agents", None)) is None:
            name = type(self._env.unwrapped).__name__
            raise ConfigError(f"{name} has no `agents` after reset(); expected the list of the agents that play")
        return self.known("`agents`", dict.fromkeys(agents))
