"""What a later round may bring: which policies that learn may meet in it, and which of these meetings exclude others.

    knockout      one of those who may have come to a place of the bracket meets one of those at the place beside it
    swiss         anybody meets anybody, each player one other
    matchmaking   a learner meets so many of those that it may draw as they are; each learner draws for itself
    all others    the same as in the first round

Snapshots, and policies that do not learn, are left out: each of their workers is alone. So is what a learner has alone
in the matches that are drawn for it, as it has that in the first round too: itself to play with, or a team.

It is not asked how probable anything is, nor how few games there are to make it so: any players may win, and a rule may
draw any of those whom it can draw, as often as it draws others. Nor is it asked, where a circle takes so many pairings
of a Swiss tournament that two players or fewer are left, whether these can be paired as well, or rest. If they cannot,
they are those whom the first round left or paired, and its other pairings close a circle of the same policies too,
unless some of the matches between these are not in the first round.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from arena.config.check_league import gated
from arena.config.league import LeagueConfig
from arena.config.matches import (
    Exploiters,
    ExploitersRule,
    FictitiousRule,
    Generator,
    GeneratorEntry,
    KnockoutConfig,
    MatchConfig,
    MatchmakingConfig,
    PastSelvesRule,
    SwissConfig,
    generator_of,
    neighbours,
)
from arena.config.members import Bracket, brackets
from arena.plan.circles import Line

if TYPE_CHECKING:
    from arena.config.schema import Config


class Twice(NamedTuple):
    """Two policies that may have two matches together in a round; or one, twice, that may have two workers in a match.

    Args:
        path: of the entry.
        pair: the policies.
    """

    path: str
    pair: tuple[str, str]


Chance: TypeAlias = Line | Twice
"""A line leads from a policy to another, or to a match or a pair of places by way of which it may meet others.

