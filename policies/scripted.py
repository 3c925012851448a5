"""A policy written by hand: a constant action, or a function from observations to actions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from arena.errors import ConfigError, located
from arena.game.spaces import as_action, flatten, row, unflatten
from arena.game.units import UnitActions
from arena.group.group import Group
from arena.registry import load_object
from arena.seat.play import Actor, play
from policies.common.options import AlgorithmOptions


class Options(AlgorithmOptions, frozen=True, kw_only=True):
    """What a configuration may say about a scripted policy: exactly one of `action` and `function`."""

    action: Any = None  # the action to play always, in the form of the space: a number, a list, a mapping
    function: str | None = None  # "package.module:name" of a function (observations, infos) -> actions
    arguments: dict[str, Any] = {}  # keyword arguments for the function

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

    Raises:
        ConfigError: the options contradict, the action is not of the space, the function cannot be found or called.
    """

    face = ("vector", "parallel")
    schedule = "ticks"  # the workers never meet
    Options = Options

    def __init__(self, env: Any, group: Group, *, ticks: int, **options: Any) -> None:
        self.env = env
        o = Options(**options)
        if o.function is None:
            self._act, self.memory_size = constant(env, o.action), 0
        else:
            self._act = _bound(o.function, o.arguments, env)

    @classmethod
    def from_spaces(cls, env: Any, group: Group, *, ticks: int, **options: Any) -> Scripted:
        """An instance that cannot play, made from an environment that has nothing but spaces."""
        return cls(env, group, ticks=ticks, **options)

    @classmethod
    def check_options(cls, options: Mapping[str, Any]) -> None:
        """Refuses, with a ConfigError, a function that cannot be found or does not take its arguments."""
        o = Options(**options)
        if o.function is not None:
            _bound(o.function, o.arguments, env=None)

    def run(self) -> None:
        """Plays until the environment raises `BudgetReached`."""
        play(self.env, self._act)

    def actor(self, *, greedy: bool = False) -> Actor:
        """The function from (observations, infos) to actions; greedy changes nothing."""
        return self._act


def constant(env: Any, action: Any) -> Actor:
    """The function of a policy that always plays this action, as written in a configuration.

    Raises:
        ConfigError: it is no action of a space of the environment.
    """

    def typed(space: Space[Any]) -> Any:
        try:
            return as_action(space, action)
        except ValueError as error:
            raise ConfigError(f"got {action!r}, which is no action of {space}", path="options.action") from error

    if hasattr(env, "num_envs"):
        space = env.single_action_space
        if isinstance(space, UnitActions):
            labels = typed(space)
            return lambda observations, infos: space.first_allowed(observations["actions"], labels)
        arrays = [np.repeat(array[None], env.num_envs, axis=0) for array in flatten(space, typed(space))]
        batched = unflatten(space, arrays)
        return lambda observations, infos: batched
    actions = {agent: typed(env.action_space(agent)) for agent in env.possible_agents}

    def one(agent: str, observation: Any) -> Any:
        space = env.action_space(agent)
        if not isinstance(space, UnitActions):
            return actions[agent]
        return row(space, space.first_allowed(space.one_row(observation["actions"]), actions[agent]), 0)

    return lambda observations, infos: {agent: one(agent, observations[agent]) for agent in env.agents}


def _bound(name: str, arguments: Mapping[str, Any], env: Any) -> Actor:
    """The function of this name with its arguments, and the environment if it asks for it, already given."""
    with located(path="options.function"):
        function = load_object(name)
        if not callable(function):
            raise ConfigError(f"{name!r} is a {type(function).__name__}, expected a function")
    signature = inspect.signature(function)
    keywords = dict(arguments, **({"env": env} if "env" in signature.parameters else {}))
    try:
        signature.bind(None, None, **keywords)
    except TypeError as error:
        raise ConfigError(f"{name}{signature} cannot be called: {error}", path="options.arguments") from error
    return functools.partial(function, **keywords)
