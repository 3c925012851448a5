"""Curricula: a user's class changes games, options, and which policies learn, between two legs of a run.

made              checks the class and makes an object of it
changed           the run with the changes of a boundary: those on record, else those that the class says now
with_change_lines the run with changes that are on record
with_changes      a plan with changes in it
changes.jsonl     a line per call of the class, so that a resumed run plays the same

The class lives in the root's process. Its changes hold from the next leg on, over all that was changed before.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from arena.config import Config, overrides, parse_config, resolved_yaml, yaml
from arena.config.matches import MatchConfig
from arena.config.named import check_texts
from arena.config.schema import CallbackConfig
from arena.errors import CallbackFailed, ConfigError, close_name, located
from arena.plan.build import game_of
from arena.plan.plan import Plan
from arena.records import checksums
from arena.records.folder import RunFolder
from arena.records.formats import ChangeLine
from arena.records.journal import Journal, JournalReader
from arena.records.journal import forget_after as cut_after
from arena.registry import EXTERNAL, check_method, load_class, made_object
from arena.run.run import Run

_METHODS: Mapping[str, tuple[str, ...]] = {"begin": (), "changes": ("result",), "resume": ("lines",)}
_PLAIN = (bool, int, float, str, type(None))


def made(planned: CallbackConfig) -> Any:
    """An object of the class.

    Raises:
        ConfigError: with the place in the configuration: there is no such class, it has no `changes`, a method is
            misspelt or takes other arguments, or the class does not take the options.
    """
    with located(path="curriculum.class"):
        cls = load_class(planned.class_)
        own = [name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))]
        for name in own:
            close = close_name(name, [known for known in _METHODS if known not in own])
            if name not in _METHODS and close is not None:
                raise ConfigError(f"{cls.__name__}.{name}() is never called; did you mean {close!r}?")
        if "changes" not in own:
            raise ConfigError(f"{cls.__name__} has no method changes(result), which says what changes after a leg")
        for name, arguments in _METHODS.items():
            if name in own:
                check_method(cls, name, arguments)
    return made_object(cls, planned.options, path="curriculum")


def lines_of(folder: RunFolder) -> list[ChangeLine]:
    """The lines of `changes.jsonl`.

    Raises:
        ConfigError: the file is damaged.
    """
    return list(JournalReader(folder.changes).lines(ChangeLine, missing_ok=True))


def check_recorded(folder: RunFolder, config: Config, tick: int) -> None:
    """Refuses changes on record up to a tick that name what config.yaml does not name.

    They are read from a file; what a curriculum or a program asks for while it runs may name anything.

    Raises:
        ConfigError: with the file and the key.
    """
    programs = any(env.make in EXTERNAL for env in config.envs.values())  # which a simulator's arguments start
    free = config.curriculum is not None and not programs
    for line in lines_of(folder):
        for key, value in line.set.items() if line.tick <= tick else ():
            check_texts(value, config, free=free, path=key, source=str(folder.changes))


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


def forget_after(folder: RunFolder, tick: int) -> None:
    """Removes the lines after the boundary from which the run continues; its own line stays."""
    cut_after(folder.changes, ChangeLine, lambda line: line.tick, tick)


def changed(
    run: Run, curriculum: Any, wanted: Mapping[str, Any], newest: Mapping[str, Any] | None
) -> tuple[Run, ChangeLine | None]:
    """The run at a boundary with its changes, and the line that is to be put on record when all roles are ready.

    Args:
        run: at a boundary, with the changes of all earlier ones.
        curriculum: an object of the class; None: there is none.
        wanted: what else is to change, by key path.
        newest: the newest result, with NaN for null; None if there is none.

    Raises:
        ConfigError: the class asks for what cannot be changed, or for a configuration that is refused.
        CallbackFailed: the class has raised.
    """
    known = run.recorded_change
    asked = _ask(run, curriculum, newest) if known is None and curriculum is not None else known
    if asked is None and not wanted:
        return run, None
    line = ChangeLine(tick=run.leg.start, set={**(asked or {}), **wanted})
    return with_change_lines(run, [line]), line if wanted or known is None else None


def with_change_lines(run: Run, lines: Sequence[ChangeLine]) -> Run:
    """The run with further changes; what is refused from now on is blamed on the newest of them.

    Raises:
        ConfigError: as of `changed_config`.
    """
    lines = [line for line in lines if line.set]
    if not lines:
        return run
    config = changed_config(run, lines)
    plan = with_changes(run.plan, config)
    return replace(run, plan=plan, changed=_changed_by(run, lines[-1]), changed_config=config)


def _changed_by(run: Run, line: ChangeLine) -> str:
    return f"{run.source or 'the run'}, as changed at tick {line.tick}"


def _ask(run: Run, curriculum: Any, newest: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the class wants to change at a boundary; None if it has no method for it."""
    planned = run.plan.config.curriculum
    assert planned is not None, "the run has a curriculum"
    if run.leg.start == 0 and not hasattr(curriculum, "begin"):
        return None
    try:
        found = curriculum.begin() if run.leg.start == 0 else curriculum.changes(newest)
    except (Exception, SystemExit) as error:
        trace = "".join(traceback.format_exception(error)).rstrip()
        raise CallbackFailed(f"curriculum {planned.class_}", trace) from error
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"it has returned {found!r:.80}; expected a mapping of key paths to values", path="curriculum"
        )
    return dict(found)


