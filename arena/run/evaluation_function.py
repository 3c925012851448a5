"""The user's function that is called with each evaluation, `evaluation.function`; its numbers are in the results."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from arena.config.schema import EvaluationConfig
from arena.errors import CallbackFailed, ConfigError, located
from arena.records import checksums
from arena.records.atomic import make_folder
from arena.registry import load_object
from arena.run.run import Run

_ARGUMENTS = ("folder", "tick", "checkpoints")


def function_of(evaluation: EvaluationConfig) -> Callable[..., Any] | None:
    """The function; None if there is none.

    Raises:
        ConfigError: it cannot be loaded, or does not take its arguments; with the place in the configuration.
    """
    if evaluation.function is None:
        return None
    with located(path="evaluation.function"):
        found = load_object(evaluation.function)
        if not callable(found):
            raise ConfigError(f"{evaluation.function!r} is a {type(found).__name__}; it has to be a function")
    with located(path="evaluation.options"):
        try:
            inspect.signature(found).bind(*_ARGUMENTS, **evaluation.options)
        except TypeError as error:
            takes = ", ".join(_ARGUMENTS)
            raise ConfigError(f"{evaluation.function} is called with ({takes}, **options): {error}") from error
    function: Callable[..., Any] = found
    return function


def call_function(run: Run, evaluation: EvaluationConfig) -> None:
    """Calls the function at a boundary, if there is one, and records what it has measured.

    Raises:
        CallbackFailed: it has raised, or returned something else than numbers by name.
    """
    function = function_of(evaluation)
    if function is None:
        return
    tick, name = run.leg.start, f"evaluation function {evaluation.function}"
    folder = run.folder.evaluation_path(tick)
    make_folder(folder.parent)
    make_folder(folder)
    try:
        found = function(folder, tick, dict(run.leg.restore), **evaluation.options)
        measured = _numbers(found)
    except (Exception, SystemExit) as error:
        raise CallbackFailed(name, "".join(traceback.format_exception(error)).rstrip()) from error
    checksums.replace(run.folder.custom_path(tick), msgspec.json.format(msgspec.json.encode(measured)) + b"\n")


def _numbers(found: Any) -> dict[str, Any]:
    """Numbers by name, nested to any depth."""
    if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"it has returned {found!r:.80}; expected a mapping of names to numbers")
    return {
        name: _numbers(value) if isinstance(value, Mapping) else _number(name, value) for name, value in found.items()
    }


def _number(name: str, value: Any) -> float:
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, (int, float)):
        raise TypeError(f"{name!r} is {value!r:.80}; expected a number, or a mapping of names to numbers")
    return value
