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
import logging
import math
import numbers
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.config.fields import ClassTarget
from arena.config.schema import CallbackEntry
from arena.errors import CallbackFailed, ConfigError, located, nearest
from arena.registry import callback_target, check_method, load_class, logger_target, made_object, where_raised

if TYPE_CHECKING:
    from arena.league.view import LeagueView
    from arena.records.formats import MeasureLine

__all__ = ["Callback", "StartedRun"]

_log = logging.getLogger(__name__)
_EPISODE = ("tick", "match", "lane", "episode")
Place = Callable[[], Mapping[str, int]]
"""The fields of a line of `measures.jsonl` that name the episode or the tick of the measured values."""


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
    _measured: tuple[dict[str, float], ...] = ()

    def on_start(self, run: StartedRun) -> None:
        """Called when all roles are ready, before the first tick of the `run`."""

    def on_round(self, number: int) -> None:
        """Called after each round, with its `number`; the first one is 0."""

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

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Called after each result, with its line of `result.json`, in which NaN stands for null.

        `on_episode` and `on_update` were called before for all episodes and updates that it covers.
        """

    def on_evaluation(self, tick: int, lines: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """Called after each evaluation during the run.

        Args:
            tick: of all matches.
            lines: of `evaluations.jsonl`, one per policy.
            folder: the run folder of its games.
        """

    def on_checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """Called after each leg, when its checkpoints are on the disk.

        Args:
            tick: of all matches.
            checkpoints: the files, by policy. All but the first and the last three are deleted later.
        """

    def on_end(self) -> None:
        """Called when the run has ended without a failure, at its last tick or before."""

    def measure(self, **values: float) -> None:
        """Measures numbers for `custom_metrics` of the results; those that are not finite are left out.

        Within `on_episode` they belong to that episode, and are averaged like its reward; within `on_update`,
        `on_checkpoint` and `on_round` to the iteration, whose values alone are averaged.

        Raises:
            ValueError: a name is not made of letters, digits and `_`, the first a letter.
            TypeError: a value is no number.
        """
        from arena.game.infos import NAME_RULE, is_metric_name  # imports NumPy, which a launcher's parent has not

        for name, value in values.items():
            if not is_metric_name(name):
                raise ValueError(f"a metric cannot be named {name!r}: {NAME_RULE}")
            if not isinstance(value, numbers.Real):
                raise TypeError(f"the metric {name!r} is a {type(value).__name__}; it has to be a number")
        found = {name: float(value) for name, value in values.items()}
        self._measured = (*self._measured, {name: value for name, value in found.items() if math.isfinite(value)})

    def stop(self) -> None:
        """Ends the run early, as a signal does: everything is saved, and `--resume` can continue it.

        May be called in any of the methods. The run exits with 0. It ends at the boundary if that method belongs to
        one (`on_checkpoint`, `on_evaluation`, `on_result` at the end of a leg); else within a second or so, at a tick
        that differs from run to run.
        """
        self._wants_end = True


METHODS = tuple(name for name in vars(Callback) if name.startswith("on_"))
"""The names of the methods that a run calls."""


Entries = Sequence[ClassTarget | CallbackEntry]


def made(entries: Entries, key: str = "callbacks") -> list[Any]:
    """The callbacks of a configuration: objects of these classes, which need not be derived from `Callback`.

    Likewise the loggers, with `key="loggers"`: objects of built-in classes, or of a user's with the same methods.

    Raises:
        ConfigError: with the place in the configuration: there is no such class, it has no method that is called, a
            method is misspelt or takes other arguments, or the class does not take the options.
    """
    found = []
    for index, entry in enumerate(map(CallbackEntry.of, entries)):
        path = f"{key}[{index}]"
        with located(path=path):
            cls = load_class((logger_target if key == "loggers" else callback_target)(entry.class_))
            _check_methods(cls)
        found.append(made_object(cls, entry.options, path=path))
    return found


def check_object(item: Any) -> None:
    """Refuses an object that cannot be a callback, with ConfigError."""
    if isinstance(item, type):
        raise ConfigError(f"found the class {item.__name__}; pass an object, {item.__name__}()", path="callbacks")
    _check_methods(type(item))


def _check_methods(cls: type[Any]) -> None:
    for name in dir(cls):
        if name.startswith("on_") and name not in METHODS and callable(getattr(cls, name)):
            raise ConfigError(f"{cls.__name__}.{name}() is never called; {nearest(name, METHODS)}")
    overridden = [name for name in METHODS if _overrides(cls, name)]
    if not overridden:
        raise ConfigError(f"{cls.__name__} has no method that is ever called; known: {', '.join(METHODS)}")
    for name in overridden:
        check_method(cls, name, [*inspect.signature(getattr(Callback, name)).parameters][1:])


def _overrides(cls: type[Any], name: str) -> bool:
    """Whether a class defines a method of this name, other than the base class's."""
    return callable(getattr(cls, name, None)) and getattr(cls, name) is not getattr(Callback, name)


