"""Who plays whom: match descriptions, and generators that stand for many of them.

A generator makes the match descriptions of each round of a run. Those of the first round follow from the generator
alone. `round_robin`, `gauntlet` and `mixtures` are fixed: they make the same in every round. `knockout`, `swiss`,
`matchmaking` and `pairings` are adaptive: what they make later depends on what has been played; see
`arena.league.pairings`. No later round has more matches of a generator than the first one.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from arena.config.fields import (
    MOST_ROLES,
    Amount,
    Count,
    Halves,
    Keyed,
    Keys,
    ListOf,
    MapOf,
    Natural,
    Share,
    ShortForm,
    Target,
    Text,
)
from arena.errors import ConfigError

SeatEntry: TypeAlias = str | ListOf[str]
Team: TypeAlias = tuple[str, ...]
Pair: TypeAlias = tuple[Team, Team]
SideSizes: TypeAlias = ListOf[Count | ListOf[Natural | Text]]
Opening: TypeAlias = ListOf[ListOf[SeatEntry]]
ClassName: TypeAlias = Annotated[str, Meta(pattern=":")]  # "package.module:Class"
Sides: TypeAlias = ListOf[ListOf[Natural]]

NO_SNAPSHOTS: Mapping[str, str] = MappingProxyType({})


def policy_of(seat: SeatEntry) -> str:
    """The policy of an entry of `seats`, which a list names once for each of the seat's entities."""
    return seat if isinstance(seat, str) else seat[0]


def reseated(seat: SeatEntry, policy: str) -> SeatEntry:
    """An entry of `seats` for another policy."""
    return policy if isinstance(seat, str) else (policy,) * len(seat)


