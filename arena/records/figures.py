"""Finished episodes to numbers: results by policy, means, minima and maxima, and whether games were all alike.

Thousands of episodes may end in a second, and the root reads them all. So the episodes of a message are processed
together, column by column, and the loops over episodes run in C: `results_of`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, groupby, islice
from operator import attrgetter, mul
from typing import Any, NamedTuple

import msgspec

from arena.errors import pluralize
from arena.records.metrics import EpisodeKey, EpisodeRecord, Place, key_of, place_of
from arena.records.outcome import Outcome

Metrics = Mapping[str, float]
Shares = tuple[float, float, float]
"""Of one decided game, the shares that a policy won, drew and lost; their sum is 1."""

_WHOLE: dict[Outcome, Shares] = {"win": (1.0, 0.0, 0.0), "draw": (0.0, 1.0, 0.0), "loss": (0.0, 0.0, 1.0)}
_ENDS = ("_mean", "_min", "_max")
_COLLECTED = 1000  # numbers, at most, that are collected before they are summed
ENOUGH = 8  # repetitions, at least, before games are called all alike
_seats, _length, _contradicts = map(attrgetter, ("seats", "length", "contradicts"))
_policy, _entities, _return, _outcome = map(attrgetter, ("policy", "entities", "return_", "outcome"))


class Results(NamedTuple):
    """One policy's results; an episode counts once, even if the policy had several seats."""

    returns: Sequence[float]
    """Per episode, the mean over the policy's entities of their return; NaN: none of them took part."""
    lengths: Sequence[int]  # per episode, its ticks
    games: Sequence[Shares]
    """Per decided game, the shares of it that the policy won, drew and lost: 1 of one and 0 of the others, or something
    between the two where it sat on both sides."""
    places: Sequence[Place]  # per episode, its place in the order of all episodes
    decided: Sequence[Place]  # likewise per decided game

    @property
    def won(self) -> list[float]:
        """Per decided game, the share that was won."""
        return [won for won, _, _ in self.games]


def results_of(episodes: Sequence[EpisodeRecord]) -> dict[str, Results]:
    """The results of episodes in the order of their places, by policy; cut episodes do not count.

    Seats may differ between matches, and between external games, as not all entities take part in each.
    """
    episodes = [episode for episode in episodes if not episode.cut]
    all_seats = list(map(_seats, episodes))
    if not any(all_seats):
        return {}
    seats = list(chain.from_iterable(all_seats))
    policies, entities, outcomes = (list(map(read, seats)) for read in (_policy, _entities, _outcome))
    if any(map(_contradicts, episodes)):
        outcomes = [None if episode.contradicts else seat.outcome for episode in episodes for seat in episode.seats]
    count = len(all_seats[0])
    if policies != policies[:count] * len(episodes) or entities != entities[:count] * len(episodes):
        parts: dict[str, list[Results]] = {}
        for part in in_parts(episodes):
            for policy, results in results_of(part).items():
                parts.setdefault(policy, []).append(results)
        return {
            policy: Results(*map(list, map(chain.from_iterable, zip(*of_policy, strict=True))))
            for policy, of_policy in parts.items()
        }
    returns = list(map(_return, seats))
    if None in returns:
        returns = [math.nan if value is None else value for value in returns]
    lengths, places = list(map(_length, episodes)), list(map(place_of, episodes))
    sides: dict[str, list[int]] = {}
    for seat, policy in enumerate(policies[:count]):
        sides.setdefault(policy, []).append(seat)
    sizes = [len(names) for names in entities[:count]]
    found = {}
    for policy, of_policy in sides.items():
        weights = [sizes[seat] for seat in of_policy]
        means = _means([returns[seat::count] for seat in of_policy], weights)
        ends = list(zip(*(outcomes[seat::count] for seat in of_policy), strict=True))
        shares = {end: _shares(end, weights) for end in set(ends)}  # there are few ways in which a game can end
        found[policy] = Results(
            returns=means,
            lengths=lengths,
            games=[game for end in ends if (game := shares[end]) is not None],
            places=places,
            decided=list(compress(places, [shares[end] is not None for end in ends])),
        )
    return found


def in_parts(episodes: Iterable[EpisodeRecord], most: int = 1000) -> Iterator[list[EpisodeRecord]]:
    """Episodes of several matches in parts for `results_of`: `most` consecutive ones with the same seats, or fewer."""
    for _, alike in groupby(episodes, key=lambda episode: [(seat.policy, seat.entities) for seat in episode.seats]):
        while part := list(islice(alike, most)):
            yield part


