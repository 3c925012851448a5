"""Shared by games with named agents: agents, their spaces, masks inside observations, and which have ended.

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
from envs.adapters.lane import LaneStep

_INNER = ("observation", "observations")  # the key of the observation itself in PettingZoo, and in RLlib


class AgentTable:
    """The agents of a game, which are the arena's entities, with their spaces."""

    def __init__(self, agents: Sequence[Any], observed: Sequence[Space[Any]], acted: Sequence[Space[Any]]) -> None:
        self.agents = tuple(agents)
        self.entities = tuple(str(agent) for agent in agents)
        self.index = {agent: index for index, agent in enumerate(agents)}
        self.action_spaces: tuple[Space[Any], ...] = tuple(acted)
        masked = [_masked_parts(*pair) for pair in zip(observed, acted, strict=True)]
        self._inner = [inner for inner, _ in masked]
        self.mask_sizes = tuple(size for _, size in masked)
        self.observation_spaces: tuple[Space[Any], ...] = tuple(
            space[inner] if inner is not None and isinstance(space, spaces.Dict) else space
            for space, inner in zip(observed, self._inner, strict=True)
        )

    @classmethod
    def of_pettingzoo(cls, env: Any) -> AgentTable:
        """The agents of a PettingZoo game, in the order of `possible_agents`.

        Raises:
            ConfigError: it has none.
        """
        agents = getattr(env, "possible_agents", None)
        if not agents:
            raise ConfigError(f"{env} has no possible_agents; the arena must know all entities before a game begins")
        return cls(agents, [*map(env.observation_space, agents)], [*map(env.action_space, agents)])

    def known(self, what: str, given: Any, besides: Sequence[str] = ()) -> list[Any]:
        """The agents in a mapping of the game; raises `GameError` if a key is no agent, and not in `besides`."""
        if not isinstance(given, Mapping):
            raise GameError(f"a {type(given).__name__} as {what}; expected a mapping by agent")
        unknown = next((name for name in given if name not in self.index and name not in besides), None)
        if unknown is not None:
            raise GameError(f"{what} of the unknown agent {unknown!r}; agents are {', '.join(self.entities)}")
        return [name for name in given if name not in besides]

    def complete(self, what: str, given: Any, agents: Iterable[Any]) -> None:
        """Checks that a mapping has these agents, and no unknown ones; raises `GameError`."""
        self.known(what, given)
        missing = next((agent for agent in agents if agent not in given), None)
        if missing is not None:
            raise GameError(f"{what} without the agent {missing!r}; expected one for each agent that plays")

    def split(self, agent: Any, observation: Any, info: Info) -> tuple[Any, Info]:
        """The observation without its mask, and the info with it."""
        inner = self._inner[self.index[agent]]
        if observation is None or inner is None:
            return observation, info
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
        split = [self.split(agent, observations.get(agent), infos.get(agent, {})) for agent in self.agents]
        return LaneStep(
            observations=[observation for observation, _ in split],
            active=[agent in active for agent in self.agents],
            infos=[info for _, info in split],
            rewards=[rewards.get(agent, 0.0) for agent in self.agents],
            terminated=[bool(terminated.get(agent, False)) for agent in self.agents],
            truncated=[bool(truncated.get(agent, False)) for agent in self.agents],
            over=over,
        )


class Lives:
    """Which agents have ended in an episode: each lives once."""

    def __init__(self) -> None:
        self.ended: set[Any] = set()

    def end(self, agents: Iterable[Any]) -> None:
        """Adds agents that end on this tick."""
        self.ended.update(agents)

    def check_seen(self, agents: Iterable[Any]) -> None:
        """Refuses agents that are seen again.

        Raises:
            GameError: one has ended before.
        """
        again = next((agent for agent in agents if agent in self.ended), None)
        if again is not None:
            raise GameError(f"{again!r} again, which has ended before: an entity lives once per episode")

    def check_earned(self, rewards: Mapping[Any, Any]) -> None:
        """Refuses rewards that no entity would get.

        Raises:
            GameError: an agent that has ended before earns something.
        """
        for agent in self.ended & rewards.keys():
            if rewards[agent]:
                raise GameError(
                    f"the reward {rewards[agent]!r} for {agent!r}, which has ended before: an entity lives once per "
                    "episode; give the reward on the tick on which it ends"
                )


def _masked_parts(observed: Space[Any], acted: Space[Any]) -> tuple[str | None, int]:
    """The key of the observation itself and the length of its mask; None and 0 without a mask."""
    size = mask_size(acted)
    if isinstance(observed, spaces.Dict) and size:
        inner = next((name for name in _INNER if set(observed.spaces) == {name, MASK}), None)
        if inner is not None and observed.spaces[MASK].shape == (size,):
            return inner, size
    return None, 0
