"""Who may meet whom in a league: whether its players can be compared at all by what they have won and lost."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from arena.config.matches import (
    FictitiousRule,
    GauntletConfig,
    Generator,
    MatchConfig,
    MatchmakingConfig,
    PastSelvesRule,
    RoundRobinConfig,
    Team,
    UncertaintyRule,
    generator_of,
)

if TYPE_CHECKING:
    from arena.config.schema import Config

Sum: TypeAlias = dict[str, Fraction]
"""A sum of strengths: of each policy so many times its own, and of what the first side is worth; none that is 0."""

_SIDE = ""  # no policy is called so
_WORTH_OF_SIDE: Sum = {_SIDE: Fraction(1)}


def comparable(config: Config) -> list[frozenset[str]]:
    """Policies in groups: the games that count can tell how two of one group differ in strength, but not two others.

    A game tells about one number, by how much the mean strength of the first side's players is above that of the
    other's, and what the first side is worth besides. So two can be compared if their difference is a sum of such
    numbers: they may meet from both sides, or others whom both may meet. Two who always play together cannot be, nor
    two of whom one always has the first side. Who plays no game that counts is in no group.
    """
    told: dict[str, Sum] = {}  # sums that are known, each by a policy that is in no other one
    for difference in _differences(config):
        if left := _reduced(difference, told):
            name, share = next(iter(left.items()))
            found = {other: times / share for other, times in left.items()}
            told = {other: _reduced(known, {name: found}) for other, known in told.items()} | {name: found}
    groups: defaultdict[frozenset[tuple[str, Fraction]], set[str]] = defaultdict(set)
    for name in dict.fromkeys(name for known in told.values() for name in known if name != _SIDE):
        groups[frozenset(_reduced({name: Fraction(1)}, told).items())].add(name)  # what is not known of it
    return [*map(frozenset, groups.values())]


def _reduced(given: Sum, told: Mapping[str, Sum]) -> Sum:
    """What is left of a sum without those that are known."""
    found = defaultdict(Fraction, given)
    for name, times in given.items():
        for other, share in told.get(name, {}).items():
            found[other] -= times * share
    return {name: times for name, times in found.items() if times}


def _differences(config: Config) -> Iterator[Sum]:
    for _, entry in config.places():
        if isinstance(entry, MatchConfig):
            sides = entry.known_sides
            ranked = config.envs[entry.env].outcome == "higher_return"  # then each two of any number of sides meet
            teams = [[entry.names[seat] for seat in side] for side in sides] or [[name] for name in entry.names]
            if len(sides) == 2 or ranked:
                yield from (_from_first(*pair) for pair in itertools.combinations(teams, 2))
        elif isinstance(generator := generator_of(entry), MatchmakingConfig):
            yield from _matched(generator, config)
        else:
            yield from _generated(generator)


def _difference(first: Sequence[str], second: Sequence[str]) -> Sum:
    """Of the mean strengths of two sides."""
    found: Sum = defaultdict(Fraction)
    for side, sign in ((first, 1), (second, -1)):
        for name in side:
            found[name] += Fraction(sign, len(side))
    return {name: times for name, times in found.items() if times}


def _from_first(first: Sequence[str], second: Sequence[str]) -> Sum:
    """What games tell in which the one team has the first side."""
    return {**_difference(first, second), **_WORTH_OF_SIDE}


def _generated(entry: Generator) -> Iterator[Sum]:
    """Of a generator whose players may all meet.

    The challengers of a gauntlet always have the first side, as has the first of two in a round robin. Elsewhere what a
    side is worth can be told by way of others, or is taken for so.
    """
    if isinstance(entry, GauntletConfig) and not entry.both_sides:
        yield from (_from_first((name,), entry.against[:1]) for name in entry.policies)
        yield from (_from_first(entry.policies[:1], (name,)) for name in entry.against[1:])
    elif isinstance(entry, RoundRobinConfig) and not entry.both_sides and len(entry.members) == 2:
        yield _from_first(entry.members[:1], entry.members[1:])
    else:
        yield from _all_of(entry.members)
        yield _WORTH_OF_SIDE


def _matched(entry: MatchmakingConfig, config: Config) -> Iterator[Sum]:
    """Those who may be drawn for each other; nobody for a learner that meets itself alone."""
    if _on_first_sides(entry, config):
        for learner in entry.policies:
            yield from (_from_first((learner,), (name,)) for name in entry.against)
        return
    yield _WORTH_OF_SIDE
    if not entry.draws_others:
        return
    if isinstance(entry.rule, PastSelvesRule):
        for learner in entry.policies:
            yield from _all_of((learner, *entry.against))
    else:
        yield from _all_of(entry.members)


def _on_first_sides(entry: MatchmakingConfig, config: Config) -> bool:
    """Whether learners always have the first side and never meet each other or themselves as they are.

    Their games say nothing of what the side is worth. For a gate they change sides.
    """
    if entry.both_sides or (config.league is not None and config.league.snapshots.gate is not None):
        return False
    if isinstance(entry.rule, PastSelvesRule):
        return not any(learner in entry.opening(learner, config.learners) for learner in entry.policies)
    if isinstance(entry.rule, FictitiousRule) and entry.rule.fictitious.self_play > 0:
        return False
    return isinstance(entry.rule, UncertaintyRule | FictitiousRule) and len(entry.policies) == 1


def _all_of(members: Team) -> Iterator[Sum]:
    """Of players each of whom may meet each other one, by themselves or by way of others."""
    return (_difference(members[:1], (other,)) for other in members[1:])
