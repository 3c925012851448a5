"""Calls `reset` of a game with those of `seed` and `options` that its signature takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

ARGUMENTS = ("seed", "options")


def begin(env: Any, seed: int | None, options: Mapping[str, Any] | None = None) -> Any:
    """Begins an episode of a game of any interface; returns what its `reset` returns.

    `reset` gets the keywords `seed` and `options` if it takes them. If it takes no `seed`, the game's method
    `seed(seed)`, if there is one, is called first. Without a seed the game's random stream goes on.
    """
    takes, named = taken_by(env), _named(_function(env))
    if "seed" not in named and callable(getattr(env, "seed", None)):  # `**kwargs` may be for another game
        takes = named
        if seed is not None:
            env.seed(seed)
    given = {"seed": seed, "options": None if options is None else dict(options)}
    return env.reset(**{name: given[name] for name in takes})


def taken_by(env: Any) -> tuple[str, ...]:
    """Those of `ARGUMENTS` that a game's `reset` takes: all, if it takes any keywords."""
    parameters = _parameters(_function(env))
    return ARGUMENTS if any(one.kind is one.VAR_KEYWORD for one in parameters) else _named(_function(env))


def _function(env: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(env.reset, "__func__", env.reset)
    return found


@lru_cache(maxsize=256)
def _parameters(reset: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    try:
        return tuple(inspect.signature(reset).parameters.values())
    except ValueError:  # a method of a compiled class
        return ()


def _named(reset: Callable[..., Any]) -> tuple[str, ...]:
    parameters = _parameters(reset)
    by_name = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return tuple(name for name in ARGUMENTS if name in by_name)
