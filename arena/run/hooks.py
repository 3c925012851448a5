"""The user's code that is called between two legs of a run: a curriculum's class, and an evaluation's function.

The class of a curriculum changes games, options, and which policies learn. It lives in the root's process. Its changes
hold from the next leg on, over all that was changed before; each call is a line of `changes.jsonl`, so that a resumed
run plays the same.

made_curriculum   checks the class and makes an object of it; `evaluation_function` checks the function
changed           the run with the changes of a boundary: those on record, else those that the class says now
with_change_lines the run with changes that are on record; `with_changes`: a plan with them
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from arena.config import Config, overrides, parse_config, resolved_yaml, yaml
from arena.config.fields import flat
from arena.config.matches import Match
from arena.config.schema import CallbackEntry, Evaluation
from arena.errors import CallbackFailed, ConfigError, close_name, located
from arena.league.changes import lines_of
from arena.plan.build import game_of
from arena.plan.plan import Plan
from arena.records import checksums
from arena.records.atomic import make_folder
from arena.records.formats import ChangeLine
from arena.records.journal import Journal
from arena.registry import check_method, load_class, load_object, made_object, where_raised
from arena.roles.run import Run

_METHODS: Mapping[str, tuple[str, ...]] = {"begin": (), "changes": ("result",), "resume": ("lines",)}
_ARGUMENTS = ("folder", "tick", "checkpoints")
_MOST_SAID = 20  # changes of a boundary, of which one may be a long list
_PLAIN = (bool, int, float, str, type(None))


def made_curriculum(planned: CallbackEntry) -> Any:
    """An object of the class of a curriculum.

    Raises:
        ConfigError: with the place in the configuration: there is no such class, it has no `changes`, a method is
            misspelt or takes other arguments, or the class does not take the options.
    """
    with located(path="curriculum.class"):
        cls = load_class(planned.class_)
        methods = [name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))]
        for name in methods:
            close = close_name(name, [known for known in _METHODS if known not in methods])
            if name not in _METHODS and close is not None:
                raise ConfigError(f"{cls.__name__}.{name}() is never called; did you mean {close!r}?")
        if "changes" not in methods:
            raise ConfigError(f"{cls.__name__} has no method changes(result), which says what changes after a leg")
        for name, arguments in _METHODS.items():
            if name in methods:
                check_method(cls, name, arguments)
    return made_object(cls, planned.options, path="curriculum")


def evaluation_function(evaluation: Evaluation) -> Callable[..., Any] | None:
    """The function that is called with each evaluation; None if there is none.

    Raises:
        ConfigError: it cannot be loaded, or does not take its arguments; with the place in the configuration.
    """
    if evaluation.function is None:
        return None
    with located(path="evaluation.function"):
        function: Callable[..., Any] = load_object(evaluation.function)
        if not callable(function):
            raise ConfigError(f"{evaluation.function!r} is a {type(function).__name__}; it has to be a function")
    with located(path="evaluation.options"):
        try:
            inspect.signature(function).bind(*_ARGUMENTS, **evaluation.options)
        except TypeError as error:
            takes = ", ".join(_ARGUMENTS)
            raise ConfigError(f"{evaluation.function} is called with ({takes}, **options): {error}") from error
    return function


def call_evaluation_function(run: Run, evaluation: Evaluation) -> None:
    """Calls the function at a boundary, if there is one, and records what it has measured.

    Raises:
        CallbackFailed: it has raised, or returned something else than numbers by name.
    """
    function = evaluation_function(evaluation)
    if function is None:
        return
    folder = run.folder.evaluation_path(run.leg.start)
    make_folder(folder.parent)
    make_folder(folder)

    def numbers(found: Any) -> dict[str, Any]:
        """Numbers by name, nested to any depth."""
        if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found):
            raise TypeError(f"it has returned {found!r:.80}; expected a mapping of names to numbers")
        taken = {}
        for name, value in found.items():
            taken[name] = value.item() if hasattr(value, "item") else value
            if isinstance(value, Mapping):
                taken[name] = numbers(value)
            elif not isinstance(taken[name], (int, float)):
                raise TypeError(f"{name!r} is {taken[name]!r:.80}; expected a number, or a mapping of names to numbers")
        return taken

    def measure() -> dict[str, Any]:
        return numbers(function(folder, run.leg.start, dict(run.leg.restore), **evaluation.options))

    measured = _called(f"evaluation function {evaluation.function}", measure)
    checksums.replace(run.folder.custom_path(run.leg.start), msgspec.json.format(msgspec.json.encode(measured)) + b"\n")


def _called(who: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the user's code returns."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        trace = "".join(traceback.format_exception(error)).rstrip() + where_raised(error)
        raise CallbackFailed(who, trace) from error


# ----------------------------------------------------------------------------------------------------- changes.jsonl


def without(lines: Sequence[ChangeLine], renewed: Container[str]) -> list[ChangeLine]:
    """The lines without the options `policies.<name>.options`, alone or together, that are in `renewed`."""
    return [
        ChangeLine(
            tick=line.tick,
            set={key: value for key, value in line.set.items() if ".".join(key.split(".")[:3]) not in renewed},
        )
        for line in lines
    ]


def lines_at(run: Run) -> list[ChangeLine]:
    """The lines of a run up to the boundary where it is, without options that are renewed there."""
    return without([line for line in lines_of(run.folder) if line.tick <= run.leg.start], run.renewed)


def keep(run: Run, line: ChangeLine) -> None:
    """Puts a call on record, after those of earlier boundaries; replaces one that is on record of this boundary."""
    if run.recorded_change is not None:
        earlier = [known for known in lines_of(run.folder) if known.tick < line.tick]
        checksums.replace(run.folder.changes, msgspec.json.Encoder().encode_lines([*earlier, line]))
        return
    journal = Journal(run.folder.changes)
    try:
        journal.extend([line])
        journal.sync()
    finally:
        journal.close()


# ------------------------------------------------------------------------------------------------------------ changes


def changed(
    run: Run, curriculum: Any, changes: Mapping[str, Any], newest: Mapping[str, Any] | None
) -> tuple[Run, ChangeLine | None]:
    """The run at a boundary with its changes, and the line that is to be put on record when all roles are ready.

    `curriculum` is an object of the class, `changes` what else changes, by key path, `newest` the newest result.

    Raises:
        ConfigError: the class asks for what cannot be changed, or for a configuration that is refused.
        CallbackFailed: the class has raised.
    """
    known, start, found = run.recorded_change, run.leg.start, run.recorded_change
    if known is None and curriculum is not None and (start or hasattr(curriculum, "begin")):
        who = _curriculum_name(run)
        returned = _called(who, curriculum.changes, newest) if start else _called(who, curriculum.begin)
        if returned is not None and not isinstance(returned, Mapping):
            raise ConfigError(
                f"it has returned {returned!r:.80}; expected a mapping of key paths to values", path="curriculum"
            )
        found = dict(returned or {})
    if found is None and not changes:
        return run, None
    line = ChangeLine(tick=start, set={**(found or {}), **changes})
    return with_change_lines(run, [line]), line if changes or known is None else None


def resume_curriculum(run: Run, curriculum: Any) -> None:
    """Tells a new object what was changed so far, when a run is taken up again."""
    lines = [msgspec.to_builtins(line) for line in lines_of(run.folder) if line.tick <= run.leg.start]
    if hasattr(curriculum, "resume") and lines:
        _called(_curriculum_name(run), curriculum.resume, lines)


def _curriculum_name(run: Run) -> str:
    planned = run.plan.config.curriculum
    assert planned is not None, "the run has a curriculum"
    return f"curriculum {planned.class_}"


def with_change_lines(run: Run, lines: Sequence[ChangeLine]) -> Run:
    """The run with further changes; what is refused from now on is blamed on the newest of them."""
    lines = [line for line in lines if line.set]
    if not lines:
        return run
    config = changed_config(run, lines)
    return replace(run, plan=with_changes(run.plan, config), changed=_changed_by(run, lines[-1]), changed_config=config)


def _changed_by(run: Run, line: ChangeLine) -> str:
    return f"{run.source or 'the run'}, as changed at tick {line.tick}"


def changed_config(run: Run, lines: Sequence[ChangeLine]) -> Config:
    """The configuration of a run with further changes in it.

    Raises:
        ConfigError: a key that cannot be changed, a value that is no YAML data, or a configuration that is refused.
    """
    config = run.changed_config or run.plan.config
    changed_by, data = run.changed or run.source, yaml.load(resolved_yaml(config), source=run.source)
    for line in lines:
        changed_by = _changed_by(run, line)
        with located(source=changed_by):
            for key, value in line.set.items():
                check_change(config, key, value)
        data = overrides.apply_values(data, line.set, source=changed_by)
    return parse_config(data, source=changed_by) if lines else config


def check_change(config: Config, key: str, value: Any, *, more: str = "") -> None:
    """Refuses a change of what cannot be changed between two legs; raises ConfigError with the key.

    `more` ends the message that says what can be changed.
    """

    def is_plain(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(type(key) is str and is_plain(inner) for key, inner in value.items())
        return all(map(is_plain, value)) if type(value) in (list, tuple) else type(value) in _PLAIN

    starts = [f"envs.{name}.kwargs." for name in config.envs]
    if config.round_count > 1 and not any(key.startswith(start) and key != start for start in starts):
        raise ConfigError(
            "cannot be changed in a league, in which only games can, envs.<name>.kwargs.*: its rounds say who plays "
            "and learns; for options stop the run, edit its file and resume, or use `evolution`",
            path=key,
        )
    starts += [f"policies.{name}.options." for name in config.policies]
    whole = [f"policies.{name}.{part}" for name in config.policies for part in ("frozen", "options")]
    match = re.match(r"matches(?:\[([0-9]+)\]|\.([0-9]+))\.env_kwargs\..", key)
    number = int(match[1] or match[2]) if match else -1
    matches = config.listed[0]
    in_match = 0 <= number < len(matches) and isinstance(matches[number], Match)
    if not (in_match or key in whole or any(key.startswith(start) and key != start for start in starts)):
        kind, _, part = [*key.split("."), "", ""][:3]
        close = close_name(part, {"envs": ["kwargs"], "policies": ["options", "frozen"]}.get(kind, []))
        hint = "" if close in (None, part) else f"did you mean {close!r}? "
        raise ConfigError(
            f"cannot be changed between two legs; {hint}possible are envs.<name>.kwargs.*, matches[i].env_kwargs.*, "
            f"policies.<name>.options.* and policies.<name>.frozen{more}",
            path=key,
        )
    if not is_plain(value):
        raise ConfigError(
            f"found {value!r:.80}; expected numbers, text, true, false, null, lists or mappings", path=key
        )


def with_changes(plan: Plan, config: Config) -> Plan:
    """A plan with the games, options and frozen policies of a configuration that has the same matches and seats.

    Of a league it is a round's, in which only the games change.
    """
    if config.round_count > 1:
        games = (game_of(config, match.config) for match in plan.matches)
        return replace(
            plan, matches=tuple(replace(match, game=game) for match, game in zip(plan.matches, games, strict=True))
        )
    entries = [entry for _, entry in config.entries()]
    matches = tuple(
        replace(match, config=entries[match.entry], game=game_of(config, entries[match.entry]))
        for match in plan.matches
    )
    policies = {name: replace(policy, config=config.policies[name]) for name, policy in plan.policies.items()}
    return replace(plan, matches=matches, policies=policies)


def changes_text(before: Run, now: Run) -> list[str]:
    """A line for each of the first keys of the configuration whose value has changed."""
    was, values = (flat(run.changed_config or run.plan.config) for run in (before, now))
    lines = [f"tick {now.leg.start}: {key} = {value}" for key, value in values.items() if was.get(key) != value]
    more = len(lines) - _MOST_SAID
    return lines if more <= 0 else [*lines[:_MOST_SAID], f"tick {now.leg.start}: {more} more values"]


def frozen_text(before: Plan, now: Plan) -> list[str]:
    """Lines about the policies that have stopped to learn, or go on."""
    lines = []
    for name, policy in now.policies.items():
        was = before.policies[name].config.frozen
        if policy.config.frozen and not was:
            lines.append(
                f"policy {name!r} is frozen: it plays with what it has learned; what its workers had alone, such as a "
                "replay or half a rollout, is dropped"
            )
        elif was and not policy.config.frozen:
            lines.append(f"policy {name!r} learns from now on")
    return lines
