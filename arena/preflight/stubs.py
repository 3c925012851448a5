"""Stubs to make an algorithm without a game: an environment that only has spaces, and a group of one worker.

`from_spaces` uses them to compute the actions of a policy of a run (`arena.serving.policy`), and to check before a run
that an algorithm can be created with its options for its seat (`arena.preflight.examine`). An algorithm that plays or
synchronizes in its `__init__` cannot be created like this, so a class declares that it can, by a classmethod

    from_spaces(env, group, *, ticks, **options)   an instance without parts that only playing needs (a replay buffer)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import gymnasium
from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode, VectorEnv

from arena.game.batches import batched_space
from arena.preflight.spec import spec_of

_NO_GAME = "an algorithm that is checked or served has no game to play"


class SpecVectorEnv(VectorEnv[Any, Any, Any]):
    """A vector environment that cannot be played, with the spaces of one row, and `rows` = lanes x entities."""

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        *,
        rows: int = 1,
        entities: Sequence[str] = ("alone",),
        masked: bool = False,
    ) -> None:
        self.num_envs, self.seat_entities, self.masked = rows, tuple(entities), masked
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batched_space(observation_space, rows)
        self.action_space = batched_space(action_space, rows)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def reset(self, *, seed: Any = None, options: Any = None) -> NoReturn:
        raise RuntimeError(_NO_GAME)

    def step(self, actions: Any) -> NoReturn:
        raise RuntimeError(_NO_GAME)


class SpecEnv(gymnasium.Env[Any, Any]):
    """An environment of one entity that cannot be played, with its spaces."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> NoReturn:
        raise RuntimeError(_NO_GAME)

    def step(self, action: Any) -> NoReturn:
        raise RuntimeError(_NO_GAME)


class SpecParallelEnv:
    """A parallel environment that has entities, by name, with spaces, and cannot be played."""

    def __init__(
        self, entities: Sequence[str], observation_spaces: Sequence[Space[Any]], action_spaces: Sequence[Space[Any]]
    ) -> None:
        self.possible_agents = self.agents = self.seat_entities = list(entities)
        self.observation_spaces = dict(zip(entities, observation_spaces, strict=True))
        self.action_spaces = dict(zip(entities, action_spaces, strict=True))

    def observation_space(self, agent: str) -> Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[Any]:
        return self.action_spaces[agent]


@dataclass(frozen=True)
class StubGroup:
    """The attributes of a group that an algorithm may read in `__init__`; by default a group of one worker."""

    policy: str
    sync: str
    seed: int
    shared_seed: int
    size: int = 1
    rank: int = 0
    is_root: bool = True
    team: tuple[int, ...] = (0,)
    teams: tuple[tuple[int, ...], ...] = ((0,),)
    fragments: Any = None
    comm: Any = None
    rows: int | None = None


def from_spaces(
    cls: type[Any],
    env: SpecEnv | SpecVectorEnv | SpecParallelEnv,
    group: StubGroup,
    *,
    ticks: int,
    options: Mapping[str, Any],
) -> Any:
    """An algorithm that cannot play, made by its `from_spaces` if it has one, else by its class.

    Raises:
        ConfigError: it cannot be made with these options, this seat or this group.
    """
    make: Any = cls.from_spaces if spec_of(cls).made_from_spaces else cls
    return make(env, group, ticks=ticks, **options)