Its label is the path of its entry. At a policy two lines are of a kind if it can only have one of the two matches.
"""


def generators_of(config: Config) -> Iterator[tuple[str, Generator]]:
    """The generators of a configuration with their places."""
    return ((path, generator_of(entry)) for path, entry in config.places() if not isinstance(entry, MatchConfig))


def telling_rounds(config: Config) -> list[int]:
    """The later rounds in which something may happen for the first time; none where all rounds are like the first.

    What matchmaking may bring is most in the first of them, when there may be no snapshots yet that would be drawn.
    """
    generators = [generator for _, generator in generators_of(config)]
    found = {1} if any(generator.adaptive for generator in generators) else set()
    for generator in generators:
        if isinstance(generator, KnockoutConfig):
            found |= {*range(1, generator.rounds + 1)}
        if isinstance(generator, SwissConfig):
            found.add(first_second_meeting(generator))
    return sorted(number for number in found if number < config.rounds)


def chances(config: Config, number: int, *, processes: int) -> Iterator[list[Chance]]:
    """All that a later round may bring, once for each way in which the byes of knockouts may have fallen.

    Args:
        config: of the league.
        number: of the round, at least 1.
        processes: how many the run has: with `scale: true` a round with few matches may be repeated.
    """
    made = _Round(config, number, _repetitions(config, number, processes) > 1)
    for ways in itertools.product(*(made.ways(path, entry) for path, entry in config.places())):
        yield [*itertools.chain.from_iterable(ways)]


def first_second_meeting(entry: SwissConfig) -> int:
    """A round before which nobody has to meet anybody again.

    Until then each of those who play has half of them left to meet, or one less if it has had no bye. All vertices of
    such a graph can be paired (Tutte 1947), unless it falls into two odd halves without an edge between them; but half
    of those who play have had a bye if anybody has. Of three, each has a bye before two meet again.
    """
    half, odd = divmod(len(entry.policies), 2)
    return 3 if half == odd else half + (half % 2 == 0 or odd)


def _repetitions(config: Config, number: int, processes: int) -> int:
    """How often `scale: true` plays all matches of a round; each round of a knockout has fewer."""
    roles = config.roles
    for _, generator in generators_of(config):
        if isinstance(generator, KnockoutConfig):
            left = -(-len(generator.policies) // 2**number)
            roles -= generator.roles // generator.pairings * (generator.pairings - left // 2)
    return (processes - 1) // roles if config.scale and roles else 1


@dataclass(frozen=True)
class _Round:
    """A later round.

    Args:
        config: of the league.
        number: of the round.
        repeated: whether every match is played more than once.
    """

    config: Config
    number: int
    repeated: bool

    def ways(self, path: str, entry: MatchConfig | GeneratorEntry) -> list[list[Chance]]:
        """What an entry of `matches` may bring, in each way in which its byes may have fallen."""
        if isinstance(entry, MatchConfig):
            return [[*self._of_match(path, 0, entry)]]
        generator = generator_of(entry)
        if isinstance(generator, KnockoutConfig):
            found = next(itertools.islice(brackets(generator.policies), self.number, None), [()])
            return [[*self._of_bracket(path, generator, bracket)] for bracket in found]
        if isinstance(generator, SwissConfig):
            return [[*self._of_swiss(path, generator)]]
        if isinstance(generator, MatchmakingConfig):
            return [[*self._of_matchmaking(path, generator)]]
        matches = enumerate(generator.matches())
        return [[chance for place, match in matches for chance in self._of_match(path, place, match)]]

    def _of_match(self, path: str, place: int, match: MatchConfig) -> Iterator[Chance]:
        """A match that every round has."""
        workers = Counter(name for name in match.names if self._learns(name))
        yield from (Twice(path, (name, name)) for name, count in workers.items() if count > 1)
        if match.copies > 1 or self.repeated:
            yield from (Twice(path, pair) for pair in itertools.combinations(workers, 2))
        yield from (Line((name, (path, place)), ((path, place), name), path) for name in workers)

    def _of_bracket(self, path: str, entry: KnockoutConfig, bracket: Bracket) -> Iterator[Chance]:
        for place, sides in enumerate(bracket):
            for one, other in itertools.product(*sides):
                yield from self._meeting(path, entry, (one, other), times=entry.turns * entry.copies)
            for side, names in enumerate(sides):
                yield from (Line((name, (path, place)), (path, side), path) for name in filter(self._learns, names))

    def _of_swiss(self, path: str, entry: SwissConfig) -> Iterator[Chance]:
        met = [] if self.number >= first_second_meeting(entry) else neighbours(entry.policies[entry.byes :])
        for pair in itertools.combinations(entry.policies, 2):
            if pair not in met:
                yield from self._meeting(path, entry, pair, times=entry.turns * entry.copies)
                if all(map(self._learns, pair)):
                    yield Line(pair, (path, path), path)

    def _of_matchmaking(self, path: str, entry: MatchmakingConfig) -> Iterator[Chance]:
        for learner in entry.policies:
            hand = drawn(self.config, entry, learner, self.number)
            for other in hand.others:
                yield from self._meeting(path, entry, (learner, other), times=entry.turns * hand.most)
                if self._learns(learner):
                    alone = (path, learner, other)
                    yield Line((learner, other), ((path, learner) if hand.most == 1 else alone, alone), path)

    def _meeting(self, path: str, entry: Generator, pair: tuple[str, str], *, times: int) -> Iterator[Twice]:
        """What two players may do twice who may have so many matches, in one round."""
        if entry.team_size > 1:
            yield from (Twice(path, (name, name)) for name in pair if self._learns(name))
        if (times > 1 or self.repeated) and all(map(self._learns, pair)):
            yield Twice(path, pair)

    def _learns(self, name: str) -> bool:
        return self.config.policies[name].learns


# ----------------------------------------------------------------------------------------------------- matchmaking


class Drawn(NamedTuple):
    """Whom a learner may draw as they are now."""

    others: tuple[str, ...] = ()  # that learn
    most: int = 0  # how many of its draws may be of these

    @classmethod
    def of(cls, others: tuple[str, ...], most: int) -> Drawn:
        """With nobody to draw, or no draw left, there is neither."""
        return cls(others, most) if others and most else cls()


def drawn(config: Config, entry: MatchmakingConfig, learner: str, number: int) -> Drawn:
    """Whom a learner may draw as they are in a later round, beside itself.

    Args:
        config: of the league.
        entry: one of its own.
        learner: one of its policies.
        number: of the round, at least 1.
    """
    snapshots = number >= (config.league or LeagueConfig()).snapshots.every  # of all who have played
    free = entry.copies - (snapshots and learner in gated(config))
    rule, learners = entry.rule, config.learners
    others = tuple(name for name in entry.members if name != learner and name in learners)
    if isinstance(rule, PastSelvesRule):
        return Drawn()
    if isinstance(rule, FictitiousRule):
        return Drawn.of(others, _at_most(free, 1 - rule.fictitious.self_play))
    if isinstance(rule, ExploitersRule):
        past = snapshots or bool({*entry.members} - learners)
        return _drawn_by_exploiters(rule.exploiters, learner, free, past=past)
    return Drawn.of(others, free)


def _drawn_by_exploiters(rule: Exploiters, learner: str, free: int, *, past: bool) -> Drawn:
    mains = tuple(name for name in rule.main if name != learner)
    if learner in rule.main:
        share = rule.self_play if past else 1
        each = _at_most(free, share / len(rule.main))
        return Drawn.of(mains, min(_at_most(free, share), each * len(mains)))
    return Drawn.of(() if past and learner in rule.league_exploiters else mains, free)


def _at_most(draws: int, share: float) -> int:
    """How many of some draws may be of those who have this share of them: to within one, see `systematic`."""
    return math.ceil(round(draws * share, 9))