def _means(returns: Sequence[Sequence[float]], sizes: Sequence[int]) -> Sequence[float]:
    """Per episode the mean over the entities of all seats that took part; `returns` are per seat and episode."""
    if len(sizes) == 1:
        return returns[0]
    entities = sum(sizes)
    found = [sum(map(mul, values, sizes)) / entities for values in zip(*returns, strict=True)]
    if math.isnan(sum(found)):  # rarely: a seat took no part; NaN stays if none did
        for place, values in enumerate(zip(*returns, strict=True)):
            present = [(value, size) for value, size in zip(values, sizes, strict=True) if not math.isnan(value)]
            if math.isnan(found[place]) and present:
                found[place] = sum(value * size for value, size in present) / sum(size for _, size in present)
    return found


def _shares(outcomes: Sequence[Outcome | None], sizes: Sequence[int]) -> Shares | None:
    """The shares of entities that won, drew and lost; None if the game has no winner for one of the seats."""
    totals = [0.0, 0.0, 0.0]
    for outcome, size in zip(outcomes, sizes, strict=True):
        if outcome is None:
            return None
        totals = [total + part * size / sum(sizes) for total, part in zip(totals, _WHOLE[outcome], strict=True)]
    won, drawn, lost = totals
    return won, drawn, lost


class Spread:
    """The mean, minimum and maximum of finite numbers, of which only a few are kept.

    The mean is the exact sum, rounded once, divided by their number, so the order of the numbers does not matter.
    """

    def __init__(self) -> None:
        self._new: list[float] = []
        self._count, self._least, self._most = 0, math.inf, -math.inf  # of the numbers not in `_new`
        self._terms: list[float] = []  # with the same exact sum as these

    def add(self, value: float) -> None:
        """Takes a number."""
        self._new.append(value)
        if len(self._new) == _COLLECTED:
            self._settle()

    def ends(self, name: str) -> dict[str, float]:
        """`<name>_mean`, `<name>_min` and `<name>_max`; NaN without a number."""
        self._settle()
        least, most = (self._least, self._most) if self._count else (math.nan, math.nan)
        return {f"{name}_mean": self.mean, f"{name}_min": least, f"{name}_max": most}

    @property
    def mean(self) -> float:
        """NaN without a number."""
        self._settle()
        if not self._count:
            return math.nan
        try:
            return math.fsum(self._terms) / self._count
        except OverflowError:  # the sum is larger than a float can be
            return math.inf if self._most > -self._least else -math.inf

    def _settle(self) -> None:
        """Includes the new numbers in the counts."""
        if self._new:
            self._count += len(self._new)
            self._least, self._most = min(self._least, *self._new), max(self._most, *self._new)
            # A few numbers with the same exact sum: the rounded sum, then the rounded rest, until it is 0.
            numbers, self._terms, self._new = [*self._terms, *self._new], [], []
            try:
                while rest := math.fsum([*numbers, *(-term for term in self._terms)]):
                    self._terms.append(rest)
            except OverflowError:  # the sum is larger than a float can be
                self._terms = numbers


