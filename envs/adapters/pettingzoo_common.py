"""Shared by PettingZoo's two interfaces: agents, their spaces, and masks inside observations.

Many of its games observe `Dict(observation=..., action_mask=...)`. The adapters use the inner observation, and pass the
mask as an action mask.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from gymnasium.spaces import Space

from arena.errors import ConfigError
from arena.game.api import Info
from arena.game.spaces import mask_size
from envs.adapters.lane import MASK

INNER = "observation"


class AgentTable:
    """The agents of a PettingZoo game, which are the arena's entities, in the order of `possible_agents`."""

    def __init__(self, env: Any) -> None:
        agents = getattr(env, "possible_agents", None)
        if not agents:
            raise ConfigError(f"{env} has no possible_agents; the arena must know all entities before a game begins")
        self.agents = tuple(agents)
        self.entities = tuple(str(agent) for agent in agents)
        self.index = {agent: index for index, agent in enumerate(agents)}
        self.action_spaces: tuple[Space[Any], ...] = tuple(env.action_space(agent) for agent in agents)
        given = [env.observation_space(agent) for agent in agents]
        self.mask_sizes = tuple(_inner_mask(*pair) for pair in zip(given, self.action_spaces, strict=True))
        self.observation_spaces: tuple[Space[Any], ...] = tuple(
            space.spaces[INNER] if size else space for space, size in zip(given, self.mask_sizes, strict=True)
        )

    def split(self, agent: Any, observation: Any, info: Info) -> tuple[Any, Info]:
        """The observation without its mask, and the info with it."""
        if observation is None or not self.mask_sizes[self.index[agent]]:
            return observation, info
        return observation[INNER], {**info, MASK: observation[MASK]}


def _inner_mask(observed: Space[Any], acted: Space[Any]) -> int:
    """The length of the mask in an observation; 0 if there is none."""
    size = mask_size(acted)
    if isinstance(observed, spaces.Dict) and set(observed.spaces) == {INNER, MASK} and size:
        return size if observed.spaces[MASK].shape == (size,) else 0
    return 0
