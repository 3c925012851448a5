"""Whether something can be called with the arguments that a configuration gives it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arena.errors import ConfigError, nearest

_GIVEN = {"lanes", "env"}  # by the arena itself


def check_call(
    function: Callable[..., Any],
    kwargs: Mapping[str, Any],
    args: Sequence[Any] = (),
    *,
    path: str = "",
    name: str | None = None,
) -> None:
    """Tells a wrong argument from a TypeError inside of what is called.

    Args:
        function: what is to be called.
        kwargs: arguments by name.
        args: arguments by place.
        path: of the arguments in the configuration.
        name: of the function in the configuration; None: its own.

    Raises:
        ConfigError: the signature does not fit.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in callables have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        who = getattr(function, "__name__", repr(function)) if name is None else name
        known = {key for key, value in signature.parameters.items() if value.kind is not value.VAR_KEYWORD}
        wrong = next((key for key in kwargs if key not in known), "")
        raise ConfigError(f"{who}: {error}; {nearest(wrong, known - _GIVEN)}", path=path) from error
