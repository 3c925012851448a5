"""Which copy of a game an object is: the argument `context` of a game's class or function, if it has one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class EnvContext(NamedTuple):
    """The place of a game in its run: for its own ports, data, or worlds.

    A natively batched game gets the context of its first lane. Outside of a run all numbers are 0 but `lane` and
    `lanes`.
    """

    match: int = 0
    entry: int = 0  # of the match's description, which all of its copies share
    copy: int = 0
    lane: int = 0
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
