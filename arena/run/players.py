"""The players of a tournament and their games: policies of configurations and of runs, frozen, with unique names.

A policy of a run has its newest checkpoint, or those that are named: `blue@5000` is blue as it was at tick 5000, by
a checkpoint or, of a league, a snapshot. A policy without checkpoints, such as a scripted one, plays as configured.
Policies of several runs with the same name are prefixed with the folder's name: `first.blue`, `second.blue`. Characters
that a policy's name cannot have are removed; if none is left, the configuration's name is used.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from arena import registry
from arena.config.decode import is_policy_name
from arena.config.fields import changed_values
from arena.config.matches import Match
from arena.config.members import Sides, separate_populations
from arena.config.schema import Env, Policy
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, pluralize
from arena.league.ratings.standings import POPULATIONS
from arena.league.sources import AnyConfig, Named, Source, split
from arena.plan.build import make_plan
from arena.plan.plan import MatchPlan
from arena.preflight.examine import make_game
from arena.preflight.external import refuse_external
from arena.preflight.outcomes import outcome_rule
from arena.records import checkpoint
from arena.records.folder import numbered
from arena.records.outcome import WITHOUT_OPPONENT

_NOT_IN_POPULATIONS = re.compile(r"[^A-Za-z0-9_.-]+")


class PlayersOf(NamedTuple):
    """A source of players, and which of its policies are named."""

    source: Source
    label: str  # its name among the sources
    named: list[str]  # as `blue` or `blue@5000`; empty text: all

    @property
    def chosen(self) -> list[Named]:
        """The policies that are named, or all, with their labels."""
        whole = [Named(policy, "") for policy in self.source.config.policies] if "" in self.named else []
        return [*whole, *(self.source.named(name) for name in self.named if name)]


def read_sources(targets: Sequence[AnyConfig], overrides: Sequence[str] = ()) -> list[PlayersOf]:
    """Configurations and runs, whole or as `RUN:POLICY@TICK`, with the same overrides; each has a label of its own."""
    found: dict[Path | int, PlayersOf] = {}
    for number, target in enumerate(targets):
        path = target if isinstance(target, (Path, str)) else None
        run, name = ("", "") if path is None else split(path)
        place = number if path is None else anchored(run).resolve()
        if place not in found:
            source = Source.of(target if path is None else run, overrides)
            with source.origin.located():
                registry.import_plugins(source.config.imports)
            label = source.config.name
            if source.folder is not None:
                label = _NOT_IN_POPULATIONS.sub("-", source.folder.path.resolve().name)[:60].strip("-._") or label
            found[place] = PlayersOf(source, label, [])
        known = found[place]
        if name in known.named:
            also = f", as {known.source.path} too" if known.source.path != run else ""
            raise ConfigError(f"is named twice{also}; no player meets itself: leave one out", source=str(target))
        known.named.append(name)
    labels, taken = {one.label for one in found.values()}, set[str]()
    for place, one in found.items():
        label = one.label
        if label in taken:
            label = next(name for name in numbered(label) if name not in labels | taken)
        taken.add(label)
        found[place] = one._replace(label=label)
    return [*found.values()]


# the players


def players_of(sources: Sequence[PlayersOf], labels: Sequence[str], *, untrained: bool = False) -> dict[str, Policy]:
    """The players of a tournament, frozen, by name: those that are named, or all of a source.

    The labels select checkpoints where a name does not: `first`, `last`, `best`, or a number of ticks. With `last`
    alone a player has the policy's name, else the tick is appended. `untrained` policies, which have no checkpoint,
    play with their first weights.
    """
    members, chosen = _members(sources), dict[str, Policy]()
    for of in sources:
        for named in of.chosen:
            if named.label:
                of.source.checkpoint(named)  # refuses it where the policy has no checkpoints
            which = [named.label] if named.label else labels
            chosen |= dict(_versions(_member(members, of, named.policy), which))
    if unusable := [name for name in chosen if not is_policy_name(name)]:
        raise ConfigError(f"the player {unusable[0]!r} would have a longer name than a policy can; rename its policy")
    for name in [name for name in chosen if name in members and members[name].source.files(members[name].policy)]:
        if (again := f"{name}@{checkpoint.ticks_of(Path(str(chosen[name].load)))}") in chosen:
            raise ConfigError(f"{again!r} has the same checkpoint as {name!r}, and would meet itself; leave one out")
    if len(chosen) < 2:
        raise ConfigError(
            f"a tournament needs two players, found {' and '.join(chosen) or 'none'}; name more runs, more "
            f"`--checkpoints`, or a configuration with other policies; {WITHOUT_OPPONENT}",
            source=", ".join(of.source.path for of in sources),
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


class _Member(NamedTuple):
    """A policy of a source, and its name among the policies of all sources."""

    name: str
    source: Source
    policy: str


def _members(sources: Sequence[PlayersOf]) -> dict[str, _Member]:
    """The chosen policies of all sources; a policy that is the same player in several sources counts once.

    It is if it has the same configuration, and no checkpoints. A name that several sources have gets their labels.
    """

    def same(one: Source, other: Source, name: str) -> bool:
        if one.files(name) or other.files(name):
            return False
        first, second = (
            msgspec.structs.replace(source.config.policies[name], color=None, frozen=True) for source in (one, other)
        )
        return first == second

    alike: dict[str, list[PlayersOf]] = {}
    for of in sources:
        for name in dict.fromkeys(named.policy for named in of.chosen):
            owners = alike.setdefault(name, [])
            if not any(same(before.source, of.source, name) for before in owners):
                owners.append(of)
    members: dict[str, _Member] = {}
    for policy, owners in alike.items():
        for of in owners:
            names = [policy] if len(owners) == 1 else (f"{label}.{policy}" for label in numbered(of.label))
            name = next(name for name in names if len(owners) == 1 or name not in {*alike, *members})
            members[name] = _Member(name, of.source, policy)
    return members


def _member(members: Mapping[str, _Member], of: PlayersOf, policy: str) -> _Member:
    """The policy of a source; that of an earlier source if it is the same player there."""
    owners = [member for member in members.values() if member.policy == policy]
    return next((member for member in owners if member.source is of.source), owners[0])


def _versions(member: _Member, labels: Sequence[str]) -> Iterator[tuple[str, Policy]]:
    """A policy with each of these checkpoints."""
    source, policy = member.source, member.policy
    if not source.files(policy):
        if source.folder is not None and source.config.policies[policy].learns:
            raise ConfigError(f"there is no checkpoint of {policy!r}, which learns", source=source.path)
        yield member.name, source.frozen(Named(policy, ""))
        return
    for label in labels:
        named = Named(policy, label)
        tick = checkpoint.ticks_of(source.checkpoint(named, path="--checkpoints"))
        yield member.name if tuple(labels) == ("last",) else f"{member.name}@{tick}", source.frozen(named)


def sides_of(sources: Sequence[PlayersOf], players: Collection[str]) -> Sides | None:
    """The players of each of two populations that only meet each other; None where there are not two."""
    members = _members(sources)
    known = {of.source: separate_populations(of.source.config) for of in sources}
    if not any(known.values()):
        return None
    found: tuple[list[str], list[str]] = ([], [])
    for name in players:
        member = members[name] if name in members else members[name.rpartition("@")[0]]
        sides = known[member.source]
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
                f"name players of the {POPULATIONS[place]} too"
            )
    return Sides(tuple(found[0]), tuple(found[1]))


# the games


def settings_of(sources: Sequence[Source]) -> tuple[Mapping[str, Env], tuple[Match, ...], bool]:
    """The games of all sources, and the matches in which two players can meet, or each plays alone.

    Returns:
        the environments, descriptions with two sides, and whether it is one side alone, a team; lanes are those of the
        first source.
    """
    found: list[dict[_Game, Match]] = []
    first: tuple[MatchPlan, ...] = ()
    team = False
    for source in sources:
        with source.origin.located():
            refuse_external(source.config)
            matches = make_plan(source.config).matches
            team = _has_one_team(matches[0]) if not first else team
            first = first or matches
            makes = [dict.fromkeys(match.game.make for match in one) for one in (matches, first)]
            if makes[0].keys().isdisjoint(makes[1]):
                mine, theirs = map(" and ".join, makes)
                there = sources[0].path or sources[0].config.name
                raise ConfigError(f"plays another game than {there}: game {mine}, there {theirs}")
            alone = next((match for match in matches if len(_sides(match)) != 2), None)
            if alone is not None and not team and len({match.game.make for match in matches}) > 1:
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
                                registry.written_out(match.game.make, match.game.kwargs),
                                match.game.wrapped_in,
                                [seat.entities for seat in match.seats],
                                _sides_of(match, team=team),
                                match.game.outcome,
                            )
                        ),
                    ): msgspec.structs.replace(entries[match.entry], sides=_sides_of(match, team=team), copies=1)
                    for match in matches  # each once, without its players
                }
            )
    for source, games in zip(sources[1:], found[1:], strict=True):
        difference = "" if set(found[0]) == set(games) else "its matches combine them differently"
        remedy, env = "", next(iter(games.values())).env
        for field in reversed(_Game._fields):  # the first one in the end
            ours, others = (list(dict.fromkeys(getattr(game, field) for game in one)) for one in (games, found[0]))
            if field == "kwargs" and len(ours) == len(others) == 1 and ours != others:
                changed = [*changed_values(json.loads(ours[0]), json.loads(others[0]))]
                if changed:
                    difference = "; ".join(f"{field}.{key} {mine}, there {theirs}" for key, mine, theirs in changed)
                    flags = (
                        shlex.quote(f"envs.{env}.kwargs.{key}={mine if theirs == 'not set' else theirs}")
                        for key, mine, theirs in changed
                    )
                    remedy = f", as with `{' '.join(f'--set {one}' for one in flags)}`, which holds for all of them"
            elif sorted(ours) != sorted(others):
                difference, remedy = f"{field} {' and '.join(ours)}, there {' and '.join(others)}", ""
        if difference:
            there = sources[0].path or sources[0].config.name
            message = f"plays another game than {there}: {difference}; all players need the same game{remedy}"
            raise ConfigError(message, source=source.path)
    return sources[0].config.envs, tuple(found[0].values()), team


class _Game(NamedTuple):
    """The properties of a match that have to be the same in all sources."""

    game: str
    kwargs: str
    wrappers: str
    entities: str
    sides: str
    outcome: str


def _has_one_team(match: MatchPlan) -> bool:
    """Whether one policy has all seats of a match, and no opponent: one seat, or a game without winners."""
    if len({*match.config.names}) > 1:
        return False
    if len(match.seats) == 1:
        return True
    if match.game.outcome is not None:
        return match.game.outcome == "none"
    with closing(make_game(match, 1)) as game:
        return outcome_rule(match, game.interface) == "none"


def _sides_of(match: MatchPlan, *, team: bool) -> Sequence[Sequence[int]] | None:
    """The seats of each of the two sides of a match; of a match of one `team` its own `sides`."""
    if team and len({*match.config.names}) == 1:
        return match.config.sides
    sides = _sides(match)
    if len(sides) == 2:
        return sides
    seats = f"of {pluralize(len(match.seats), 'seat')}, {'with' if match.sides else 'without'} `sides`"
    remedy = (
        "say `sides: [[0, ...], [...]]` where there are two, by the seats' places; if one policy has all seats of a "
        f"team, `--set envs.{match.env}.outcome=none` lets each player play alone; {WITHOUT_OPPONENT}"
    )
    raise ConfigError(f"a match {seats}; two players meet where there are two sides: {remedy}", path=match.path)


def _sides(match: MatchPlan) -> tuple[tuple[int, ...], ...]:
    """The seats of each side, as far as known: two seats are two sides."""
    return ((0,), (1,)) if len(match.seats) == 2 and not match.sides else match.sides