class _Listener(NamedTuple):
    """An object that is called, and whether the run goes on without it when it raises."""

    name: str
    object: Any
    may_fail: bool


class Callbacks:
    """All callbacks and loggers of a run, called by the root. A logger that raises is not called any more.

    Args:
        entries: of `callbacks`.
        stop: ends the run early; takes the name of the callback that asked for it.
        loggers: the entries of that key.
        objects: callbacks that a program has made itself, as `check_object` accepts them, called after those of the
            configuration.

    Attributes:
        warn: shows a line about a logger that has raised.
        measured: what callbacks have measured and the recorder has not taken yet.
        needs_episodes: whether a callback has `on_episode`; if not, lines of episodes need not be built for it.
        needs_updates: likewise `on_update`.

    Raises:
        ConfigError: as `made`.
        CallbackFailed: from every method, if a callback raises.
    """

    def __init__(
        self,
        entries: Entries,
        stop: Callable[[str], None],
        loggers: Entries = (),
        objects: Sequence[Any] = (),
    ) -> None:
        self._stop = stop
        self.warn: Callable[[str], None] = _log.warning
        self.measured: list[MeasureLine] = []
        self._started = self._ended = False
        listeners = [
            _Listener(f"{kind} {CallbackEntry.of(entry).class_}", item, kind == "logger")
            for kind, of in (("callback", entries), ("logger", loggers))
            for entry, item in zip(of, made(of, f"{kind}s"), strict=True)
        ]
        listeners += [_Listener(f"callback {type(item).__name__}", item, False) for item in objects]
        self._listeners = {
            method: [listener for listener in listeners if _overrides(type(listener.object), method)]
            for method in METHODS
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
        self._call("on_episode", line, place=lambda: {name: line[name] for name in _EPISODE})

    def update(self, line: Mapping[str, Any]) -> None:
        """Calls `on_update`: an update is recorded."""
        self._call("on_update", line, place=lambda: {"tick": line["ticks"]})

    def result(self, result: Mapping[str, Any]) -> None:
        """Calls `on_result`: a result is recorded."""
        self._call("on_result", result)

    def evaluation(self, tick: int, lines: Sequence[Mapping[str, Any]], folder: Path) -> None:
        """Calls `on_evaluation`: an evaluation is recorded."""
        self._call("on_evaluation", tick, lines, folder)

    def checkpoint(self, tick: int, checkpoints: Mapping[str, Path]) -> None:
        """Calls `on_checkpoint`: a boundary is on the disk."""
        self._call("on_checkpoint", tick, checkpoints, place=lambda: {"tick": tick})

    def round(self, number: int, tick: int) -> None:
        """Calls `on_round`: a round is over, at this tick."""
        self._call("on_round", number, place=lambda: {"tick": tick})

    def next_round(self, league: LeagueView) -> tuple[str, Any] | None:
        """Calls `on_next_round`: the first callback that proposes matches, and these; None if none does."""
        found = None
        for listener in [*self._listeners["on_next_round"]]:
            proposed = self._call_one(listener, "on_next_round", league)
            found = found or (None if proposed is None else (listener.name, proposed))
        return found

    def end(self) -> None:
        """Calls `on_end`, once: after the death of a process a run may end a second time."""
        if not self._ended:
            self._ended = True
            self._call("on_end")

    def _call(self, method: str, *arguments: Any, place: Place | None = None) -> None:
        """Calls a method of all listeners; `place`: what measured values belong to; None: measuring is an error."""
        for listener in [*self._listeners[method]]:
            self._call_one(listener, method, *arguments, place=place)

    def _call_one(self, listener: _Listener, method: str, *arguments: Any, place: Place | None = None) -> Any:
        found = None
        try:
            found = getattr(listener.object, method)(*arguments)
        except (Exception, SystemExit) as error:
            trace = "".join(traceback.format_exception(error)).rstrip() + where_raised(error)
            if not listener.may_fail:
                raise CallbackFailed(listener.name, trace) from error
            for others in self._listeners.values():
                others[:] = [other for other in others if other is not listener]
            self.warn(f"{listener.name} is not called any more: {method} has raised {type(error).__name__}: {error}")
            _log.warning("%s\n%s", listener.name, trace)
        if measured := getattr(listener.object, "_measured", ()):
            listener.object._measured = ()
            if place is None:
                text = "measure() belongs into on_episode, on_update, on_checkpoint or on_round"
                raise CallbackFailed(listener.name, f"{text}; {method} has called it")
            if merged := {name: value for values in measured for name, value in values.items()}:
                from arena.records.formats import MeasureLine  # most processes and runs measure nothing

                self.measured.append(MeasureLine(**place(), metrics=merged))
        if getattr(listener.object, "_wants_end", False):
            self._stop(listener.name)
        return found
