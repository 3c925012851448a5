"""A policy that somebody has written: a constant action, or a function from observations to actions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

from arena.errors import ConfigError
from arena.registry import load_object
from arena.spaces import flatten, unflatten
from policies.random_actions import Actor, play

if TYPE_CHECKING:
    from arena.group import Group


@dataclass(frozen=True)
class Options:
    """What a configuration may say about a scripted policy: exactly one of `action` and `function`.

    Raises:
        ConfigError: none or both are given, or arguments without a function.
    """

    action: Any = None  # the action to play always, in the form of the space: a number, a list, a mapping
    function: str | None = None  # "package.module:name" of a function (observations, infos) -> actions
    arguments: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments for the function

    def __post_init__(self) -> None:
        if (self.action is None) == (self.function is None):
            found = "neither" if self.action is None else "both"
            raise ConfigError(f"expected either `action` or `function`, got {found}", path="options")
        if self.arguments and self.function is None:
            raise ConfigError("`arguments` are for a `function`, and there is none", path="options.arguments")


class Scripted:
    """One worker of a scripted policy. It learns nothing and has nothing to save.

    In the vector face a function gets batched observations [B, ...] and the environment's infos, and returns batched
    actions [B, ...]; in the parallel face all three are dicts by entity. If it has a parameter named `env` it also
    gets the environment proxy, whose `seat_entities` names the entities that the rows stand for (row = lane * E + e).

    Args:
        env: a vector environment or a PettingZoo parallel environment.
        group: not used.
        ticks: not used; the environment says when it ends.
        options: the fields of `Options`.

    Raises:
        ConfigError: the options contradict, the action is not of the space, the function cannot be found or called.
    """

    face = ("vector", "parallel")
    Options = Options

    def __init__(self, env: Any, group: Group, *, ticks: int, **options: Any) -> None:
        self.env = env
        given = Options(**options)
        if given.function is None:
            self._act = _constant(env, given.action)
        else:
            self._act = _bound(_load(given.function), given.function, given.arguments, env)

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        play(self.env, self._act)

    def actor(self, *, greedy: bool = False) -> Actor:
        """The function from (observations, infos) to actions; greedy changes nothing."""
        return self._act


def _constant(env: Any, action: Any) -> Actor:
    if hasattr(env, "num_envs"):
        batched = _repeated(env.single_action_space, _as_action(env.single_action_space, action), env.num_envs)
        return lambda observations, infos: batched
    actions = {agent: _as_action(env.action_space(agent), action) for agent in env.possible_agents}
    return lambda observations, infos: {agent: actions[agent] for agent in env.agents}


def _as_action(space: Space[Any], value: Any) -> Any:
    """An action as written in a configuration, in the types of the space."""
    try:
        action = _converted(space, value)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise ConfigError(f"got {value!r}, which is no action of {space}", path="options.action") from error
    if not space.contains(action):
        raise ConfigError(f"got {value!r}, which is no action of {space}", path="options.action")
    return action


def _converted(space: Space[Any], value: Any) -> Any:
    if isinstance(space, spaces.Dict):
        if set(value) != set(space.spaces):
            raise KeyError(value)
        return {key: _converted(part, value[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_converted(part, item) for part, item in zip(space.spaces, value, strict=True))
    given = np.asarray(value)
    converted = given.astype(space.dtype)
    if np.issubdtype(converted.dtype, np.integer) and not np.array_equal(converted, given):
        raise ValueError(value)  # 1.5 is no choice
    return space.dtype.type(value) if isinstance(space, spaces.Discrete) else converted


def _repeated(space: Space[Any], action: Any, rows: int) -> Any:
    """A batch [rows, ...] of one action."""
    arrays = [np.repeat(array[None], rows, axis=0) for array in flatten(space, action)]
    return unflatten(space, arrays)


def _load(name: str) -> Callable[..., Any]:
    try:
        function = load_object(name)
    except ConfigError as error:
        raise ConfigError(error.message, path="options.function") from error
    if not callable(function):
        raise ConfigError(f"{name!r} is a {type(function).__name__}, expected a function", path="options.function")
    return function  # type: ignore[no-any-return]


def _bound(function: Callable[..., Any], name: str, arguments: Mapping[str, Any], env: Any) -> Actor:
    """The function with its arguments, and the environment if it asks for it, already given."""
    signature = inspect.signature(function)
    given = dict(arguments, **({"env": env} if "env" in signature.parameters else {}))
    try:
        signature.bind(None, None, **given)
    except TypeError as error:
        raise ConfigError(f"{name}{signature} cannot be called: {error}", path="options.arguments") from error
    return functools.partial(function, **given)
