"""Who can play in a tournament, and in what: policies of configurations and of runs, frozen, under names of their own.

A policy of a run has its newest checkpoint, or those that are asked for: `blue@5000` is blue as it was at tick 5000, by
a checkpoint or, of a league, a snapshot. A policy without any, as one that is scripted, plays as it is configured.
Policies of several runs that are called alike are told apart by their folders: `first.blue`, `second.blue`. A folder's
name loses what the name of a policy cannot have; where nothing is left it is that of the configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from arena.config.load import load_config
from arena.config.matches import MatchConfig
from arena.config.schema import Config, EnvConfig, PolicyConfig
from arena.errors import ConfigError, located, nearest, pluralize
from arena.league import rounds_file
from arena.league.rounds import Round
from arena.plan.build import make_plan
from arena.plan.plan import MatchPlan
from arena.records import checkpoint
from arena.records.folder import RunFolder

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_DIGITS = 18  # of a tick


class Source(NamedTuple):
    """A configuration, or a run with the one that it has.

    Args:
        label: what it is called.
        path: where it is, for messages.
        config: of it.
        rounds: that were planned; none where there is one round.
        folder: of the run; None: it is a configuration.
    """

    label: str
    path: str
    config: Config
    rounds: Sequence[Round] = ()
    folder: RunFolder | None = None

    def files(self, policy: str) -> dict[int, Path]:
        """What there is of a policy, by ticks: its checkpoints, and its snapshots."""
        if self.folder is None:
            return {}
        homes = (self.folder.snapshot_path(policy, 0).parent, self.folder.checkpoints_path(policy))
        return {checkpoint.ticks_of(file): file for home in homes for file in checkpoint.list_checkpoints(home)}


def read_sources(targets: Sequence[str]) -> list[Source]:
    """Configurations and run folders, each with a label of its own.

    Raises:
        ConfigError: one is no such thing, is damaged, or of another version of the arena; or it is named twice.
    """
    found = [_read(target) for target in targets]
    _check_different(found)
    asked, taken = {source.label for source in found}, set[str]()
    for place, source in enumerate(found):
        label = source.label if source.label not in taken else _free(source.label, asked | taken)
        taken.add(label)
        found[place] = source._replace(label=label)
    return found


def _check_different(sources: Sequence[Source]) -> None:
    known: dict[Path, str] = {}
    for source in sources:
        path = Path(source.path).resolve()
        if path in known:
            also = f", as {known[path]} too" if known[path] != source.path else ""
            raise ConfigError(f"is named twice{also}; its players would meet themselves", source=source.path)
        known[path] = source.path


def _free(label: str, taken: Container[str]) -> str:
    """A label with the first number that makes it one of its own."""
    return next(found for number in count(2) if (found := f"{label}-{number}") not in taken)


def _read(target: str) -> Source:
    if not Path(target).is_dir():
        config = load_config(target)
        return Source(config.name, target, config)
    folder = RunFolder(Path(target))
    if not folder.config.is_file():
        raise ConfigError("is no run folder: it has no config.yaml", source=target)
    config = load_config(folder.config)
    label = _NOT_IN_NAMES.sub("-", folder.path.resolve().name).strip("-._") or config.name
    return Source(label, target, config, rounds_file.read_played(folder, config), folder)


# who plays


def players_of(
    sources: Sequence[Source], labels: Sequence[str], asked: Sequence[str] = (), *, untrained: bool = False
) -> dict[str, PolicyConfig]:
    """The players of a tournament, frozen, by name.

    Args:
        sources: whose policies they are.
        labels: which checkpoints: `first`, `last`, or a number of ticks. Of `last` alone a player has the policy's
            name, else the tick behind it as well.
        asked: names of players, as `blue` or `blue@5000`; none: all.
        untrained: whether policies of configurations that learn may play with their first weights.

    Raises:
        ConfigError: there is no such player or checkpoint, one has learnt nothing, or there are fewer than two players.
    """
    members = _members(sources)
    everybody = {name: play for member in members.values() for name, play in _versions(member, labels)}
    chosen = dict(_chosen(name, everybody, members) for name in asked) if asked else everybody
    if len(chosen) < 2:
        raise ConfigError(
            f"a tournament needs two players, found {' and '.join(chosen) or 'none'}; name more runs, more "
            "`--checkpoints`, or a configuration with other policies",
            source=", ".join(source.path for source in sources),
        )
    if not untrained:
        _check_trained([members[name] for name in chosen if name in members])
    return chosen


def _check_trained(members: Sequence[_Member]) -> None:
    """Refuses policies of configurations that would play with their first weights."""
    policies = {member.name: member.source.config.policies[member.policy] for member in members}
    fresh = [
        member
        for member in members
        if member.source.folder is None and policies[member.name].learns and policies[member.name].load is None
    ]
    if fresh:
        more = f" (also {', '.join(member.policy for member in fresh[1:4])})" if len(fresh) > 1 else ""
        raise ConfigError(
            f"learns and has no checkpoint{more}, so that its first weights would be ranked; give it `load:`, "
            "name a run folder in place of the configuration, say `frozen: true` if it has nothing to learn, or use "
            "`--untrained`",
            path=f"policies.{fresh[0].policy}",
            source=fresh[0].source.path,
        )


def player_of(source: Source, name: str) -> PolicyConfig:
    """One policy of a source, frozen: with its newest checkpoint, or as it was at the tick that its name ends with.

    Raises:
        ConfigError: there is no such policy or checkpoint.
    """
    members = _members([source])
    everybody = {found: play for member in members.values() for found, play in _versions(member, ("last",))}
    return _chosen(name, everybody, members, path="--policy")[1]


class _Member(NamedTuple):
    """A policy of a source, and what it is called among those of all sources."""

    name: str
    source: Source
    policy: str

    def at(self, tick: int | None) -> PolicyConfig:
        """It as a player, with what it had learnt at a tick; None: as it is configured."""
        policy = self.source.config.policies[self.policy]
        file = None if tick is None else self.source.files(self.policy)[tick]
        options = rounds_file.options_at(self.source.rounds, tick or 0).get(self.policy, policy.options)
        with located(path=f"policies.{self.policy}.load", source=self.source.path):
            load = resolved_load(policy, self.policy) if file is None else str(file.resolve())
        return msgspec.structs.replace(policy, frozen=True, load=load, options=options)


def resolved_load(policy: PolicyConfig, name: str) -> str | None:
    """What a policy's own `load` means under its own name: it may play under another one, and elsewhere.

    Raises:
        ConfigError: there is no such checkpoint.
    """
    return None if policy.load is None else str(checkpoint.find(policy.load, name).resolve())


def _members(sources: Sequence[Source]) -> dict[str, _Member]:
    """The policies of all sources; one that is in several and plays alike in all of them is one."""
    found = [(source, name) for source in sources for name in source.config.policies]
    alike: dict[str, list[tuple[Source, str]]] = {}
    for source, name in found:
        known = alike.setdefault(name, [])
        if not any(_same(before, source, name) for before, _ in known):
            known.append((source, name))
    members: dict[str, _Member] = {}
    for policy, owners in alike.items():
        for source, _ in owners:
            name = policy if len(owners) == 1 else _player(source, policy, {*alike, *members})
            members[name] = _Member(name, source, policy)
    return members


def _player(source: Source, policy: str, taken: Container[str]) -> str:
    """The name of a policy that several sources have; another source may have a policy that is called so."""
    names = (f"{source.label}{number}.{policy}" for number in chain([""], (f"-{again}" for again in count(2))))
    return next(name for name in names if name not in taken)


def _same(one: Source, other: Source, name: str) -> bool:
    """Whether a policy is the same player in two sources: it is configured alike, and nothing was learnt."""
    if one.files(name) or other.files(name):
        return False
    first, second = (
        msgspec.structs.replace(source.config.policies[name], color=None, frozen=True) for source in (one, other)
    )
    return first == second


def _versions(member: _Member, labels: Sequence[str]) -> Iterator[tuple[str, PolicyConfig]]:
    """A policy with each of the checkpoints that are asked for."""
    files = sorted(member.source.files(member.policy))
    if not files:
        if member.source.folder is not None and member.source.config.policies[member.policy].learns:
            raise ConfigError(f"there is no checkpoint of {member.policy!r}, which learns", source=member.source.path)
        yield member.name, member.at(None)
        return
    known = {"first": files[0], "last": files[-1], **{str(tick): tick for tick in files}}
    for label in labels:
        if label not in known:
            raise ConfigError(
                f"there is no checkpoint {label!r} of {member.policy!r}; {nearest(label, known)}",
                path="--checkpoints",
                source=member.source.path,
            )
        tick = known[label]
        yield member.name if tuple(labels) == ("last",) else f"{member.name}@{tick}", member.at(tick)


def _chosen(
    name: str, everybody: Mapping[str, PolicyConfig], members: Mapping[str, _Member], *, path: str = "--players"
) -> tuple[str, PolicyConfig]:
    policy, _, tick = name.partition("@")
    ticks = members[policy].source.files(members[policy].policy) if policy in members else {}
    if tick.isascii() and tick.isdecimal() and len(tick) <= _MOST_DIGITS and int(tick) in ticks:
        return f"{policy}@{int(tick)}", members[policy].at(int(tick))
    known = [*everybody, *(f"{policy}@{found}" for found in sorted(ticks))]
    if name not in everybody:
        raise ConfigError(f"there is no player {name!r}; {nearest(name, known)}", path=path)
    return name, everybody[name]


# in what they play


def settings_of(sources: Sequence[Source]) -> tuple[Mapping[str, EnvConfig], tuple[MatchConfig, ...]]:
    """The games of all sources, and in which matches two players can meet there, whoever sits in them.

    Returns:
        the environments, and descriptions with two sides; lanes are those of the first source.

    Raises:
        ConfigError: the sources play different games, or matches that do not have two sides.
    """
    found = [_settings(source) for source in sources]
    for source, own in zip(sources[1:], found[1:], strict=True):
        difference = _difference(list(found[0]), list(own))
        if difference:
            raise ConfigError(
                f"plays another game than {sources[0].path}: {difference}; players meet in one and the same",
                source=source.path,
            )
    return sources[0].config.envs, tuple(found[0].values())


class _Game(NamedTuple):
    """What has to be the same for two players to meet in it."""

    game: str
    kwargs: str
    wrappers: str
    entities: str
    sides: str
    outcome: str


def _settings(source: Source) -> dict[_Game, MatchConfig]:
    """Each match of a source once, without its players."""
    with located(source=source.path):
        plan = make_plan(source.config)
        _check_games(plan.matches)
        entries = [entry for _, entry in source.config.entries()]
        return {_game(match): _setting(match, entries[match.entry]) for match in plan.matches}


def _check_games(matches: Sequence[MatchPlan]) -> None:
    """Refuses several games of which one cannot be played by two: sides would not make its players meet the others."""
    names = list(dict.fromkeys(match.env for match in matches))
    alone = next((match for match in matches if len(_sides(match)) != 2), None)
    if alone is not None and len({match.make for match in matches}) > 1:
        raise ConfigError(
            f"plays several games ({', '.join(names)}), and a match of {alone.env!r} has not two sides; a tournament "
            "is of one game: write a configuration of that game alone, whose policies `load:` the checkpoints",
            path=alone.path,
        )


def _game(match: MatchPlan) -> _Game:
    return _Game(
        match.make,
        _words(match.env_kwargs),
        _words([[name, argument] for name, argument in match.wrappers]),
        _words([list(seat.entities) for seat in match.seats]),
        _words([list(side) for side in two_sides(match)]),
        _words(match.outcome),
    )


def _setting(match: MatchPlan, entry: MatchConfig) -> MatchConfig:
    return msgspec.structs.replace(entry, sides=two_sides(match), copies=1)


def two_sides(match: MatchPlan) -> tuple[tuple[int, ...], ...]:
    """The seats of each of the two sides of a match.

    Raises:
        ConfigError: it does not have two, or nobody knows which.
    """
    sides = _sides(match)
    if len(sides) == 2:
        return sides
    seats = f"of {pluralize(len(match.seats), 'seat')}, {'with' if match.sides else 'without'} `sides`"
    alone = len(match.seats) == 1
    remedy = "" if alone else ": say `sides: [[0, ...], [...]]` where there are two, by the seats' places"
    raise ConfigError(f"a match {seats}; two players meet where there are two sides{remedy}", path=match.path)


def _sides(match: MatchPlan) -> tuple[tuple[int, ...], ...]:
    """The seats of each side, as far as they are known: two seats are two sides."""
    return ((0,), (1,)) if len(match.seats) == 2 and not match.sides else match.sides


def _difference(first: Sequence[_Game], other: Sequence[_Game]) -> str:
    """What differs between the games of two sources, in the first of these respects; empty if nothing does."""
    for field in _Game._fields:
        known, found = (list(dict.fromkeys(getattr(game, field) for game in games)) for games in (first, other))
        if sorted(known) != sorted(found):
            return f"{field} {_and(found)}, there {_and(known)}"
    return "" if set(first) == set(other) else "its matches combine them differently"


def _and(words: Sequence[str]) -> str:
    return " and ".join(words)


def _words(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)