class Figures:
    """The numbers of many episodes, none of them cut.

    Values that are not finite are left out: `episodes.jsonl` has null in their places.

    Attributes:
        count: how many episodes there are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._rewards, self._lengths = Spread(), Spread()
        self._returns = defaultdict[str, Spread](Spread)  # per policy one number for each seat and episode
        self._won = defaultdict[str, Spread](Spread)  # per policy the share of each decided game
        self._metrics = defaultdict[str, Spread](Spread)
        self._of_policies = defaultdict[str, defaultdict[str, Spread]](lambda: defaultdict(Spread))  # of games alone

    def add(
        self, episodes: Collection[EpisodeRecord], measured: Mapping[EpisodeKey, Sequence[Metrics]] | None = None
    ) -> None:
        """Adds episodes, none of them cut, in any order; `measured` is what callbacks have measured of them."""
        self.count += len(episodes)
        alike: dict[tuple[Any, ...], list[EpisodeRecord]] = {}  # by policies and entities
        for episode in episodes:
            alike.setdefault(tuple([(seat.policy, seat.entities) for seat in episode.seats]), []).append(episode)
            self._lengths.add(episode.length)
            reward, seats = 0.0, 0
            for metrics in (measured or {}).get(key_of(episode), ()):
                self.measure(metrics)
            for seat in episode.seats:
                if isinstance(seat.metrics, dict):
                    self.measure(seat.metrics)
                    for name, number in seat.metrics.items():
                        self._of_policies[name][seat.policy].add(number)
                if (value := seat.return_) is not None and math.isfinite(value):
                    reward += value * len(seat.entities)
                    seats += 1
                    self._returns[seat.policy].add(value)
            if seats and math.isfinite(reward):
                self._rewards.add(reward)
        for part in alike.values():
            for policy, results in results_of(part).items():
                for share in results.won:
                    self._won[policy].add(share)

    def measure(self, metrics: Metrics) -> None:
        """Adds values of metrics."""
        for name, value in metrics.items():
            self._metrics[name].add(value)

    def metrics(self, known: Iterable[str] = ()) -> dict[str, float]:
        """`<name>_mean`, `_min` and `_max` of each metric; of those that are `known` even without a value."""
        names = sorted({*known, *self._metrics})
        return {key: value for name in names for key, value in self._metrics.get(name, Spread()).ends(name).items()}

    def policy_metrics(self, policies: Collection[str], known: Iterable[str] = ()) -> dict[str, dict[str, float]]:
        """The same of the metrics of games alone: mappings by policy."""
        found: dict[str, dict[str, float]] = {}
        for name in sorted({*known, *self._of_policies}):
            of: Mapping[str, Spread] = self._of_policies.get(name, {})
            ends = {one: of.get(one, Spread()).ends(name) for one in policies}
            found |= {f"{name}{end}": {one: ends[one][f"{name}{end}"] for one in policies} for end in _ENDS}
        return found

    @property
    def measured(self) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the metrics that have values: all, and those of games."""
        return frozenset(self._metrics), frozenset(self._of_policies)

    def rewards(self) -> dict[str, Any]:
        """`episode_reward_mean`, `_min`, `_max` and `episode_len_mean`; NaN without an episode."""
        return {**self._rewards.ends("episode_reward"), "episode_len_mean": self._lengths.mean}

    def returns(self, policies: Iterable[str]) -> dict[str, dict[str, float]]:
        """`policy_reward_mean`, `_min`, `_max`: mappings by policy."""
        found = {name: self._returns.get(name, Spread()).ends("") for name in policies}
        return {f"policy_reward{end}": {name: ends[end] for name, ends in found.items()} for end in _ENDS}

    def win_rates(self, policies: Iterable[str]) -> dict[str, float]:
        """Per policy the share of the games with a winner or a draw that it won, as the scoreboard counts them."""
        return {name: self._won.get(name, Spread()).mean for name in policies}


def repeated(
    lines: Iterable[EpisodeRecord], *, random: Collection[str] = (), least: int = ENOUGH
) -> list[tuple[str, ...]]:
    """The players that have only repeated one game in each arrangement of seats: it began alike, and had one length and
    the same returns. So a pole that is balanced until the last tick of each of many different games is none.

    The games of players that act at `random` are never called alike.

    Returns:
        the line-ups, sorted: those with at least so many repetitions; or all, if all their games were repetitions, at
        least so many together.
    """
    games: dict[tuple[str, ...], Counter[tuple[float | msgspec.UnsetType | None, ...]]] = {}
    chance: set[tuple[str, ...]] = set()
    for line in lines:
        if line.cut:
            continue
        seats = tuple(seat.policy for seat in line.seats)
        game = (line.began, line.length, *(seat.return_ for seat in line.seats))
        games.setdefault(seats, Counter())[game] += 1
        if not {*random}.isdisjoint(seats):
            chance.add(seats)
    repetitions: Counter[tuple[str, ...]] = Counter()
    alike: dict[tuple[str, ...], bool] = {}
    for seats, found in games.items():
        players = tuple(sorted(set(seats)))
        repetitions[players] += found.total() - 1
        alike[players] = alike.get(players, True) and len(found) == 1 and seats not in chance
    everything = all(alike.values()) and repetitions.total() >= least
    return sorted(players for players, same in alike.items() if same and (everything or repetitions[players] >= least))


def repetition_text(alike: Sequence[Sequence[str]], *, remedy: str) -> list[str]:
    """A line on games that were all alike, see `repeated`; the remedy is what makes their players play with chance."""
    if not alike:
        return []
    who = f"between {' and '.join(alike[0])}" if len(alike[0]) > 1 else f"of {alike[0][0]} alone"
    more = f", and {pluralize(len(alike) - 1, 'more line-up')}," if len(alike) > 1 else ""
    return [
        f"all games {who}{more} began alike and had the same length and returns, in each order of seats: more of them "
        f"say no more than the first, and the intervals are too narrow; {remedy} plays with chance"
    ]
