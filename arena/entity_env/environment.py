"""`Environment`, the class to derive a game from, and the types that it returns: `ObsSpace` and `Observation`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.entity_env.actions import Action, ActionMask, ActionSpace, Flags
from arena.errors import ConfigError

Features: TypeAlias = "NDArray[Any] | Sequence[Any]"  # [n][F] numbers


@dataclass(frozen=True)
class Entity:
    """A type of entities: the names of its features, possibly none."""

    features: Sequence[str]  # their names


@dataclass(frozen=True)
class ObsSpace:
    """What an observation can hold: the names of global features, and types of entities. The order of types counts."""

    global_features: Sequence[str] = field(default_factory=list)  # their names
    entities: Mapping[str, Entity] = field(default_factory=dict)  # the types, by name


class Observation:
    """What a player sees on one tick.

    Args:
        done: the episode has ended by the game's rules, unless `truncated`.
        reward: of this tick.
        features: per type `[n][F]` numbers; an absent type has no entities.
        ids: per type `n` ids, unique over all types; a type without ids has `(type, 0), (type, 1), ...`
        entities: short for both: per type `(features, ids)`, or features alone, or None for an absent type.
        global_features: one number per global feature.
        actions: per action its actors and what is allowed; an action that is not named has no actors.
        visible: per type `n` flags; false hides an entity from the policy, not from its value function.
        metrics: numbers by name; they are in the row's `info["metrics"]`.
        end_of_episode_info: anything that the game says about an episode that has ended.
        truncated: the episode has ended from outside, such as by a time limit; no need for `done` then.

    Raises:
        ValueError: `features` or `ids` beside `entities`, or a tuple in `entities` other than `(features, ids)`.
    """

    __slots__ = (
        *("actions", "done", "end_of_episode_info", "features", "global_features"),
        *("ids", "metrics", "reward", "truncated", "visible"),
    )

    def __init__(
        self,
        *,
        done: bool,
        reward: float,
        features: Mapping[str, Features] | None = None,
        ids: Mapping[str, Sequence[Hashable]] | None = None,
        entities: Mapping[str, Any] | None = None,
        global_features: NDArray[Any] | Sequence[float] | None = None,
        actions: Mapping[str, ActionMask] | None = None,
        visible: Mapping[str, Flags] | None = None,
        metrics: Mapping[str, float] | None = None,
        end_of_episode_info: Any = None,
        truncated: bool = False,
    ) -> None:
        if entities is not None:
            if features is not None:
                raise ValueError("only one of entities and features can be given")
            if ids is not None:
                raise ValueError("ids stand in entities, as (features, ids); give them there, or use features")
            features, ids = {}, {}
            for kind, one in entities.items():
                if isinstance(one, tuple):
                    if len(one) != 2:
                        raise ValueError(f"entities of type {kind!r} are {len(one)} things; give (features, ids)")
                    features[kind], ids[kind] = one
                elif one is not None:
                    features[kind] = one
        self.done, self.truncated, self.reward = done, truncated, reward
        self.features: Mapping[str, Features] = {} if features is None else features
        self.ids: Mapping[str, Sequence[Hashable]] = {} if ids is None else ids
        self.global_features: NDArray[Any] | Sequence[float] = () if global_features is None else global_features
        self.actions: Mapping[str, ActionMask] = {} if actions is None else actions
        self.visible: Mapping[str, Flags] = {} if visible is None else visible
        self.metrics: Mapping[str, float] = {} if metrics is None else metrics
        self.end_of_episode_info = end_of_episode_info

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(rows)} {kind}" for kind, rows in self.features.items())
        return f"Observation(done={self.done}, reward={self.reward}, {counts or 'no entities'})"


@dataclass(frozen=True)
class EpisodeStats:
    """An episode that has ended."""

    length: int  # actions played
    total_reward: float  # the sum of its rewards
    truncated: bool  # it ended by a limit, not by the game's rules
    final_observation: Any  # an `Observation`


class Environment(ABC):
    """A game of the published interface, with one or several `players`, the arena's entities, all of the same spaces.

    With several, `reset` gives a list of observations, one per player, and `act` takes a list of mappings and gives
    such a list.
    """

    players: ClassVar[Sequence[str]] = ("player",)

    @abstractmethod
    def obs_space(self) -> ObsSpace:
        """The types of entities and their features."""

    @abstractmethod
    def action_space(self) -> Mapping[str, ActionSpace]:
        """The actions by name."""

    @abstractmethod
    def reset(self, *, seed: int | None = None) -> Any:
        """Begins an episode: an `Observation`; with several players, a list.

        `seed` restarts the random stream. If the signature lacks it, a method `seed(seed)` is called instead, if there
        is one.
        """

    @abstractmethod
    def act(self, actions: Any) -> Any:
        """Plays one tick.

        `actions`: `Mapping[str, Action]`, with several players a list of them: an action object per action of
        `action_space()`, even without actors; a global action that is not to be picked is absent.
        """

    def render(self) -> NDArray[np.uint8] | str | None:
        """A picture `[height, width, 3]`, a text, or None."""
        return None

    def close(self) -> None:  # noqa: B027 # a game need not have it
        """Frees resources; nothing by default."""


Actions: TypeAlias = Mapping[str, Action]


def is_entity_env(env: Any) -> bool:
    """Whether an object is an environment of the published interface: ours, or one of the package `entity-gym`."""
    return isinstance(env, Environment) or package_base(env) is not None


def package_base(env: Any) -> Any:
    """The base class of the package `entity-gym`, if the environment derives from it; by name, not imported."""
    for base in type(env).__mro__:
        if base.__name__ == "Environment" and base.__module__.partition(".")[0] == "entity_gym":
            return base
    return None


def players_of(env: Any) -> tuple[str, ...]:
    """The names of an environment's players."""
    if package_base(env) is not None:  # its games have one player each, whatever they call `players`
        return tuple(Environment.players)
    players: Any = getattr(env, "players", Environment.players)
    listed = isinstance(players, (tuple, list)) and all(isinstance(name, str) for name in players)
    if not listed or not players or len(set(players)) < len(players):
        raise ConfigError(f"{type(env).__name__}.players is {players!r:.80}; expected a tuple of distinct names")
    return tuple(players)


def draws(env: Any) -> bool:
    """Whether a game has a picture: not if it keeps the `render` of the package's base class, which only raises."""
    base = package_base(env)
    return base is None or type(env).render is not base.render
