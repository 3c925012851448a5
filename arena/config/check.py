"""Checks of a configuration that no single field can express: unknown names, contradictions, excessive sizes.

Type and range of a single key are checked before: `arena.config.schema` has the fields, `arena.config.fields` their
types, and `arena.config.decode` refuses a value that does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from arena.config.check_league import check_rounds, check_winners
from arena.config.decode import NAME_RULE, is_name, is_snapshot_name, show
from arena.config.fields import MOST_ROLES
from arena.config.independent import check_independent, expanded
from arena.config.matches import (
    Exploiters,
    Gauntlet,
    Generator,
    GeneratorEntry,
    Match,
    Matchmaking,
    Mixtures,
    Pairings,
    SeatEntry,
)
from arena.config.members import check_drawn
from arena.config.result_keys import check_key
from arena.errors import ConfigError, located, nearest

if TYPE_CHECKING:
    from arena.config.schema import Config


def check(config: Config) -> None:
    """Refuses a configuration that contradicts itself."""
    if not is_name(config.name):
        raise ConfigError(
            f"the run's name {config.name!r} (by default the file's) cannot be used; {NAME_RULE}", path="name"
        )
    for path in ("envs", "policies"):
        if not getattr(config, path):
            raise ConfigError("is empty; at least one is needed", path=path)
    _check_listed(config)
    for name, policy in config.policies.items():
        if policy.max_lag and policy.sync != "samples":
            raise ConfigError(
                "has no effect: only with `sync: samples` are workers ahead of each other; set that, or leave it out",
                path=f"policies.{name}.max_lag",
            )
    for name, env in config.envs.items():
        for index, wrapper in enumerate(env.wrappers):
            if not isinstance(wrapper, str) and len(wrapper) != 1:
                raise ConfigError(
                    f"found {show(wrapper)}; expected a name, or one name with its arguments, as `frame_stack: 4`: "
                    "each wrapper is an item of the list, after a dash of its own",
                    path=f"envs.{name}.wrappers[{index}]",
                )
    for name in filter(is_snapshot_name, config.policies):
        policy, parent = config.policies[name], config.policies.get(name.partition("@")[0])
        path = f"policies.{name}"
        if not policy.frozen or policy.load is None:
            raise ConfigError("is the name of a snapshot: say `frozen: true`, and with `load:` where it is", path=path)
        if parent is not None and parent.learns:
            raise ConfigError(f"could be the name of a snapshot of {name.partition('@')[0]!r}, which learns", path=path)
    check_entries(config, config.places())
    check_winners(config)
    check_rounds(config)
    check_drawn(config)
    every, leg = config.results.every, config.checkpoint_every
    if every is not None and every % leg and leg % every:
        near = round(every / leg) * leg if every > leg else next(one for one in range(every, 0, -1) if leg % one == 0)
        text = f"found {every}; expected a divisor or a multiple of checkpoint_every ({leg}), such as {near}"
        raise ConfigError(text, path="results.every")
    if (evaluation := config.evaluation) is not None:
        if evaluation.every % leg:
            raise ConfigError(
                f"found {evaluation.every}: policies are evaluated where they are saved, every {leg} ticks; set a "
                f"multiple of it, or `checkpoint_every: {evaluation.every}`",
                path="evaluation.every",
            )
        if evaluation.episodes == 0 and evaluation.function is None:
            raise ConfigError("found 0, which is for a `function` alone; play at least 1", path="evaluation.episodes")
        if evaluation.episodes == 0 and evaluation.env_kwargs:
            raise ConfigError("no game is played, as `episodes` is 0; leave it out", path="evaluation.env_kwargs")
        if evaluation.options and evaluation.function is None:
            raise ConfigError("there is no `function` that they could be given to", path="evaluation.options")
        for index, seat in enumerate(evaluation.seats or ()):
            _check_seat(config, seat, f"evaluation.seats[{index}]")
        for path, entry in config.entries() if evaluation.seats is not None else ():
            found, needed = _entities(evaluation.seats or ()), _entities(entry.seats)
            if found != needed:
                raise ConfigError(f"play {found} entities, {path} has {needed}", path="evaluation.seats")
    check_independent(config)
    policies, evaluates = expanded(config).policies, config.evaluation is not None
    for path, key in config.result_keys.items():
        with located(path=path):
            check_key(key, policies, evaluates=evaluates, rates=config.round_count > 1)


def check_entries(config: Config, placed: Sequence[tuple[str, Match | GeneratorEntry]]) -> None:
    """Refuses entries of `matches`, with their places, that contradict themselves or the rest of the configuration."""
    for path, entry in placed:
        _check_known(entry.env, config.envs, "environment", f"{path}.env")
        if isinstance(entry, Match):
            _check_match(config, entry, path)
        else:
            _check_generator(config, entry, path)
        if entry.pipeline > entry.lanes:
            raise ConfigError(
                f"found {entry.pipeline}, but there is {entry.lanes} lane: each half needs one; set `lanes: 2` or "
                "more, or `pipeline: 1`",
                path=f"{path}.pipeline",
            )
    if config.roles >= MOST_ROLES:
        raise ConfigError(f"asks for {config.roles + 1} roles, more than {MOST_ROLES}; lower `copies`", path="matches")


def _check_listed(config: Config) -> None:
    """Refuses rounds without matches, and `matches` beside a list of rounds."""
    if isinstance(config.rounds, int):
        if config.matches is None:
            raise ConfigError("the key 'matches' is missing, and has no default")
        if not config.matches:
            raise ConfigError("is empty; at least one is needed", path="matches")
        return
    if config.matches:
        raise ConfigError(
            "is not allowed beside a list of rounds, which has the matches of each; leave out `matches`, or write the "
            "number of rounds alone",
            path="matches",
        )
    if not config.rounds:
        raise ConfigError("is empty; list the matches of each round, or write their number", path="rounds")
    for number, entries in enumerate(config.rounds):
        if not entries:
            raise ConfigError("is empty; a round has at least one match", path=f"rounds[{number}]")
        for path, entry in config.places_of(number):
            if entry.adaptive:
                raise ConfigError(
                    "is not allowed in a list of rounds: its matches depend on the results of rounds before; list "
                    "matches, round_robin, gauntlet or mixtures, or write `rounds` as a number and this in `matches`",
                    path=path,
                )


def _check_match(config: Config, match: Match, path: str) -> None:
    if not match.seats:
        raise ConfigError("is empty; a match needs at least one seat", path=f"{path}.seats")
    for index, seat in enumerate(match.seats):
        _check_seat(config, seat, f"{path}.seats[{index}]")
    if match.entities is not None:
        found, needed = len(match.entities), _entities(match.seats)
        if found != needed:
            raise ConfigError(f"found {found} for {needed} entries of `seats`; one for each", path=f"{path}.entities")
        _check_once(match.entities, f"{path}.entities")
    if match.sides is not None:
        sides, seats = match.sides, len(match.seats)
        if len(sides) < 2:
            text = f"lists {len(sides)}; a game is won against another one: two or more"
            raise ConfigError(text, path=f"{path}.sides")
        if sorted(seat for side in sides for seat in side) != list(range(seats)) or not all(sides):
            raise ConfigError(
                f"found {show([list(side) for side in sides])}; each of the {seats} seats (0 to {seats - 1}) belongs "
                "to exactly one side, and each side has a seat",
                path=f"{path}.sides",
            )


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


def _check_generator(config: Config, entry: Generator, path: str) -> None:
    _check_players(config, entry.policies, f"{path}.policies")
    if len(entry.policies) < entry.fewest:
        least = "two or more" if entry.fewest == 2 else "one or more"
        raise ConfigError(f"found {len(entry.policies)} of them; `{entry.kind}` needs {least}", path=f"{path}.policies")
    if entry.sides is not None:
        _check_side_sizes(entry, f"{path}.sides")
    if isinstance(entry, Matchmaking) and entry.versus:
        _check_players(config, entry.versus, f"{path}.versus")
        for index, name in enumerate(entry.versus):
            if name in entry.policies:
                text = f"{name!r} is one of `policies`, too; a policy is in one of the two populations"
                raise ConfigError(text, path=f"{path}.versus[{index}]")
        for key in ("against", "both_sides"):
            if getattr(entry, key):
                raise ConfigError(
                    "has no effect with `versus`: `policies` play the first side and meet those of `versus` alone, "
                    "which play the second",
                    path=f"{path}.{key}",
                )
        if isinstance(entry.rule, Exploiters):
            raise ConfigError(
                "is not defined for two populations; use past_selves, fictitious, uncertainty, or a rule of your own",
                path=f"{path}.rule",
            )
    if isinstance(entry, (Gauntlet, Matchmaking)):
        _check_players(config, entry.against, f"{path}.against")
        for index, name in enumerate(entry.against):
            if name in entry.policies:
                raise ConfigError(f"{name!r} is one of `policies` already", path=f"{path}.against[{index}]")
        if isinstance(entry, Gauntlet) and not entry.against:
            raise ConfigError("is empty; a gauntlet needs at least one opponent", path=f"{path}.against")
    if not isinstance(entry, Pairings):
        return
    if entry.opening is None and len(entry.policies) < 2:
        raise ConfigError(
            "is needed with one policy: list the pairings of the first round, as [[a, a]]; without it every pair of "
            "`policies` meets",
            path=f"{path}.opening",
        )
    if entry.opening == ():
        raise ConfigError("is empty; list the pairings of the first round, as [[a, b]]", path=f"{path}.opening")
    for index, pairing in enumerate(entry.opening or ()):
        if len(pairing) != 2:
            text = f"has {len(pairing)} sides; a pairing has two, as [a, b]"
            raise ConfigError(text, path=f"{path}.opening[{index}]")
        for number, side in enumerate(pairing):
            place = f"{path}.opening[{index}][{number}]"
            for name in (side,) if isinstance(side, str) else side:
                _check_known(name, dict.fromkeys(entry.policies), "policy", place)
            if not isinstance(side, str) and len(side) != entry.sizes[number]:
                each = f"one for each of the side's {entry.sizes[number]} seats"
                raise ConfigError(f"names {len(side)} policies; name one, or {each}", path=place)


def _check_side_sizes(entry: Generator, path: str) -> None:
    sides = entry.sides or ()
    (usual,) = (field.default for field in msgspec.structs.fields(entry) if field.name == "team_size")
    if entry.team_size != usual:
        raise ConfigError("says how large both sides are; leave out `team_size`", path=path)
    if len(sides) != 2:
        raise ConfigError(f"has {len(sides)} items; a pairing has two sides, as [3, 1]", path=path)
    if len({isinstance(side, int) for side in sides}) > 1:
        raise ConfigError("mixes a number of seats with names of entities; write two numbers, or two lists", path=path)
    named = [entity for side in sides if not isinstance(side, int) for entity in side]
    for number, side in enumerate(sides):
        if not isinstance(side, int) and not side:
            raise ConfigError("is empty; each side has an entity", path=f"{path}[{number}]")
    for place, entity in enumerate(named):
        if entity in named[:place]:
            raise ConfigError(f"{entity!r} is listed twice", path=path)
    if entry.sizes[0] != entry.sizes[1] and isinstance(entry, Mixtures):
        raise ConfigError("mixtures are of teams of one size; write two sides of equal size", path=path)
    if entry.sizes[0] != entry.sizes[1] and isinstance(entry, Pairings) and entry.both_sides:
        raise ConfigError(
            "is not allowed with sides of unequal size, which a mixed team cannot exchange; let the generator return "
            "each pairing twice",
            path=f"{path.removesuffix('.sides')}.both_sides",
        )


def _check_players(config: Config, names: Sequence[str], path: str) -> None:
    for index, name in enumerate(names):
        _check_known(name, config.policies, "policy", f"{path}[{index}]")
    _check_once(names, path)


def _check_once(names: Sequence[int | str], path: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"{name!r} is listed twice", path=f"{path}[{index}]")


def _entities(seats: Sequence[SeatEntry]) -> int:
    """How many entities play in these seats."""
    return sum(1 if isinstance(seat, str) else len(seat) for seat in seats)


def _check_known(name: str, known: Mapping[str, Any], what: str, path: str) -> None:
    if name not in known:
        raise ConfigError(f"unknown {what} {name!r}; {nearest(name, known)}", path=path)