def resume(run: Run, curriculum: Any) -> None:
    """Tells a new object what was changed so far, when a run is taken up again.

    Raises:
        CallbackFailed: the class has raised.
    """
    lines = [line for line in lines_of(run.folder) if line.tick <= run.leg.start]
    if hasattr(curriculum, "resume") and lines:
        planned = run.plan.config.curriculum
        assert planned is not None, "the run has a curriculum"
        try:
            curriculum.resume([msgspec.to_builtins(line) for line in lines])
        except (Exception, SystemExit) as error:
            trace = "".join(traceback.format_exception(error)).rstrip()
            raise CallbackFailed(f"curriculum {planned.class_}", trace) from error


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


def check_change(config: Config, key: str, value: Any) -> None:
    """Refuses a change of what cannot be changed between two legs.

    Raises:
        ConfigError: with the key.
    """
    kwargs = [f"envs.{name}.kwargs." for name in config.envs]
    options = [f"policies.{name}.options." for name in config.policies]
    frozen = [f"policies.{name}.frozen" for name in config.policies]
    match = re.match(r"matches(?:\[([0-9]+)\]|\.([0-9]+))\.env_kwargs\..", key)
    number = int(match[1] or match[2]) if match else -1
    matches = config.listed[0]
    in_match = 0 <= number < len(matches) and isinstance(matches[number], MatchConfig)
    if not (in_match or key in frozen or any(key.startswith(one) and key != one for one in (*kwargs, *options))):
        raise ConfigError(
            "cannot be changed between two legs; possible are envs.<name>.kwargs.*, matches[i].env_kwargs.*, "
            "policies.<name>.options.* and policies.<name>.frozen",
            path=key,
        )
    if not _is_plain(value):
        raise ConfigError(
            f"found {value!r:.80}; expected numbers, text, true, false, null, lists or mappings", path=key
        )


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(type(key) is str and _is_plain(inner) for key, inner in value.items())
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


def with_changes(plan: Plan, config: Config) -> Plan:
    """A plan with the games, options and frozen policies of a configuration that has the same matches and seats."""
    entries = [entry for _, entry in config.entries()]
    matches = tuple(
        replace(match, config=entry, game=game_of(config, entry))
        for match in plan.matches
        for entry in (entries[match.entry],)
    )
    policies = {name: replace(policy, config=config.policies[name]) for name, policy in plan.policies.items()}
    return replace(plan, matches=matches, policies=policies)


def frozen_words(before: Plan, now: Plan) -> list[str]:
    """Lines about the policies that have stopped to learn, or go on."""
    lines = []
    for name, policy in now.policies.items():
        if policy.config.frozen and not before.policies[name].config.frozen:
            lines.append(
                f"policy {name!r} is frozen: it plays with what it has learned; what its workers had alone, such as a "
                "replay or half a rollout, is dropped"
            )
        elif before.policies[name].config.frozen and not policy.config.frozen:
            lines.append(f"policy {name!r} learns from now on")
    return lines
