"""Checks of a configuration that no single field can express: unknown names, contradictions, excessive sizes.

Type and range of a single key are checked before: `arena.config.schema` has the fields, `arena.config.fields` their
types, and `arena.config.decode` refuses a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arena.config.check_league import check_rounds, check_winners
from arena.config.decode import NAME_RULE, is_name, is_snapshot_name, show
from arena.config.independent import check_independent, expanded
from arena.config.matches import (
    GauntletConfig,
    Generator,
    MatchConfig,
    MatchmakingConfig,
    SeatEntry,
    generator_of,
)
from arena.config.members import check_drawn
from arena.config.result_keys import check_key
from arena.errors import ConfigError, located, nearest
from arena.plan.plan import MOST_ROLES

if TYPE_CHECKING:
    from arena.config.schema import Config, EvaluationConfig, WrapperEntry


def check(config: Config) -> None:
    """Refuses a configuration that contradicts itself.

    Raises:
        ConfigError: the first thing that is wrong, with its place.
    """
    if not is_name(config.name):
        raise ConfigError(
            f"the run's name {config.name!r} (by default the file's) cannot be used; {NAME_RULE}", path="name"
        )
    for path in ("envs", "policies", "matches"):
        if not getattr(config, path):
            raise ConfigError("is empty; at least one is needed", path=path)
    for name, env in config.envs.items():
        _check_wrappers(env.wrappers, f"envs.{name}.wrappers")
    for name in filter(is_snapshot_name, config.policies):
        policy, parent = config.policies[name], config.policies.get(name.partition("@")[0])
        path = f"policies.{name}"
        if not policy.frozen or policy.load is None:
            raise ConfigError("is the name of a snapshot: say `frozen: true`, and with `load:` where it is", path=path)
        if parent is not None and parent.learns:
            raise ConfigError(f"could be the name of a snapshot of {name.partition('@')[0]!r}, which learns", path=path)
    for path, entry in config.places():
        if isinstance(entry, MatchConfig):
            _check_match(config, entry, path)
        else:
            _check_generator(config, generator_of(entry), path)
    if config.roles >= MOST_ROLES:
        raise ConfigError(f"asks for {config.roles + 1} roles, more than {MOST_ROLES}; lower `copies`", path="matches")
    check_winners(config)
    check_rounds(config)
    check_drawn(config)
    _check_results(config)
    if config.curriculum is not None and config.rounds > 1:
        raise ConfigError(
            f"has no place in a run of {config.rounds} rounds, which have changes of their own; set `rounds: 1`",
            path="curriculum",
        )
    if config.evaluation is not None:
        _check_evaluation(config, config.evaluation)
    check_independent(config)
    _check_result_keys(config)


def _check_results(config: Config) -> None:
    every, checkpoint = config.results.every, config.checkpoint_every
    if every is not None and every % checkpoint and checkpoint % every:
        raise ConfigError(
            f"found {every}; expected a divisor or a multiple of checkpoint_every ({checkpoint}), such as "
            f"{_nearest_divisor(every, checkpoint)}",
            path="results.every",
        )


def _check_result_keys(config: Config) -> None:
    policies, evaluates = expanded(config).policies, config.evaluation is not None
    for rule in config.stop_rules:
        with located(path=f"stop.{rule.key}"):
            check_key(rule.key, policies, evaluates=evaluates)
    if config.best is not None:
        with located(path="best.metric"):
            check_key(config.best.metric, policies, evaluates=evaluates)


def _nearest_divisor(wanted: int, number: int) -> int:
    """The divisor or multiple of a number that is closest to another number."""
    if wanted > number:
        return round(wanted / number) * number
    return next(found for found in range(wanted, 0, -1) if number % found == 0)


def _check_wrappers(wrappers: Sequence[WrapperEntry], path: str) -> None:
    for index, entry in enumerate(wrappers):
        if not isinstance(entry, str) and len(entry) != 1:
            raise ConfigError(
                f"found {show(entry)}; expected a name, or one name with its arguments, as `frame_stack: 4`: each "
                "wrapper is an item of the list, after a dash of its own",
                path=f"{path}[{index}]",
            )


def _check_match(config: Config, match: MatchConfig, path: str) -> None:
    _check_known(match.env, config.envs, "environment", f"{path}.env")
    if not match.seats:
        raise ConfigError("is empty; a match needs at least one seat", path=f"{path}.seats")
    for index, seat in enumerate(match.seats):
        _check_seat(config, seat, f"{path}.seats[{index}]")
    if match.entities is not None:
        _check_entities(match.entities, match.seats, f"{path}.entities")
    if match.sides is not None:
        _check_sides(match.sides, len(match.seats), f"{path}.sides")
    _check_pipeline(match, path)


def _check_seat(config: Config, seat: SeatEntry, path: str) -> None:
    if isinstance(seat, str):
        return _check_known(seat, config.policies, "policy", path)
    if not seat:
        raise ConfigError("is empty; a seat that drives entities together lists its policy once per entity", path=path)
    for index, name in enumerate(seat):
        _check_known(name, config.policies, "policy", f"{path}[{index}]")
    if len(set(seat)) > 1:
        raise ConfigError(
            f"found {', '.join(seat)}: one worker drives these entities together, so they are all of one policy; "
            "give each policy a seat of its own",
            path=path,
        )
    return None


def _check_entities(entities: Sequence[int | str], seats: Sequence[SeatEntry], path: str) -> None:
    needed = _entities(seats)
    if len(entities) != needed:
        raise ConfigError(f"found {len(entities)} for {needed} entries of `seats`; one for each", path=path)
    for index, entity in enumerate(entities):
        if entity in entities[:index]:
            raise ConfigError(f"{entity!r} is listed twice", path=f"{path}[{index}]")


def _check_sides(sides: Sequence[Sequence[int]], seats: int, path: str) -> None:
    if len(sides) < 2:
        raise ConfigError(f"lists {len(sides)}; a game is won against another one: two or more", path=path)
    named = [seat for side in sides for seat in side]
    if sorted(named) != list(range(seats)) or not all(sides):
        raise ConfigError(
            f"found {show([list(side) for side in sides])}; each of the {seats} seats (0 to {seats - 1}) belongs to "
            "exactly one side, and each side has a seat",
            path=path,
        )


def _check_pipeline(entry: MatchConfig | Generator, path: str) -> None:
    if entry.pipeline > entry.lanes:
        raise ConfigError(
            f"found {entry.pipeline}, but there is {entry.lanes} lane: each half needs one; set `lanes: 2` or more, or "
            "`pipeline: 1`",
            path=f"{path}.pipeline",
        )


def _check_generator(config: Config, entry: Generator, path: str) -> None:
    _check_known(entry.env, config.envs, "environment", f"{path}.env")
    _check_players(config, entry.policies, f"{path}.policies")
    if len(entry.policies) < entry.fewest:
        least = "two or more" if entry.fewest == 2 else "one or more"
        found = f"found {len(entry.policies)} of them; `{path.rpartition('.')[2]}` needs {least}"
        raise ConfigError(found, path=f"{path}.policies")
    if isinstance(entry, (GauntletConfig, MatchmakingConfig)):
        _check_against(config, entry, f"{path}.against")
    _check_pipeline(entry, path)


def _check_players(config: Config, names: Sequence[str], path: str) -> None:
    for index, name in enumerate(names):
        _check_known(name, config.policies, "policy", f"{path}[{index}]")
        if name in names[:index]:
            raise ConfigError(f"{name!r} is listed twice", path=f"{path}[{index}]")


def _check_against(config: Config, entry: GauntletConfig | MatchmakingConfig, path: str) -> None:
    _check_players(config, entry.against, path)
    for index, name in enumerate(entry.against):
        if name in entry.policies:
            raise ConfigError(f"{name!r} is one of `policies` already", path=f"{path}[{index}]")
    if isinstance(entry, GauntletConfig) and not entry.against:
        raise ConfigError("is empty; a gauntlet needs at least one opponent", path=path)


def _check_evaluation(config: Config, evaluation: EvaluationConfig) -> None:
    if evaluation.every % config.checkpoint_every:
        raise ConfigError(
            f"found {evaluation.every}: policies are evaluated where they are saved, every {config.checkpoint_every} "
            f"ticks; set a multiple of it, or `checkpoint_every: {evaluation.every}`",
            path="evaluation.every",
        )
    if evaluation.episodes == 0 and evaluation.function is None:
        raise ConfigError("found 0, which is for a `function` alone; play at least 1", path="evaluation.episodes")
    if evaluation.options and evaluation.function is None:
        raise ConfigError("there is no `function` that they could be given to", path="evaluation.options")
    if evaluation.seats is None:
        return
    for index, seat in enumerate(evaluation.seats):
        _check_seat(config, seat, f"evaluation.seats[{index}]")
    for path, entry in config.entries():
        found, needed = _entities(evaluation.seats), _entities(entry.seats)
        if found != needed:
            raise ConfigError(f"play {found} entities, {path} has {needed}", path="evaluation.seats")


def _entities(seats: Sequence[SeatEntry]) -> int:
    """How many entities play in these seats."""
    return sum(1 if isinstance(seat, str) else len(seat) for seat in seats)


def _check_known(name: str, known: Mapping[str, Any], what: str, path: str) -> None:
    if name not in known:
        raise ConfigError(f"unknown {what} {name!r}; {nearest(name, known)}", path=path)
