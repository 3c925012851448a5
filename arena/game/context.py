"""Optional arguments of a game: `context` of its class or function, `seed` and `options` of its `reset`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

ARGUMENTS = ("seed", "options")


class EnvContext(NamedTuple):
    """The place of a game in its run: for its own ports, data, or worlds.

    A natively batched game gets the context of its first lane. Outside of a run all numbers are 0 but `lane` and
    `lanes`.
    """

    match: int = 0  # its number in the plan
    entry: int = 0  # of the match's description, which all of its copies share
    copy: int = 0  # of the match
    lane: int = 0  # of the match
    lanes: int = 1  # of the match
    seed: int = 0  # of the lane's first reset; every leg of a run has its own
    round: int = 0  # of the league


def with_context(factory: Callable[..., Any], kwargs: Mapping[str, Any], context: EnvContext) -> dict[str, Any]:
    """The arguments of a game, with `context` if the factory has a parameter of this name that they do not give."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some built-in callables have no signature
        parameters = {}  # type: ignore[assignment]
    return {**kwargs, "context": context} if "context" in parameters and "context" not in kwargs else dict(kwargs)


def begin(env: Any, seed: int | None, options: Mapping[str, Any] | None = None) -> Any:
    """Begins an episode of a game of any interface; returns what its `reset` returns.

    `reset` gets the keywords `seed` and `options` if it takes them. If it takes no `seed`, the game's method
    `seed(seed)`, if there is one, is called first. Without a seed the game's random stream goes on.
    """
    takes, named = taken_by(env), _named(_parameters(getattr(env.reset, "__func__", env.reset)))
    if "seed" not in named and callable(getattr(env, "seed", None)):  # `**kwargs` may be for another game
        takes = named
        if seed is not None:
            env.seed(seed)
    arguments = {"seed": seed, "options": None if options is None else dict(options)}
    return env.reset(**{name: arguments[name] for name in takes})


def taken_by(env: Any) -> tuple[str, ...]:
    """Those of `ARGUMENTS` that a game's `reset` takes: all, if it takes any keywords."""
    parameters = _parameters(getattr(env.reset, "__func__", env.reset))
    return ARGUMENTS if any(one.kind is one.VAR_KEYWORD for one in parameters) else _named(parameters)


@lru_cache(maxsize=256)
def _parameters(reset: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(reset).parameters.values())
    except ValueError:  # a method of a compiled class
        return ()


def _named(parameters: tuple[inspect.Parameter, ...]) -> tuple[str, ...]:
    by_name = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return tuple(name for name in ARGUMENTS if name in by_name)
