"""Queries about a configuration: which policies play, have snapshots, pass gates, evolve, and may take which seats.

A generator that depends on results gives its matches two sides, and may place every policy on either one; only the
opponents in `against` are always on the second side, and of two populations each has its own. A policy's snapshots
count as the policy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from arena.config.league import Evolution, League
from arena.config.matches import Exploiters, Generator, Knockout, Match, Matchmaking, Nash, Pairings, Swiss
from arena.config.schema import Config
from arena.errors import ConfigError

_OF_WINNERS = re.compile(
    r"(?:policy_win_rate|ratings)/([^/]+)\Z|evaluation/policies/([^/]+)/(?:games|wins|draws|losses)\Z"
)


def snapshotted(config: Config) -> tuple[str, ...]:
    """The policies whose snapshots join after some rounds: all that learn and can be drawn, except exploiters."""
    members = dict.fromkeys(name for _, entry in matchmaking_of(config) for name in entry.members)
    out = exploiters_of(config)
    return tuple(name for name in members if config.policies[name].learns and name not in out)


def may_be_frozen(config: Config) -> frozenset[str]:
    """The policies whose snapshots may play: `snapshotted`, and exploiters, whose snapshots join when they restart."""
    return frozenset(snapshotted(config)) | exploiters_of(config)


def gated(config: Config) -> tuple[str, ...]:
    """The policies whose snapshots join only after they pass a gate."""
    gate = None if config.league is None else config.league.snapshots.gate
    return () if gate is None else snapshotted(config)


def players(config: Config) -> tuple[str, ...]:
    """The policies that may play in any round, in the order of the configuration."""
    found = {name for _, entry in config.places() for name in entry.members}
    return tuple(name for name in config.policies if name in found)


def policy_of_player(player: str, config: Config) -> str | None:
    """The policy that a player is, or of which it is a snapshot; None: it is none of this configuration.

    In a tournament `blue@500` is a policy itself.
    """
    return next((name for name in (player, player.partition("@")[0]) if name in config.policies), None)


def separate_populations(config: Config, *, declared: bool = True) -> Sides | None:
    """Two populations that only meet each other, each always on the same side: predators and prey; None without such.

    Args:
        config: the whole configuration.
        declared: whether it has to say that they are two, by `versus` or by sides of unequal size; else it is enough
            that no policy is ever on the other side.
    """
    first, second, two = set[str](), set[str](), not declared
    for _, entry in config.places():
        sides: list[Collection[str]]
        if isinstance(entry, Generator) and entry.adaptive:
            sides = [*sides_of(config, entry)]
        else:
            matches = entry.matches()
            if any(len(match.known_sides) != 2 for match in matches):
                return None
            sides = [{name for match in matches for name in match.team_of(side)} for side in (0, 1)]
        first |= {*sides[0]}
        second |= {*sides[1]}
        if isinstance(entry, Match):
            two |= len(entry.team_of(0)) != len(entry.team_of(1))
        else:
            two |= entry.sizes[0] != entry.sizes[1] or (isinstance(entry, Matchmaking) and bool(entry.versus))
    if not two or first & second or not (first and second):
        return None
    return Sides(*(tuple(name for name in config.policies if name in side) for side in (first, second)))


def populations(config: Config, rule: Evolution) -> tuple[tuple[str, ...], ...]:
    """Groups of two or more policies of one algorithm that evolve together; by default of all that play and learn.

    Of two populations that only meet each other, each is a group of its own.
    """
    out = exploiters_of(config)
    learners = [name for name in players(config) if config.policies[name].learns and name not in out]
    sides = separate_populations(config)
    alike: dict[tuple[str, bool], list[str]] = {}
    for name in learners if rule.policies is None else rule.policies:
        second = sides is not None and name in sides.second
        alike.setdefault((config.policies[name].algorithm, second), []).append(name)
    return tuple(tuple(names) for names in alike.values() if len(names) > 1)


def needs_winners(config: Config, env: str) -> list[str]:
    """The places of a configuration that depend on the winners of an environment's games.

    A number of results does where the policy plays in no other environment.
    """
    found = []
    for path, entry in generators_of(config):
        if isinstance(entry, Matchmaking):
            by_results = entry.rule.by_results and entry.rule.draws_others
        else:
            by_results = isinstance(entry, (Knockout, Swiss, Pairings))
        if entry.env == env and by_results:
            found.append(path)
    for path, key in config.result_keys.items():
        if match := _OF_WINNERS.match(key):
            name = match[1] or match[2]
            name = name if name in config.policies else name.partition("#")[0]
            everywhere = match[2] and config.evaluation is not None and config.evaluation.seats
            played = {entry.env for _, entry in config.places() if everywhere or name in entry.members}
            found += [path] * (played == {env})
    league = config.league or League()
    if any(entry.env == env for _, entry in matchmaking_of(config)):
        found += ["league.snapshots.gate"] * bool(gated(config))
        found += ["league.snapshots.keep_by"] * (league.snapshots.keep_by == "spread")
    if all(entry.env == env for _, entry in config.places()):
        found += ["league.evolution.by"] * (league.evolution is not None and league.evolution.by == "rating")
        found += ["league.decided"] * (league.decided is not None)
    return found


def needs_rules(config: Config) -> bool:
    """Whether a run has to know who wins in its games."""
    return config.round_count > 1 or any(needs_winners(config, name) for name in config.envs)


def generators_of(config: Config) -> Iterator[tuple[str, Generator]]:
    """The generators of matches, with their places in the configuration."""
    return ((path, entry) for path, entry in config.places() if not isinstance(entry, Match))


def matchmaking_of(config: Config) -> Iterator[tuple[str, Matchmaking]]:
    """The generators of matches that draw opponents, with their places in the configuration."""
    return ((path, entry) for path, entry in generators_of(config) if isinstance(entry, Matchmaking))


def exploiters_of(config: Config) -> set[str]:
    """The policies that are trained to exploit others; their snapshots join when their rule says so."""
    found = set[str]()
    for _, entry in matchmaking_of(config):
        if isinstance(entry.rule, Exploiters):
            found |= {*entry.rule.main_exploiters, *entry.rule.league_exploiters}
        elif isinstance(entry.rule, Nash):
            found |= {*entry.learners}
    return found


class Sides(NamedTuple):
    """The policies that may be on each side of a generator's matches, in the generator's order."""

    first: Sequence[str]
    second: Sequence[str]


def later_matches(config: Config) -> tuple[tuple[str, Match], ...]:
    """Matches that seat every policy on every side that it may get after the first round, with their places.

    A match has the copies of one pairing if a policy in it learns and has no seat in the first round; else one copy.
    """
    found = [placed for number in range(1, len(config.listed)) for placed in config.entries(number)]
    seated = {name for _, match in config.entries() for name in match.names}
    for path, generator in generators_of(config):
        if not generator.adaptive:
            continue
        first, second = sides_of(config, generator)
        pairs = [(name, next((other for other in second if other != name), name)) for name in first]
        pairs += [(next((other for other in first if other != name), name), name) for name in second]
        for pair in dict.fromkeys(pairs):
            learns = any(name not in seated and config.policies[name].learns for name in pair)
            of_pairing = 1 if isinstance(generator, Matchmaking) else generator.copies
            copies = generator.turns * of_pairing if learns else 1
            found.append((path, generator.match(*generator.pair(*pair), copies=copies)))
    return tuple(found)


def seats_by_policy(config: Config) -> dict[str, set[int]]:
    """The places in matches that each policy may have in some round."""
    found: dict[str, set[int]] = {}
    for _, match in (*config.entries(), *later_matches(config)):
        for seat, name in enumerate(match.names):
            found.setdefault(name, set()).add(seat)
    return found


def check_drawn(config: Config) -> None:
    """Refuses opponents that are drawn only as snapshots, but never play, so that there are no snapshots."""
    present = set[str]()
    for _, entry in config.places():
        if isinstance(entry, Matchmaking) and not entry.rule.draws_current:
            present |= {*entry.policies}  # the others are drawn as snapshots alone
        else:
            present |= {*entry.members}
    for path, entry in matchmaking_of(config):
        for index, name in enumerate(entry.against):
            if config.policies[name].learns and name not in present:
                raise ConfigError(
                    f"{name!r} learns, so its snapshots would be drawn, but it never plays, so there are none; "
                    "seat it in a match, or make it one of the `policies`",
                    path=f"{path}.against[{index}]",
                )


def sides_of(config: Config, generator: Generator) -> Sides:
    """The policies that may be on each side of the matches of a generator, in any round that depends on results."""
    first = second = {*generator.policies}
    if isinstance(generator, Knockout) and generator.rounds == 1:
        return Sides(generator.policies[:1], generator.policies[1:])
    if isinstance(generator, Matchmaking):
        if generator.versus:
            return Sides(generator.policies, generator.versus)
        alone = len(first) == 1 and bool(generator.against) and not generator.rule.meets_itself
        second = {*(generator.against if alone else generator.members)}
        second |= first & {*gated(config)}  # a learner alternates sides against its newest snapshot
    compares = isinstance(generator, Matchmaking) and isinstance(generator.rule, Nash)  # any two that stay alike
    if generator.both_sides or compares:
        first = second = first | second
    in_order = tuple(dict.fromkeys(generator.members))
    return Sides(*(tuple(name for name in in_order if name in side) for side in (first, second)))