class MatchSeats(ShortForm, frozen=True, kw_only=True):
    """A mapping with the key `seats`, in which `blue*50` stands for fifty entries `blue`."""

    @classmethod
    def spelled_out(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(value.get("seats"), (list, tuple)):
            return value

        def repeated(entries: Sequence[Any], path: str) -> list[Any]:
            found: list[Any] = []
            for index, entry in enumerate(entries):
                place = f"{path}[{index}]"
                if isinstance(entry, (list, tuple)):
                    found.append(repeated(entry, place))
                elif isinstance(entry, str) and "*" in entry:
                    name, _, times = (part.strip() for part in entry.rpartition("*"))
                    if not times.isdecimal() or not 1 <= int(times) <= MOST_ROLES:
                        expected = f"a number from 1 to {MOST_ROLES} after the '*', as in '{name}*50'"
                        raise ConfigError(f"found {entry!r}; expected {expected}", path=place)
                    found += [name] * int(times)
                else:
                    found.append(entry)
            return found

        return {**value, "seats": repeated(value["seats"], "seats")}


class Match(MatchSeats, frozen=True, kw_only=True):
    """One entry of `matches`: a game and the policies that play it."""

    env: str
    """a name of `envs`"""
    seats: ListOf[SeatEntry]
    """i-th entry: policy of entity i; blue*50: fifty such; a list: one worker drives them"""
    entities: ListOf[Natural | Text] | None = None
    """what the entries stand for; null: 0, 1, 2, ..."""
    sides: Sides | None = None
    """seats that play together, by their places; null: those of each policy, if two play"""
    env_kwargs: MapOf[Any] = {}
    """over the environment's kwargs, for this match and its copies"""
    copies: Count = 1
    """identical matches made from this description"""
    lanes: Count = 1
    """environment instances that each match steps together"""
    pipeline: Halves = 1
    """2: in two halves, one is stepped while the workers compute actions for the other"""

    adaptive: ClassVar[bool] = False

    @property
    def names(self) -> Team:
        """The policy of each seat."""
        return tuple(map(policy_of, self.seats))

    members = names  # as a generator's: all policies that may play

    @property
    def roles(self) -> int:
        """Environments and workers of all copies."""
        return self.copies * (1 + len(self.seats))

    def matches(self, *, learns: Collection[str] = ()) -> tuple[Match, ...]:
        """The match alone: what a generator writes out."""
        return (self,)

    @property
    def known_sides(self) -> tuple[tuple[int, ...], ...]:
        """The seats of each side, by their indices: `sides`, else one side for each of two policies, else none."""
        if self.sides is not None:
            return tuple(map(tuple, self.sides))
        policies = dict.fromkeys(self.names)
        if len(policies) != 2:
            return ()
        return tuple(tuple(seat for seat, name in enumerate(self.names) if name == policy) for policy in policies)

    def team_of(self, side: int) -> Team:
        """The policy of each seat of a side, by its number."""
        return tuple(self.names[seat] for seat in self.known_sides[side])


class Generator(Keyed, frozen=True, kw_only=True):
    """The keys that all generators of matches have."""

    env: str
    """a name of `envs`"""
    policies: ListOf[str]
    """names of `policies`: two or more, or where there is an `against` one or more"""
    team_size: Count = 1
    """seats of each side"""
    sides: SideSizes | None = None
    """seats of either side, as [3, 1], or the entities of either; null: `team_size`"""
    copies: Count = 1
    """of each pairing"""
    lanes: Count = 1
    """of each match"""
    pipeline: Halves = 1
    """2: each match steps its lanes in two halves"""
    both_sides: bool = False
    """each pairing with the sides exchanged as well"""
    env_kwargs: MapOf[Any] = {}
    """over the environment's kwargs"""
    fewest: ClassVar[int] = 2  # policies
    adaptive: ClassVar[bool] = False  # whether later rounds depend on results

    @property
    def members(self) -> Team:
        """All policies that may play in some round."""
        return tuple(self.policies)

    @property
    @abstractmethod
    def pairings(self) -> int:
        """How many pairs the first round has, counted without writing them out."""

    @property
    def roles(self) -> int:
        """Environments and workers of the first round, which no later one exceeds."""
        return self.pairings * self.turns * self.copies * (1 + sum(self.sizes))

    @property
    def sizes(self) -> tuple[int, int]:
        """The seats of the first side and of the second."""
        if self.sides is None:
            return self.team_size, self.team_size
        first, second = (side if isinstance(side, int) else len(side) for side in self.sides)
        return first, second

    @property
    def turns(self) -> int:
        """Matches per pairing: 1, or 2 with `both_sides`."""
        return 2 if self.both_sides else 1

    @abstractmethod
    def matches(self, *, learns: Collection[str] = ()) -> tuple[Match, ...]:
        """The first round written out; of the policies that learn a rule may draw snapshots, and there are none yet."""

    def match(self, first: Team, second: Team, *, copies: int | None = None) -> Match:
        """The description of one pairing; the first team has the first seats."""
        named = [side for side in self.sides or () if not isinstance(side, int)]
        return Match(
            env=self.env,
            seats=(*first, *second),
            entities=tuple(itertools.chain(*named)) if named else None,
            sides=(tuple(range(len(first))), tuple(range(len(first), len(first) + len(second)))),
            env_kwargs=self.env_kwargs,
            copies=self.copies if copies is None else copies,
            lanes=self.lanes,
            pipeline=self.pipeline,
        )

    def team(self, player: str, side: int) -> Team:
        """The seats of a side that one policy plays alone; `side` is 0 or 1."""
        return (player,) * self.sizes[side]

    def pair(self, first: str, second: str) -> Pair:
        """The sides of a pairing of two policies that play alone."""
        return self.team(first, 0), self.team(second, 1)

    def exchanged(self, pair: Pair) -> Pair:
        """The pairing with the sides exchanged; sides of unequal size are of one policy each."""
        first, second = pair
        return (second, first) if len(first) == len(second) else self.pair(second[0], first[0])


class PairsGenerator(Generator, frozen=True, kw_only=True):
    """A generator of pairs, each of which has the same matches."""

    @abstractmethod
    def pairs(self) -> Iterable[Pair]:
        """The pairings of the first round, in the order in which the policies are listed."""

    def matches(self, *, learns: Collection[str] = ()) -> tuple[Match, ...]:
        """The first round written out; policies that learn play with their current weights."""
        return self.written_out(self.pairs())

    def written_out(self, pairs: Iterable[Pair]) -> tuple[Match, ...]:
        """A match description of every pair, with `both_sides` followed by the one with the sides exchanged."""
        both = (turn for pair in pairs for turn in (pair, self.exchanged(pair)))
        return tuple(self.match(*pair) for pair in (both if self.both_sides else pairs))


class RoundRobin(PairsGenerator, frozen=True, kw_only=True):
    """Every policy against every other one."""

    kind: ClassVar[str] = "round_robin"

    @property
    def pairings(self) -> int:
        return math.comb(len(self.policies), 2)

    def pairs(self) -> Iterable[Pair]:
        return itertools.starmap(self.pair, itertools.combinations(self.policies, 2))


class Gauntlet(PairsGenerator, frozen=True, kw_only=True):
    """Every challenger against each of some others."""

    against: ListOf[str]
    """the opponents of each of `policies`"""
    kind: ClassVar[str] = "gauntlet"
    fewest: ClassVar[int] = 1

    @property
    def members(self) -> Team:
        return (*self.policies, *self.against)

    @property
    def pairings(self) -> int:
        return len(self.policies) * len(self.against)

    def pairs(self) -> Iterable[Pair]:
        return itertools.starmap(self.pair, itertools.product(self.policies, self.against))


class Mixtures(PairsGenerator, frozen=True, kw_only=True):
    """Every team that can be formed of the policies against every other one; a policy may fill several of its seats."""

    team_size: Count = 2
    """seats of each side"""
    kind: ClassVar[str] = "mixtures"

    @property
    def pairings(self) -> int:
        return math.comb(math.comb(len(self.policies) + self.team_size - 1, self.team_size), 2)

    def pairs(self) -> Iterable[Pair]:
        return itertools.combinations(itertools.combinations_with_replacement(self.policies, self.team_size), 2)


class _Bracket(PairsGenerator, frozen=True, kw_only=True):
    """Pairs of neighbors, round after round; where the number is odd, one has a bye."""

    adaptive: ClassVar[bool] = True

    @property
    def pairings(self) -> int:
        return len(self.policies) // 2

    def pairs(self) -> Iterable[Pair]:
        return itertools.starmap(self.pair, neighbors(self.policies[self.byes :]))

    @property
    def byes(self) -> int:
        """Policies without a match in the first round: 1, the first one listed, if their number is odd, else 0."""
        return len(self.policies) % 2


class Knockout(_Bracket, frozen=True, kw_only=True):
    """The loser of a pairing is out; the winners of a round play the next one."""

    kind: ClassVar[str] = "knockout"

    @property
    def rounds(self) -> int:
        """The number of rounds after which one policy is left."""
        return (len(self.policies) - 1).bit_length()


class Swiss(_Bracket, frozen=True, kw_only=True):
    """Neighbors in the standings that have not met yet; no policy is out."""

    kind: ClassVar[str] = "swiss"


class Rule(Keyed, frozen=True, kw_only=True):
    """The options of a rule of matchmaking, and which opponents it can draw."""

    by_results: ClassVar[bool] = True  # whether the draw depends on who has won
    draws_current: ClassVar[bool] = True  # whether it draws `against` with current weights; else as snapshots alone
    meets_itself: ClassVar[bool] = True  # whether a learner meets itself though there are others

    @property
    def draws_others(self) -> bool:
        """Whether the rule ever draws another opponent than the learner itself with its current weights."""
        return True

    def opening(self, entry: Matchmaking, learner: str, learns: Collection[str]) -> Team:
        """The opponents of a learner in the first round, which has no results and no snapshots; taken in turn."""
        return entry.others(learner) or (learner,)


class PastSelves(Rule, frozen=True, kw_only=True):
    """A learner meets snapshots of itself, all equally often."""

    self_play: Share = msgspec.field(default=0.5, name="self")
    """of its matches: against itself as it is now"""
    kind: ClassVar[str] = "past_selves"
    by_results: ClassVar[bool] = False
    draws_current: ClassVar[bool] = False

    @property
    def draws_others(self) -> bool:
        return self.self_play < 1

    def opening(self, entry: Matchmaking, learner: str, learns: Collection[str]) -> Team:
        fixed = tuple(name for name in entry.against if name not in learns and self.draws_others)
        return fixed if fixed and not self.self_play else (learner, *fixed)


class Fictitious(Rule, frozen=True, kw_only=True):
    """Prioritized fictitious self-play: a learner meets all policies, more often those it has more to learn from."""

    weighting: Literal["hard", "variance", "linear"] = "hard"
    """hard (1-p)^2, variance p(1-p), linear 1-p; p: to win"""
    self_play: Share = msgspec.field(default=0.35, name="self")
    """of its matches: against itself as it is now"""
    kind: ClassVar[str] = "fictitious"

    @property
    def draws_others(self) -> bool:
        return self.self_play < 1

    def opening(self, entry: Matchmaking, learner: str, learns: Collection[str]) -> Team:
        others = entry.others(learner) if self.draws_others else ()
        return others if others and not self.self_play else (learner, *others)


class Reset(Keys, frozen=True, kw_only=True):
    """When an exploiter's snapshot joins the league and the exploiter restarts from its first weights."""

    after: Count | None = 20
    """rounds, at the latest; null: never for the time alone"""
    beats: Share = 0.7
    """or when its expected score against each of its targets is above this"""
    confidence: Share = 0.95
    """... with at least this posterior probability"""
    share: Share = 0.25
    """probability that a league exploiter restarts then; else it goes on as it is"""


class Exploiters(Rule, frozen=True, kw_only=True):
    """Main agents learn against the whole league, exploiters look for what is weak in the mains and in the league."""

    main: ListOf[str]
    """policies that learn against the whole league"""
    main_exploiters: ListOf[str] = ()
    """meet the mains as they are now"""
    league_exploiters: ListOf[str] = ()
    """meet all snapshots"""
    self_play: Share = msgspec.field(default=0.35, name="self")
    """of a main's matches: against mains as they are now"""
    weak: Share = 0.1
    """expected score below which a main exploiter meets snapshots of the main instead"""
    reset: Reset = Reset()
    """of exploiters"""
    kind: ClassVar[str] = "exploiters"
    draws_current: ClassVar[bool] = False

    @property
    def members(self) -> Team:
        """All policies of the rule, in the order of the lists."""
        return (*self.main, *self.main_exploiters, *self.league_exploiters)

    @property
    def draws_others(self) -> bool:
        return self.self_play < 1 or len(self.members) > 1

    def opening(self, entry: Matchmaking, learner: str, learns: Collection[str]) -> Team:
        if learner not in self.main:
            return tuple(self.main)
        return (learner, *(name for name in self.main if name != learner))


class Nash(Rule, frozen=True, kw_only=True):
    """Policy-space response oracles: a learner meets the equilibrium of all snapshots until it gains no more."""

    solver: Literal["nash", "uniform", "alpha_rank", "rectified"] = "nash"
    """the mixture of the snapshots it meets"""
    start: Literal["newest", "first"] = "newest"
    """a new best response begins from its newest or first weights"""
    gain: Amount = 0.0
    """in the game's units, against the mixture; a round that gains no more than this gains nothing"""
    patience: Count = 2
    """rounds without a gain, after which a best response joins"""
    after: Count = 10
    """rounds of learning, after which it joins at the latest"""
    games: Count = 1
    """of each pair of snapshots that the mixture plays; with fewer they meet again before it counts"""
    kind: ClassVar[str] = "nash"
    by_results: ClassVar[bool] = False
    draws_current: ClassVar[bool] = False


class Uncertainty(Rule, frozen=True, kw_only=True):
    """A policy meets the opponents against which a result would change the standings most."""

    kind: ClassVar[str] = "uncertainty"
    meets_itself: ClassVar[bool] = False


class OwnRule(Rule, ShortForm, frozen=True, kw_only=True):
    """A rule of the user's own: a class whose `opponents` draws, see `arena.league.custom`."""

    class_: Target = msgspec.field(name="class")
    """package.module:Class"""
    options: MapOf[Any] = {}
    """given to the class when it is made"""
    kind: ClassVar[str] = "own"
    short: ClassVar[Any] = ClassName | dict[ClassName, dict[str, Any]]

    @classmethod
    def spelled_out(cls, value: Any) -> Any:
        """`"package.module:Class"`, or `{"package.module:Class": {its options}}`."""
        name, options = value, dict[str, Any]()
        if isinstance(value, Mapping) and len(value) == 1:
            ((name, options),) = value.items()
        return {cls.kind: {"class": name, "options": options}} if isinstance(name, str) and ":" in name else value


RuleEntry: TypeAlias = PastSelves | Fictitious | Exploiters | Nash | Uncertainty | OwnRule


class Matchmaking(Generator, frozen=True, kw_only=True):
    """Each of the policies meets opponents that a rule draws for it, again in every round."""

    against: ListOf[str] = ()
    """opponents beside the policies themselves: these, and snapshots of them"""
    versus: ListOf[str] = ()
    """the other population, which learns on the second side; `policies` meet it alone"""
    rule: RuleEntry
    """how opponents are drawn: the name of a rule, or a mapping {name: its options}"""
    copies: Count = 1
    """opponents of each of the policies in each round, each in a match of its own"""
    kind: ClassVar[str] = "matchmaking"
    fewest: ClassVar[int] = 1
    adaptive: ClassVar[bool] = True

    @property
    def pairings(self) -> int:
        return len(self.learners) * self.copies

    @property
    def roles(self) -> int:
        return self.pairings * self.turns * (1 + sum(self.sizes))

    @property
    def learners(self) -> Team:
        """The policies for which opponents are drawn."""
        return (*self.policies, *self.versus)

    @property
    def members(self) -> Team:
        """Learners first."""
        return (*self.learners, *self.against)

    def rivals(self, learner: str) -> Team:
        """The other population, if there are two: all that a learner may meet, and snapshots of these."""
        return tuple(self.policies if learner in self.versus else self.versus)

    def others(self, player: str) -> Team:
        """All members but one."""
        return tuple(name for name in self.members if name != player)

    def matches(self, *, learns: Collection[str] = ()) -> tuple[Match, ...]:
        """The matches of the first round: opponents are taken in turn, as there are no results yet."""
        in_turn = {}
        for learner in self.learners:
            opponents = self.rivals(learner) if self.versus else self.rule.opening(self, learner, learns)
            in_turn[learner] = [*itertools.islice(itertools.cycle(opponents), self.copies)]
        return self.drawn(in_turn, number=0)

    def measured(self, pairs: Sequence[tuple[str, str]]) -> tuple[Match, ...]:
        """Matches of players that do not learn, as many as the first round has; each pair in turn."""
        times = Counter(itertools.islice(itertools.cycle(pairs), self.pairings))
        both = ((turn, count) for pair, count in times.items() for turn in (pair, pair[::-1])[: self.turns])
        return tuple(self.match(*self.pair(*pair), copies=count) for pair, count in both)

    def drawn(
        self, opponents: Mapping[str, Sequence[str]], *, number: int, tested: Mapping[str, str] = NO_SNAPSHOTS
    ) -> tuple[Match, ...]:
        """A match description for every opponent, with `both_sides` one from either side; copies of one are joined.

        Args:
            opponents: of each learner.
            number: of the round; tests begin on the other side in every other round.
            tested: of each learner that has to pass a gate, the snapshot that the gate compares it with: without
                `both_sides` the learner alternates sides against it. Of two populations, the snapshot meets the
                learner's last opponent, too.
        """
        found = []
        for learner, drawn in opponents.items():
            tests, meetings = itertools.count(number), list[tuple[str, bool]]()  # with: has the learner the second side
            for other in drawn:
                if self.versus:
                    meetings.append((other, learner in self.versus))
                elif self.both_sides:  # against itself the learner has both
                    meetings += [(other, False), (other, other != learner)]
                else:
                    meetings.append((other, other == tested.get(learner) and next(tests) % 2 == 1))
            for (other, second), same in itertools.groupby(sorted(meetings)):
                pair = self.pair(other, learner) if second else self.pair(learner, other)
                found.append(self.match(*pair, copies=len(list(same))))
            if self.versus and learner in tested:
                first, last = (drawn[-1], tested[learner]) if second else (tested[learner], drawn[-1])
                found.append(self.match(*self.pair(first, last), copies=1))
        return tuple(found)


class Pairings(PairsGenerator, frozen=True, kw_only=True):
    """A generator of the user's own: a class whose `pairings` says who meets whom, see `arena.league.custom`."""

    generator: Target
    """package.module:Class"""
    options: MapOf[Any] = {}
    """given to the class when it is made"""
    opening: Opening | None = None
    """pairings of the first round, and so many at most in later ones; null: every pair"""
    kind: ClassVar[str] = "pairings"
    fewest: ClassVar[int] = 1
    adaptive: ClassVar[bool] = True

    @property
    def pairings(self) -> int:
        return math.comb(len(self.policies), 2) if self.opening is None else len(self.opening)

    def pairs(self) -> Iterable[Pair]:
        if self.opening is None:
            return itertools.starmap(self.pair, itertools.combinations(self.policies, 2))
        return ((self.seated(first, 0), self.seated(second, 1)) for first, second in self.opening)

    def seated(self, entry: SeatEntry, side: int) -> Team:
        """The seats of a side, given as the policy of all its seats, or as the policy of each."""
        return self.team(entry, side) if isinstance(entry, str) else tuple(entry)


GeneratorEntry: TypeAlias = RoundRobin | Gauntlet | Knockout | Swiss | Mixtures | Matchmaking | Pairings
GENERATORS: Mapping[str, type[Generator]] = {kind.kind: kind for kind in get_args(GeneratorEntry)}
RULES: Mapping[str, type[Rule]] = {kind.kind: kind for kind in get_args(RuleEntry)}


def neighbors(players: Sequence[str]) -> list[tuple[str, str]]:
    """The first and the second, the third and the fourth, ...; of an odd number the last one is left out."""
    return list(zip(players[::2], players[1::2], strict=False))
