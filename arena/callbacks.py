"""Callbacks: a user's classes whose methods the run calls, from `callbacks` of the configuration.

    class Best(Callback):
        def on_update(self, line):
            if line["entropy"] < 0.01:
                self.stop()

They run in the root's process, in the configuration's order. A line is passed to them when it is recorded: it reaches
its file within a second. While a callback runs, nothing is recorded and no leg ends, so long work belongs in a thread.
When a process has died and the run goes back to its newest boundary, callbacks are created again, as by `--resume`. A
callback that raises ends the run.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.errors import CallbackFailed, ConfigError, close_name, located, nearest
from arena.plan.plan import CallbackPlan
from arena.registry import load_object, where_raised

if TYPE_CHECKING:
    from arena.league.view import LeagueView

__all__ = ["Callback", "StartedRun"]


class StartedRun(NamedTuple):
    """What a callback sees of the run.

    Args:
        folder: the run folder.
        plan: as in its `plan.json`.
        resumed: whether an earlier part of the run is recorded, which this callback object has not seen: after
            `--resume`, or after the death of a process, when the run goes back to its newest boundary.
    """

    folder: Path
    plan: Mapping[str, Any]
    resumed: bool


class Callback:
    """Base class of callbacks; its methods do nothing.

    A class of your own overrides the methods that it needs. Its `__init__` takes the options of the configuration and
    raises if they are wrong; `arena check` and `arena plan` create it too, so it should open files in `on_start`.
    """

    _wants_end = False

    def on_start(self, run: StartedRun) -> None:
        """Called when all roles are ready, before the first tick."""

    def on_round(self, number: int) -> None:
        """Called after each round; the first one is 0."""

    def on_next_round(self, league: LeagueView) -> Sequence[Mapping[str, Any]] | None:
        """Called before each round but the first; may return the matches of that round.

        They are checked as those of the configuration, and recorded before they are played. After `--resume` or the
        death of a process a round that is on record is played as it is recorded.

        Args:
            league: what is known: results, ratings, snapshots, and `planned`, the matches that the configuration makes.

        Returns:
            entries of `matches`, as in a configuration; snapshots may be named. None: the round is as planned.
        """

    def on_episode(self, line: Mapping[str, Any]) -> None:
        """Called after each episode, with its line of `episodes.jsonl`."""

    def on_update(self, line: Mapping[str, Any]) -> None:
        """Called after each update of a policy, with its line of `metrics.jsonl`."""

    def on_checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """Called after each leg, when its checkpoints are on the disk.

        Args:
            tick: of all matches.
            checkpoints: the files, by policy. All but the first and the last three are deleted later.
        """

    def on_end(self) -> None:
        """Called when the run has ended without a failure, at its last tick or before."""

    def stop(self) -> None:
        """Ends the run early, as a signal does: everything is saved, and `--resume` can continue it.

        May be called in any of the methods. The run exits with 0.
        """
        self._wants_end = True


METHODS = tuple(name for name in vars(Callback) if name.startswith("on_"))
"""The names of the methods that a run calls."""


def made(planned: Sequence[CallbackPlan]) -> list[Any]:
    """The callbacks of a plan: objects of these classes, which need not be derived from `Callback`.

    Raises:
        ConfigError: with the place in the configuration: there is no such class, it has no method that is called, a
            method is misspelt or takes other arguments, or the class does not take the options.
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
    except (Exception, SystemExit) as error:  # any error of the class: the options have caused it
        found = f"{cls.__name__}: {type(error).__name__}: {error}{where_raised(error)}"
        raise ConfigError(found, path=f"{path}.options") from error


def _check_methods(cls: type[Any]) -> None:
    for name in dir(cls):
        if name.startswith("on_") and name not in METHODS and callable(getattr(cls, name)):
            raise ConfigError(f"{cls.__name__}.{name}() is never called; {nearest(name, METHODS)}")
    overridden = [name for name in METHODS if _overrides(cls, name)]
    if not overridden:
        raise ConfigError(f"{cls.__name__} has no method that is ever called; known: {', '.join(METHODS)}")
    for name in overridden:
        _check_arguments(cls, name)


def _check_arguments(cls: type[Any], name: str) -> None:
    arguments = list(inspect.signature(getattr(Callback, name)).parameters)[1:]  # without self
    bound = inspect.getattr_static(cls, name).__get__(object.__new__(cls), cls)
    try:
        inspect.signature(bound).bind(*arguments)
    except TypeError as error:
        raise ConfigError(f"{cls.__name__}.{name} cannot be called with ({', '.join(arguments)}): {error}") from error


def _overrides(cls: type[Any], name: str) -> bool:
    """Whether a class defines a method of this name, other than the base class's."""
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
    """All callbacks of a run, called by the root.

    Args:
        planned: the callbacks of the plan.
        stop: ends the run early; takes the name of the callback that asked for it.

    Attributes:
        needs_episodes: whether a callback has `on_episode`; if not, lines of episodes need not be built for it.
        needs_updates: likewise `on_update`.

    Raises:
        ConfigError: as `made`.
        CallbackFailed: from every method, if a callback raises.
    """

    def __init__(self, planned: Sequence[CallbackPlan], stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._started = self._ended = False
        listeners = [(f"callback {plan.target}", item) for plan, item in zip(planned, made(planned), strict=True)]
        self._listeners = {
            method: [(name, item) for name, item in listeners if _overrides(type(item), method)] for method in METHODS
        }
        self.needs_episodes = bool(self._listeners["on_episode"])
        self.needs_updates = bool(self._listeners["on_update"])

    def start(self, folder: Path, plan: Callable[[], Mapping[str, Any]], *, resumed: bool) -> None:
        """Calls `on_start`, the first time only: a run also starts again after each evaluation."""
        if not self._started and self._listeners["on_start"]:
            self._call("on_start", StartedRun(folder, plan(), resumed))
        self._started = True

    def episode(self, line: Mapping[str, Any]) -> None:
        """Calls `on_episode`: an episode is recorded."""
        self._call("on_episode", line)

    def update(self, line: Mapping[str, Any]) -> None:
        """Calls `on_update`: an update is recorded."""
        self._call("on_update", line)

    def checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """Calls `on_checkpoint`: a boundary is on the disk."""
        self._call("on_checkpoint", tick, checkpoints)

    def round(self, number: int) -> None:
        """Calls `on_round`: a round is over."""
        self._call("on_round", number)

    def next_round(self, league: LeagueView) -> tuple[str, Any] | None:
        """Calls `on_next_round`: the first callback that proposes matches, and these; None if none does."""
        found = None
        for name, listener in self._listeners["on_next_round"]:
            proposed = self._call_one(name, listener, "on_next_round", league)
            found = found or (None if proposed is None else (name, proposed))
        return found

    def end(self) -> None:
        """Calls `on_end`, once: after the death of a process a run may end a second time."""
        if not self._ended:
            self._ended = True
            self._call("on_end")

    def _call(self, method: str, *arguments: Any) -> None:
        for name, listener in self._listeners[method]:
            self._call_one(name, listener, method, *arguments)

    def _call_one(self, name: str, listener: Any, method: str, *arguments: Any) -> Any:
        try:
            found = getattr(listener, method)(*arguments)
        except (Exception, SystemExit) as error:
            trace = "".join(traceback.format_exception(error)).rstrip()
            raise CallbackFailed(name, trace) from error
        if getattr(listener, "_wants_end", False):
            self._stop(name)
        return found
