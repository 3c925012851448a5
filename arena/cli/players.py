"""The players of a tournament and their games: policies of configurations and of runs, frozen, with unique names.

A policy of a run has its newest checkpoint, or those that are asked for: `blue@5000` is blue as it was at tick 5000, by
a checkpoint or, of a league, a snapshot. A policy without checkpoints, such as a scripted one, plays as configured.
Policies of several runs with the same name are prefixed with the folder's name: `first.blue`, `second.blue`. Characters
that a policy's name cannot have are removed; if none is left, the configuration's name is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from arena.config.load import load_config
from arena.config.matches import MatchConfig
from arena.config.members import Sides, separate_populations
from arena.config.schema import Config, EnvConfig, PolicyConfig
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, located, nearest, pluralize
from arena.league import rounds_file
from arena.league.ratings.standings import POPULATIONS
from arena.plan.build import make_plan
from arena.plan.plan import MatchPlan
from arena.preflight.external import refuse_external
from arena.records import checkpoint
from arena.records.folder import RunFolder, numbered
from arena.records.formats import Round
from arena.run.opponents import labeled_versions, policy_versions

_NOT_IN_POPULATIONS = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_DIGITS = 18  # of a tick


class Source(NamedTuple):
    """A configuration, or a run with its configuration."""

    label: str  # its name among the sources
    path: str  # of its file or folder, for messages
    config: Config
    rounds: Sequence[Round] = ()  # that were planned; none if there is only one round
    folder: RunFolder | None = None  # of the run; None: it is a configuration

    def files(self, policy: str) -> dict[int, Path]:
        """The checkpoints and snapshots of a policy, by ticks."""
        return {} if self.folder is None else policy_versions(self.folder, policy)


def read_sources(targets: Sequence[str], overrides: Sequence[str] = ()) -> list[Source]:
    """Configurations and run folders with the same overrides, each with a label that no other one has."""
    found: list[Source] = []
    known: dict[Path, str] = {}
    for target in targets:
        path = anchored(target).resolve()
        folder = RunFolder.of_target(target)
        config = load_config(target if folder is None else folder.config, overrides)
        label = config.name
        rounds: Sequence[Round] = ()
        if folder is not None:
            label = _NOT_IN_POPULATIONS.sub("-", folder.path.resolve().name).strip("-._") or config.name
            rounds = rounds_file.read_played(folder, config)
        if path in known:
            also = f", as {known[path]} too" if known[path] != target else ""
            raise ConfigError(f"is named twice{also}; its players would meet themselves", source=target)
        known[path] = target
        found.append(Source(label, target, config, rounds, folder))
    labels, taken = {source.label for source in found}, set[str]()
    for place, source in enumerate(found):
        label = source.label
        if label in taken:
            label = next(name for name in numbered(label) if name not in labels | taken)
        taken.add(label)
        found[place] = source._replace(label=label)
    return found


# the players


def players_of(
    sources: Sequence[Source], labels: Sequence[str], named: Sequence[str] = (), *, untrained: bool = False
) -> dict[str, PolicyConfig]:
    """The players of a tournament, frozen, by name: those that are `named`, as `blue` or `blue@5000`; none: all.

    The labels select checkpoints: `first`, `last`, or a number of ticks. With `last` alone a player has the policy's
    name, else the tick is appended. `untrained` policies, which have no checkpoint, play with their first weights.
    """
    members = _members(sources)
    known_players = {name: play for member in members.values() for name, play in _versions(member, labels)}
    chosen = dict(_chosen(name, known_players, members) for name in named) if named else known_players
    if len(chosen) < 2:
        raise ConfigError(
            f"a tournament needs two players, found {' and '.join(chosen) or 'none'}; name more runs, more "
            "`--checkpoints`, or a configuration with other policies",
            source=", ".join(source.path for source in sources),
        )
    fresh = [
        member
        for member in (members[name] for name in chosen if name in members)
        if member.source.folder is None
        and (policy := member.source.config.policies[member.policy]).learns
        and policy.load is None
    ]
    if fresh and not untrained:
        more = f" (also {', '.join(member.policy for member in fresh[1:4])})" if len(fresh) > 1 else ""
        raise ConfigError(
            f"learns and has no checkpoint{more}, so that its first weights would be ranked; give it `load:`, "
            "name a run folder in place of the configuration, say `frozen: true` if it has nothing to learn, or use "
            "`--untrained`",
            path=f"policies.{fresh[0].policy}",
            source=fresh[0].source.path,
        )
    return chosen


def player_of(source: Source, name: str) -> PolicyConfig:
    """One policy of a source, frozen: with its newest checkpoint, or as it was at the tick that its name ends with."""
    members = _members([source])
    known_players = {found: play for member in members.values() for found, play in _versions(member, ("last",))}
    return _chosen(name, known_players, members, path="--policy")[1]


class _Member(NamedTuple):
    """A policy of a source, and its name among the policies of all sources."""

    name: str
    source: Source
    policy: str

    def at(self, tick: int | None) -> PolicyConfig:
        """The policy as a player, with its checkpoint at a tick; None: as configured."""
        policy = self.source.config.policies[self.policy]
        file = None if tick is None else self.source.files(self.policy)[tick]
        options = rounds_file.options_at(self.source.rounds, tick or 0).get(self.policy, policy.options)
        with located(path=f"policies.{self.policy}.load", source=self.source.path):
            # The file that its own `load` names, as the policy may play under another name and elsewhere.
            file = checkpoint.find(policy.load, self.policy) if file is None and policy.load is not None else file
            load = None if file is None else str(file.resolve())
        return msgspec.structs.replace(policy, frozen=True, load=load, options=options)


def _members(sources: Sequence[Source]) -> dict[str, _Member]:
    """The policies of all sources; a policy that is the same player in several sources counts once.

    It is if it has the same configuration, and no checkpoints. A name that several sources have gets their labels.
    """

    def same(one: Source, other: Source, name: str) -> bool:
        if one.files(name) or other.files(name):
            return False
        first, second = (
            msgspec.structs.replace(source.config.policies[name], color=None, frozen=True) for source in (one, other)
        )
        return first == second

    alike: dict[str, list[Source]] = {}
    for source in sources:
        for name in source.config.policies:
            owners = alike.setdefault(name, [])
            if not any(same(before, source, name) for before in owners):
                owners.append(source)
    members: dict[str, _Member] = {}
    for policy, owners in alike.items():
        for source in owners:
            names = [policy] if len(owners) == 1 else (f"{label}.{policy}" for label in numbered(source.label))
            name = next(name for name in names if len(owners) == 1 or name not in {*alike, *members})
            members[name] = _Member(name, source, policy)
    return members


def _versions(member: _Member, labels: Sequence[str]) -> Iterator[tuple[str, PolicyConfig]]:
    """A policy with each of these checkpoints."""
    files = sorted(member.source.files(member.policy))
    if not files:
        if member.source.folder is not None and member.source.config.policies[member.policy].learns:
            raise ConfigError(f"there is no checkpoint of {member.policy!r}, which learns", source=member.source.path)
        yield member.name, member.at(None)
        return
    folder = member.source.folder
    known = {} if folder is None else labeled_versions(folder, member.policy)
    for label in labels:
        if label not in known:
            raise ConfigError(
                f"there is no checkpoint {label!r} of {member.policy!r}; {nearest(label, known)}",
                path="--checkpoints",
                source=member.source.path,
            )
        tick = checkpoint.ticks_of(known[label])
        yield member.name if tuple(labels) == ("last",) else f"{member.name}@{tick}", member.at(tick)


def _chosen(
    name: str, known_players: Mapping[str, PolicyConfig], members: Mapping[str, _Member], *, path: str = "--players"
) -> tuple[str, PolicyConfig]:
    policy, _, tick = name.partition("@")
    ticks = members[policy].source.files(members[policy].policy) if policy in members else {}
    if tick.isascii() and tick.isdecimal() and len(tick) <= _MOST_DIGITS and int(tick) in ticks:
        return f"{policy}@{int(tick)}", members[policy].at(int(tick))
    names = [*known_players, *(f"{policy}@{found}" for found in sorted(ticks))]
    if name not in known_players:
        raise ConfigError(f"there is no player {name!r}; {nearest(name, names)}", path=path)
    return name, known_players[name]


def sides_of(sources: Sequence[Source], players: Collection[str]) -> Sides | None:
    """The players of each of two populations that only meet each other; None where there are not two."""
    members = _members(sources)
    known = {source.path: separate_populations(source.config) for source in sources}
    if not any(known.values()):
        return None
    found: tuple[list[str], list[str]] = ([], [])
    for name in players:
        member = members[name] if name in members else members[name.rpartition("@")[0]]
        sides = known[member.source.path]
        place = next((number for number, side in enumerate(sides or ()) if member.policy in side), None)
        if place is None:
            raise ConfigError(
                f"{name!r} is on neither side of a match, and the other players are of two populations that only meet "
                "each other",
                source=member.source.path,
            )
        found[place].append(name)
    for place, names in enumerate(found):
        if not names:
            raise ConfigError(
                f"all players are of one population, which has the {POPULATIONS[1 - place]} and never meets itself; "
                f"name players of the {POPULATIONS[place]} too",
                path="--players",
            )
    return Sides(tuple(found[0]), tuple(found[1]))


# the games


def settings_of(sources: Sequence[Source]) -> tuple[Mapping[str, EnvConfig], tuple[MatchConfig, ...]]:
    """The games of all sources, and the matches in which two players can meet there.

    Returns:
        the environments, and descriptions with two sides; lanes are those of the first source.
    """
    found = []
    for source in sources:
        with located(source=source.path):
            refuse_external(source.config)
            matches = make_plan(source.config).matches
            alone = next((match for match in matches if len(_sides(match)) != 2), None)
            if alone is not None and len({match.game.make for match in matches}) > 1:
                names = ", ".join(dict.fromkeys(match.env for match in matches))
                raise ConfigError(
                    f"plays several games ({names}), and a match of {alone.env!r} has not two sides; a tournament is "
                    "of one game: write a configuration of that game alone, whose policies `load:` the checkpoints",
                    path=alone.path,
                )
            entries = [entry for _, entry in source.config.entries()]
            found.append(
                {
                    _Game(
                        match.game.make,
                        *(
                            json.dumps(value, sort_keys=True, default=repr)
                            for value in (
                                match.game.kwargs,
                                match.game.wrapped_in,
                                [seat.entities for seat in match.seats],
                                two_sides(match),
                                match.game.outcome,
                            )
                        ),
                    ): msgspec.structs.replace(entries[match.entry], sides=two_sides(match), copies=1)
                    for match in matches  # each once, without its players
                }
            )
    for source, games in zip(sources[1:], found[1:], strict=True):
        difference = "" if set(found[0]) == set(games) else "its matches combine them differently"
        for field in reversed(_Game._fields):  # the first one in the end
            here, there = (list(dict.fromkeys(getattr(game, field) for game in one)) for one in (games, found[0]))
            if sorted(here) != sorted(there):
                difference = f"{field} {' and '.join(here)}, there {' and '.join(there)}"
        if difference:
            raise ConfigError(
                f"plays another game than {sources[0].path}: {difference}; players meet in one and the same",
                source=source.path,
            )
    return sources[0].config.envs, tuple(found[0].values())


class _Game(NamedTuple):
    """The properties of a match that have to be the same in all sources."""

    game: str
    kwargs: str
    wrappers: str
    entities: str
    sides: str
    outcome: str


def two_sides(match: MatchPlan) -> tuple[tuple[int, ...], ...]:
    """The seats of each of the two sides of a match."""
    sides = _sides(match)
    if len(sides) == 2:
        return sides
    seats = f"of {pluralize(len(match.seats), 'seat')}, {'with' if match.sides else 'without'} `sides`"
    alone = len(match.seats) == 1
    remedy = "" if alone else ": say `sides: [[0, ...], [...]]` where there are two, by the seats' places"
    raise ConfigError(f"a match {seats}; two players meet where there are two sides{remedy}", path=match.path)


def _sides(match: MatchPlan) -> tuple[tuple[int, ...], ...]:
    """The seats of each side, as far as known: two seats are two sides."""
    return ((0,), (1,)) if len(match.seats) == 2 and not match.sides else match.sides
