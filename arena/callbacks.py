"""Code of a user's own that is told what happens in a run: the `callbacks` of its configuration.

    class Best(Callback):
        def on_update(self, line):
            if line["entropy"] < 0.01:
                self.stop()

They live in the process of the root, are called in the configuration's order, and are told of a line when it is on
record: it reaches its file within a second. While a callback is at work nothing is recorded and no leg ends, so work
that takes long belongs into a thread of its own. When a process has died and the run goes back to its newest boundary,
callbacks are made anew, as by `--resume`. A callback that raises ends the run.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arena.errors import CallbackFailed, ConfigError, close_name, located, nearest
from arena.plan.plan import CallbackPlan
from arena.registry import load_object, where_raised

__all__ = ["Callback", "StartedRun"]


class StartedRun(NamedTuple):
    """What a callback sees of the run.

    Args:
        folder: the run folder.
        plan: as in its `plan.json`.
        resumed: whether an earlier part of the run is on record, of which this callback has not heard: after
            `--resume`, or after a death, when the run goes back to its newest boundary.
    """

    folder: Path
    plan: Mapping[str, Any]
    resumed: bool


class Callback:
    """Base class of callbacks: is told what happens in a run, and does nothing with it.

    A class of your own overrides what it wants to hear of. Its `__init__` takes the options of the configuration and
    raises where they are wrong; `arena check` and `arena plan` make one too, so whatever it opens it opens in
    `on_start`.
    """

    _wants_end = False

    def on_start(self, run: StartedRun) -> None:
        """All roles are ready, and no match has played a tick."""

    def on_round(self, number: int) -> None:
        """A round has been played to its end; the first one is 0."""

    def on_episode(self, line: Mapping[str, Any]) -> None:
        """An episode is over: its line of `episodes.jsonl`."""

    def on_update(self, line: Mapping[str, Any]) -> None:
        """A policy has learned once more: its line of `metrics.jsonl`."""

    def on_checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """A leg has ended, all is saved and on the disk.

        Args:
            tick: of all matches.
            checkpoints: the files, by policies that have one. Later on all but the first and the last three go.
        """

    def on_end(self) -> None:
        """The run has ended in good order, at its last tick or before; not called where it fails."""

    def stop(self) -> None:
        """Ends the run early and in good order, as a signal does: all is saved, and `--resume` could go on from there.

        May be called in any of the methods. The run exits with 0.
        """
        self._wants_end = True


METHODS = tuple(name for name in vars(Callback) if name.startswith("on_"))
"""What callbacks are told by."""


def made(planned: Sequence[CallbackPlan]) -> list[Any]:
    """The callbacks of a plan: objects of these classes, which need not be derived from `Callback`.

    Raises:
        ConfigError: with the place in the configuration: there is no such class, none of its methods is ever called,
            one is misspelt or takes other arguments; or it does not take the options.
    """
    return [_made(callback, f"callbacks[{index}]") for index, callback in enumerate(planned)]


def _made(planned: CallbackPlan, path: str) -> Any:
    with located(path=path):
        cls = load_object(planned.target)
        if not isinstance(cls, type):
            raise ConfigError(f"the callback {planned.target!r} is a {type(cls).__name__}; it has to be a class")
        _check_methods(cls)
    _check_options(cls, planned.options, f"{path}.options")
    try:
        return cls(**planned.options)
    except ConfigError as error:
        raise ConfigError(f"{cls.__name__}: {error.message}", path=f"{path}.options") from error
    except (Exception, SystemExit) as error:  # whatever it is, the options have led to it
        found = f"{cls.__name__}: {type(error).__name__}: {error}{where_raised(error)}"
        raise ConfigError(found, path=f"{path}.options") from error


def _check_methods(cls: type[Any]) -> None:
    for name in dir(cls):
        if name.startswith("on_") and name not in METHODS and callable(getattr(cls, name)):
            raise ConfigError(f"{cls.__name__}.{name}() is never called; {nearest(name, METHODS)}")
    heard = [name for name in METHODS if _hears(cls, name)]
    if not heard:
        raise ConfigError(f"{cls.__name__} has no method that is ever called; known: {', '.join(METHODS)}")
    for name in heard:
        _check_arguments(cls, name)


def _check_arguments(cls: type[Any], name: str) -> None:
    arguments = list(inspect.signature(getattr(Callback, name)).parameters)[1:]  # without self
    bound = inspect.getattr_static(cls, name).__get__(object.__new__(cls), cls)
    try:
        inspect.signature(bound).bind(*arguments)
    except TypeError as error:
        raise ConfigError(f"{cls.__name__}.{name} cannot be called with ({', '.join(arguments)}): {error}") from error


def _hears(cls: type[Any], name: str) -> bool:
    """Whether a class does anything when it is told this."""
    return callable(getattr(cls, name, None)) and getattr(cls, name) is not getattr(Callback, name)


def _check_options(cls: type[Any], options: Mapping[str, Any], path: str) -> None:
    signature = inspect.signature(cls)
    try:
        signature.bind(**options)
    except TypeError as error:
        known = [item.name for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
        unknown = [name for name in options if name not in known]
        close = close_name(unknown[0], known) if unknown else None
        hint = f"; did you mean {close!r}?" if close else "."
        takes = ", ".join(known) or "none"
        raise ConfigError(f"{cls.__name__} cannot be made: {error}{hint} It takes: {takes}", path=path) from error


class Callbacks:
    """All callbacks of a run, as the root speaks to them.

    Args:
        planned: which.
        stop: ends the run early; takes the name of the callback that asked for it.

    Attributes:
        hears_episodes: whether some callback is told of episodes, so that their lines are worth to be made.
        hears_updates: likewise of updates.

    Raises:
        ConfigError: as `made`.
        CallbackFailed: from every method: one of them has raised.
    """

    def __init__(self, planned: Sequence[CallbackPlan], stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._started = self._ended = False
        listeners = [(f"callback {plan.target}", item) for plan, item in zip(planned, made(planned), strict=True)]
        self._listeners = {
            method: [(name, item) for name, item in listeners if _hears(type(item), method)] for method in METHODS
        }
        self.hears_episodes = bool(self._listeners["on_episode"])
        self.hears_updates = bool(self._listeners["on_update"])

    def start(self, folder: Path, plan: Callable[[], Mapping[str, Any]], *, resumed: bool) -> None:
        """The run begins, or goes on after an evaluation; callbacks are told the first time."""
        if not self._started and self._listeners["on_start"]:
            self._tell("on_start", StartedRun(folder, plan(), resumed))
        self._started = True

    def episode(self, line: Mapping[str, Any]) -> None:
        """An episode is on record."""
        self._tell("on_episode", line)

    def update(self, line: Mapping[str, Any]) -> None:
        """An update is on record."""
        self._tell("on_update", line)

    def checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """A boundary is on the disk."""
        self._tell("on_checkpoint", tick, checkpoints)

    def round(self, number: int) -> None:
        """A round is over."""
        self._tell("on_round", number)

    def end(self) -> None:
        """The run is over; told once, though a death may let it end again."""
        if not self._ended:
            self._ended = True
            self._tell("on_end")

    def _tell(self, method: str, *told: Any) -> None:
        for name, listener in self._listeners[method]:
            try:
                getattr(listener, method)(*told)
            except (Exception, SystemExit) as error:
                trace = "".join(traceback.format_exception(error)).rstrip()
                raise CallbackFailed(name, trace) from error
            if getattr(listener, "_wants_end", False):
                self._stop(name)
