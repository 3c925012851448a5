"""Settings of the whole process that a game makes: in force while games run, and for nothing else.

Games share their process with policies. A game may set torch's default dtype, grad mode, deterministic algorithms or
default device, NumPy's error handling (`numpy.seterr`), or warning filters. So each call of a game begins with the
settings that games have left, and ends with those of the arena. Games of one process share what they have set.
"""

from __future__ import annotations

import contextvars
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

Result = TypeVar("Result")
_ERRORS_PER_THREAD = np.__version__.startswith("1.")  # from NumPy 2 on they belong to the context


class _Settings(NamedTuple):
    filters: list[Any]
    errors: Any  # of NumPy 1; else None
    torch: tuple[Any, ...] | None  # default dtype, grad mode, mode of deterministic algorithms, device


class Isolation:
    """Calls the functions of one game, in a context of `contextvars` of its own, to which NumPy's settings belong."""

    _left: _Settings | None = None  # by the games of this process; None: those of the arena
    _before = _Settings([], None, None)  # those of the arena, as last read

    def __init__(self) -> None:
        self._context = contextvars.copy_context()

    def __deepcopy__(self, memo: Any) -> Isolation:
        return Isolation()

    def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Calls a function of the game."""
        before = Isolation._before
        if not _in_force(before):  # at most ticks they are: comparing is faster than reading
            before = Isolation._before = _read()
        if Isolation._left is not None:
            _apply(Isolation._left)
        try:
            return self._context.run(function, *args)
        finally:
            if _in_force(before):
                Isolation._left = None
            else:
                after = Isolation._left = _read()
                if before.torch is None and after.torch is not None:  # the game has imported it
                    torch = sys.modules["torch"]
                    before = before._replace(torch=(torch.float32, True, 0, None))
                _apply(before)


def _in_force(settings: _Settings) -> bool:
    return (
        warnings.filters == settings.filters
        and (_torch_settings() if "torch" in sys.modules else None) == settings.torch
        and (not _ERRORS_PER_THREAD or np.geterr() == settings.errors)
    )


def _read() -> _Settings:
    return _Settings([*warnings.filters], np.geterr() if _ERRORS_PER_THREAD else None, _torch_settings())


def _torch_settings() -> tuple[Any, ...] | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_default_device"):  # not imported, or not yet to its end
        return None
    # `torch.get_default_device` takes as long as a tick.
    device = getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_deterministic_debug_mode(),  # 0: off, 1: with a warning only, 2: on
        getattr(device, "device", None),
    )


def _apply(settings: _Settings) -> None:
    now = _read()
    if now.filters != settings.filters:
        filters: Any = warnings.filters
        filters[:] = settings.filters
        with warnings.catch_warnings():  # forgets what was decided by the old filters
            pass
    if settings.errors is not None:
        np.seterr(**settings.errors)
    if settings.torch is None or settings.torch == now.torch:
        return
    torch = sys.modules["torch"]
    dtype, grad, deterministic, device = settings.torch
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    torch.use_deterministic_algorithms(deterministic > 0, warn_only=deterministic == 1)
    torch.set_default_device(device)
