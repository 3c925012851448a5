"""Queries about a configuration: which policies play, have snapshots, pass gates, evolve, and may take which seats.

A generator that depends on results gives its matches two sides. Which policies it can place on each side follows from
the configuration alone; a policy's snapshots count as the policy:

    knockout      all brackets that the winners can produce
    swiss, pairings    every policy on either side
    matchmaking   learners on the first side, the opponents of the rule on the second, as well as learners that have a
                  gate to pass; with `both_sides` all of them on either; of two populations each on its own
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from arena.config.league import EvolutionConfig, LeagueConfig
from arena.config.matches import (
    ExploitersRule,
    Generator,
    KnockoutConfig,
    MatchConfig,
    MatchmakingConfig,
    OwnPairings,
    SwissConfig,
    Team,
    generator_of,
)
from arena.errors import ConfigError

if TYPE_CHECKING:
    from arena.config.schema import Config


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
    found: set[str] = set()
    for _, entry in config.places():
        if isinstance(entry, MatchConfig):
            found |= {*entry.names}
        else:
            found |= {*generator_of(entry).members}
    return tuple(name for name in config.policies if name in found)


def apart(config: Config, *, told: bool = True) -> Sides | None:
    """Two populations that only meet each other, each always on the same side: predators and prey; None without such.

    Args:
        config: the whole configuration.
        told: whether the configuration has to say that they are two, by `versus` or by sides of unequal size; else it
            is enough that no policy is ever on the other side.
    """
    first, second, said = set[str](), set[str](), not told
    for _, entry in config.places():
        if isinstance(entry, MatchConfig):
            if len(entry.known_sides) != 2:
                return None
            first |= {*entry.team_of(0)}
            second |= {*entry.team_of(1)}
            said |= len(entry.team_of(0)) != len(entry.team_of(1))
            continue
        generator = generator_of(entry)
        if generator.adaptive:
            pair: tuple[Collection[str], Collection[str]] = sides_of(config, generator)
        else:
            matches = generator.matches()
            pair = tuple({name for match in matches for name in match.team_of(side)} for side in (0, 1))  # type: ignore[assignment]
        first |= {*pair[0]}
        second |= {*pair[1]}
        said |= generator.sizes[0] != generator.sizes[1]
        said |= isinstance(generator, MatchmakingConfig) and bool(generator.versus)
    if not said or first & second or not (first and second):
        return None
    return Sides(*(tuple(name for name in config.policies if name in side) for side in (first, second)))


def populations(config: Config, rule: EvolutionConfig) -> tuple[tuple[str, ...], ...]:
    """Groups of two or more policies of one algorithm that evolve together; by default of all that play and learn.

    Of two populations that only meet each other, each is a group of its own.
    """
    out = exploiters_of(config)
    learners = [name for name in players(config) if config.policies[name].learns and name not in out]
    sides = apart(config)
    alike: dict[tuple[str, bool], list[str]] = {}
    for name in learners if rule.policies is None else rule.policies:
        second = sides is not None and name in sides.second
        alike.setdefault((config.policies[name].algorithm, second), []).append(name)
    return tuple(tuple(names) for names in alike.values() if len(names) > 1)


def needs_winners(config: Config, env: str) -> list[str]:
    """The places of a configuration that depend on the winners of an environment's games."""
    found = []
    for path, entry in generators_of(config):
        if isinstance(entry, MatchmakingConfig):
            by_results = entry.options.by_results and entry.options.draws_others
        else:
            by_results = isinstance(entry, (KnockoutConfig, SwissConfig, OwnPairings))
        if entry.env == env and by_results:
            found.append(path)
    league = config.league or LeagueConfig()
    if any(entry.env == env for _, entry in matchmaking_of(config)):
        found += ["league.snapshots.gate"] * bool(gated(config))
        found += ["league.snapshots.keep_by"] * (league.snapshots.keep_by == "spread")
    if all(
        (entry if isinstance(entry, MatchConfig) else generator_of(entry)).env == env for _, entry in config.places()
    ):
        found += ["league.evolution.by"] * (league.evolution is not None and league.evolution.by == "rating")
        found += ["league.decided"] * (league.decided is not None)
    return found


def generators_of(config: Config) -> Iterator[tuple[str, Generator]]:
    """The generators of matches, with their places in the configuration."""
    return ((path, generator_of(entry)) for path, entry in config.places() if not isinstance(entry, MatchConfig))


def matchmaking_of(config: Config) -> Iterator[tuple[str, MatchmakingConfig]]:
    """The generators of matches that draw opponents, with their places in the configuration."""
    return ((path, entry) for path, entry in generators_of(config) if isinstance(entry, MatchmakingConfig))


def exploiters_of(config: Config) -> set[str]:
    """The policies that are trained to exploit others and begin anew after a while."""
    rules = [entry.rule.exploiters for _, entry in matchmaking_of(config) if isinstance(entry.rule, ExploitersRule)]
    return {name for rule in rules for name in (*rule.main_exploiters, *rule.league_exploiters)}


class Sides(NamedTuple):
    """The policies that may be on each side of a generator's matches, in the generator's order."""

    first: tuple[str, ...]
    second: tuple[str, ...]


def later_matches(config: Config) -> tuple[tuple[str, MatchConfig], ...]:
    """Matches that cover all seats which policies may take only in later rounds, with their places.

    A match has the copies of one pairing if a policy in it learns and has no seat in the first round; else one copy.
    """
    new = newcomers(config)
    found = [placed for number in range(1, len(config.listed)) for placed in config.entries(number)]
    for path, entry in config.places():
        generator = None if isinstance(entry, MatchConfig) else generator_of(entry)
        if generator is not None and generator.adaptive:
            for first, second in _unseen(generator, sides_of(config, generator), config.learners):
                learns = any(name in new and config.policies[name].learns for name in (first, second))
                of_pairing = 1 if isinstance(generator, MatchmakingConfig) else generator.copies
                copies = generator.turns * of_pairing if learns else 1
                found.append((path, generator.match(*generator.pair(first, second), copies=copies)))
    return tuple(found)


def check_drawn(config: Config) -> None:
    """Refuses opponents that are drawn only as snapshots, but never play, so that there are no snapshots.

    Raises:
        ConfigError: for the first such opponent, with its place.
    """
    present = _present(config)
    for path, entry in generators_of(config):
        if isinstance(entry, MatchmakingConfig):
            for index, name in enumerate(entry.against):
                if config.policies[name].learns and name not in present:
                    raise ConfigError(
                        f"{name!r} learns, so its snapshots would be drawn, but it never plays, so there are none; "
                        "seat it in a match, or make it one of the `policies`",
                        path=f"{path}.against[{index}]",
                    )


def _present(config: Config) -> set[str]:
    """The policies that play with their current weights in some round; the others never have snapshots."""
    found = {name for _, entry in config.places() if isinstance(entry, MatchConfig) for name in entry.names}
    for _, generator in generators_of(config):
        if isinstance(generator, MatchmakingConfig):
            for learner in generator.learners:
                found |= {learner, *generator.opponents(learner, config.learners, ())}
        else:
            found |= {*generator.members}
    return found


def newcomers(config: Config) -> frozenset[str]:
    """The policies that have no seat in the first round but may get one later."""
    seated = {name for _, match in config.entries() for name in match.names}
    adaptive = [entry for _, entry in generators_of(config) if entry.adaptive]
    return frozenset(name for entry in adaptive for side in sides_of(config, entry) for name in side) - seated


def sides_of(config: Config, generator: Generator) -> Sides:
    """The policies that may be on each side of a generator's matches.

    Args:
        config: the whole configuration.
        generator: a generator of it whose matches depend on results.
    """
    if isinstance(generator, KnockoutConfig):
        pairs = [pair for drawn in brackets(generator.policies) for bracket in drawn for pair in bracket]
        first, second = ({name for pair in pairs for name in pair[side]} for side in (0, 1))
    elif isinstance(generator, (SwissConfig, OwnPairings)):
        first = second = {*generator.policies}
    else:
        assert isinstance(generator, MatchmakingConfig), generator
        frozen = may_be_frozen(config)
        if generator.versus:
            return Sides(generator.policies, generator.versus)
        first = {*generator.policies}
        second = set().union(*(generator.opponents(name, config.learners, frozen) for name in generator.policies))
        second |= first & {*gated(config)}  # a learner alternates sides against its newest snapshot
    if generator.both_sides:
        first = second = first | second
    in_order = tuple(dict.fromkeys(generator.members))
    return Sides(*(tuple(name for name in in_order if name in side) for side in (first, second)))


def _unseen(generator: Generator, sides: Sides, learns: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs that fill the seats which policies do not take in the first round, with different policies if possible."""
    opening = [(match.names[0], match.names[-1]) for match in generator.matches(learns=learns)]
    seated = Sides(*([*zip(*opening, strict=True)] or [(), ()]))
    missing = [[name for name in side if name not in known] for side, known in zip(sides, seated, strict=True)]
    for name in missing[0]:
        other = _other(name, missing[1]) or _other(name, sides.second) or name
        if other in missing[1]:
            missing[1].remove(other)
        yield name, other
    for name in missing[1]:
        yield _other(name, sides.first) or name, name


def _other(name: str, names: Iterable[str]) -> str | None:
    return next((other for other in names if other != name), None)


# knockouts

_Slot = frozenset[tuple[str, int]]
"""The policies that may reach a place of a bracket, each with the number of its byes."""

Bracket: TypeAlias = tuple[tuple[Team, Team], ...]
"""Pairs of places, each with the policies that may reach it."""


def brackets(policies: Sequence[str]) -> Iterator[list[Bracket]]:
    """The possible pairings of each round of a knockout: one bracket for each possible distribution of byes."""
    found: list[tuple[_Slot, ...]] = [tuple(frozenset({(name, 0)}) for name in policies)]
    while found:
        drawn: list[Bracket] = []
        following: list[tuple[_Slot, ...]] = []
        for slots in found:
            for resting, playing in _rests(slots) if len(slots) % 2 else [((), slots)]:
                pairs = [(playing[place], playing[place + 1]) for place in range(0, len(playing), 2)]
                drawn.append(tuple((_names(upper), _names(lower)) for upper, lower in pairs))
                if len(resting) + len(pairs) > 1:
                    following.append((*resting, *(upper | lower for upper, lower in pairs)))
        yield drawn
        found = following


def _names(slot: _Slot) -> Team:
    return tuple(sorted({name for name, _ in slot}))


def _rests(slots: Sequence[_Slot]) -> Iterator[tuple[tuple[_Slot, ...], tuple[_Slot, ...]]]:
    """The policies that may have a bye (the first with the fewest), with the policies in the other places then."""
    for place, slot in enumerate(slots):
        for byes in {count for _, count in slot}:
            left = [
                frozenset((name, count) for name, count in other if count > byes or (count == byes and number >= place))
                for number, other in enumerate(slots)
            ]
            rests = frozenset((name, count + 1) for name, count in slot if count == byes)
            if all(left):
                yield (rests,), tuple(other for number, other in enumerate(left) if number != place)
