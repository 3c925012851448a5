"""The finished episodes and the updates of a run as columns, and numbers over ticks as curves that fit a page.

A policy appears once in an episode, however many seats it had: with the mean return of its entities and its shares of
the result, as in the live display (`arena.records.figures`). Episodes that the end of a leg has cut are no
results.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.records.metrics import EpisodeRecord, UpdateRecord
from arena.records.outcome import Outcome

Ints = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]

MOST_PARTS, _FEWEST_PARTS = 120, 8
_MOST_CELLS = 1_000_000
_OF_A_MATCH = 8  # numbers of a match in a part, on average
_QUARTILES = 0.25, 0.75
OUTCOMES: dict[Outcome | None, int] = {"win": 0, "draw": 1, "loss": 2, None: 3}
_NUMBERS = attrgetter("round", "match", "tick", "length", "terminated", "truncated", "cut", "ranked", "contradicts")
_PLACE = attrgetter("round", "match", "lane", "episode")


class Appearances(NamedTuple):
    """The results of one policy, ordered by episode. A appearances."""

    episode: Ints  # [A] row of the episode in the table
    returns: Floats  # [A] mean over the policy's entities; NaN where one was not finite
    shares: Floats  # [A, 3] of the game: won, drawn, lost; they add up to 1
    decided: Bools  # [A] whether all seats of the policy have won, drawn or lost; else the shares say nothing


class EpisodeTable(NamedTuple):
    """All episodes in the order of the file, and all their seats. E episodes, S seats."""

    envs: tuple[str, ...]  # names, in the order in which they were first seen
    policies: tuple[str, ...]  # likewise
    lost: Mapping[str, int]  # external games that were lost, by reason; folders of earlier versions say none
    env: Ints  # [E] index in `envs`
    round: Ints  # [E] of the league
    match: Ints  # [E] its number in that round
    tick: Ints  # [E] at which the episode ended
    length: Ints  # [E] its ticks
    size: Ints  # [E] bytes of its line
    seats: Ints  # [E] how many
    terminated: Bools  # [E] by the rules
    truncated: Bools  # [E] otherwise
    cut: Bools  # [E] by the end of a leg, so that it is no result
    policy: Ints  # [S] index in `policies`
    entities: Ints  # [S] how many
    outcome: Ints  # [S] as in `OUTCOMES`
    returns: Floats  # [S] mean over the entities; NaN where it was not finite

    @property
    def results(self) -> int:
        """How many episodes are results."""
        return int(np.count_nonzero(~self.cut))

    @property
    def series(self) -> Ints:
        """[E] a number for each match of each round."""
        if not len(self.match):
            return self.match
        many = int(self.match.max()) + 1
        found: Ints = self.round.astype(np.int32 if many * (int(self.round.max()) + 1) < 2**31 else np.int64)
        found *= many
        found += self.match
        return found

    @property
    def matches_at_once(self) -> float:
        """How many matches a round had, in the mean."""
        return len(np.unique(self.series)) / max(1, len(np.unique(self.round)))

    @property
    def episode(self) -> Ints:
        """[S] the row of the episode."""
        return np.repeat(np.arange(len(self.seats), dtype=np.int32), self.seats)

    def of(self, name: str) -> Appearances:
        """The appearances of a policy."""
        mine = np.flatnonzero(self.policy == (self.policies.index(name) if name in self.policies else -1))
        episode = self.episode[mine]
        mine, episode = mine[~self.cut[episode]], episode[~self.cut[episode]]
        firsts = np.flatnonzero(np.diff(episode, prepend=np.int32(-1)))  # of its seats in an episode
        outcome, sizes = self.outcome[mine], self.entities[mine].astype(np.float64)

        def summed(values: Floats) -> Floats:
            return np.add.reduceat(values, firsts) if len(firsts) else values

        entities = summed(sizes)
        shares = np.empty((len(firsts), 3), np.float32)
        for code in range(3):  # one after the other: there may be millions
            shares[:, code] = summed(sizes * (outcome == code)) / entities
        decided = summed((outcome == OUTCOMES[None]).astype(np.float64)) == 0
        returns = summed(self.returns[mine] * sizes) / entities
        return Appearances(episode[firsts], returns, shares, decided)


class EpisodeRows:
    """Collects episodes, in the order of the file, in columns: some 18 bytes each, and 13 for a seat.

    `checks`: an episode that comes twice is refused when the table is asked for.
    """

    def __init__(self, *, checks: bool = True) -> None:
        self._envs, self._policies, self._lost = _Names(), _Names(), Counter[str]()
        self._places = _Column(np.int64, 4) if checks else None
        self._rows = [*(_Column() for _ in range(7)), *(_Column(np.bool_) for _ in range(3))]
        self._seats = [_Column(), _Column(), _Column(np.int8), _Column(np.float64)]

    def take(self, episodes: Sequence[EpisodeRecord], sizes: Ints) -> Ints:
        """Takes further episodes, with the sizes of their lines; tells which of them are alike.

        Episodes with the same number differ in nothing but lane, number, ticks, returns and metrics, and all are as
        long as the first of the run, or none is.
        """
        seats = [*chain.from_iterable(map(attrgetter("seats"), episodes))]
        self._lost.update(why for episode in episodes if isinstance(why := episode.lost, str))

        def whole(values: Iterable[int], of: Sequence[Any] = episodes) -> Ints:
            return np.fromiter(values, np.int64, len(of))

        numbers = np.fromiter(chain.from_iterable(map(_NUMBERS, episodes)), np.int64, 9 * len(episodes))
        round_, match, tick, length, terminated, truncated, cut, ranked, contradicts = numbers.reshape(-1, 9).T
        env = whole(map(self._envs.__getitem__, map(attrgetter("env"), episodes)))
        counts = whole(map(len, map(attrgetter("seats"), episodes)))
        policy = whole(map(self._policies.__getitem__, map(attrgetter("policy"), seats)), seats)
        entities = whole(map(len, map(attrgetter("entities"), seats)), seats)
        outcome = whole(map(OUTCOMES.__getitem__, map(attrgetter("outcome"), seats)), seats)
        idle = whole(map(bool, map(attrgetter("idle_ticks"), seats)), seats)
        returns = np.fromiter(map(attrgetter("return_"), seats), np.float64, len(seats))  # None becomes NaN
        if self._places is not None:
            places = np.fromiter(chain.from_iterable(map(_PLACE, episodes)), np.int64, 4 * len(episodes))
            self._places.extend(places.reshape(-1, 4))
        columns = env, round_, match, tick, length, sizes, counts, terminated != 0, truncated != 0, cut != 0
        for column, values in zip(self._rows, columns, strict=True):
            column.extend(values)
        rated = np.where(np.repeat(contradicts, counts) != 0, OUTCOMES[None], outcome)
        for column, values in zip(self._seats, (policy, entities, rated, returns), strict=True):
            column.extend(values)
        same = length == int(self._rows[4].values[0]) if len(episodes) else length
        kind, of_seat = _mixed(env, round_, match, counts, cut, ranked, same), _mixed(policy, outcome, idle)
        firsts = np.cumsum(counts) - counts
        for place in range(int(counts.max(initial=0))):  # one seat after the other
            there = np.flatnonzero(counts > place)
            seats_of = np.zeros(len(episodes), np.int64)
            seats_of[there] = 1 + of_seat[firsts[there] + place]
            kind = _mixed(kind, seats_of)
        return kind

    @property
    def size(self) -> int:
        """How many there are."""
        return self._rows[0].size

    def table(self) -> EpisodeTable:
        """The table of all episodes so far; ConfigError: one is there twice."""
        if self._places is not None:
            listed = self._places.values
            order = np.lexsort(listed.T)  # and of equal ones the earlier line first
            again = order[1:][(listed[order][1:] == listed[order][:-1]).all(axis=1)]
            if again.size:
                line = int(again.min())
                round_, match, lane, number = listed[line].tolist()
                place = f"round {round_}, match {match}, lane {lane}, episode {number}"
                raise ConfigError(f"is damaged: {place} is there twice", path=f"line {line + 1}")
        columns: list[Any] = [column.values for column in (*self._rows, *self._seats)]
        return EpisodeTable(tuple(self._envs), tuple(self._policies), dict(self._lost), *columns)


def _mixed(*columns: Ints) -> Ints:
    """[N] numbers from 0 on that are equal where all of these columns are, whole numbers [N] from 0 on."""
    found, many = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        each = int(column.max(initial=0)) + 1
        if many * each >= 2**62:
            found = np.unique(found, return_inverse=True)[1]
            many = len(found)
        found, many = found * each + column, many * each
    return found


class _Column:
    """An array that grows at its end; what was read of it before stays as it was.

    Whole numbers take 2 bytes each, and more when one needs more.
    """

    def __init__(self, kind: Any = np.int16, *width: int) -> None:
        self._values: NDArray[Any] = np.empty((1024, *width), kind)
        self.size = 0

    def extend(self, values: NDArray[Any]) -> None:
        """Appends items, whole numbers not below 0."""
        end, kind = self.size + len(values), self._values.dtype
        if kind.kind == "i" and values.max(initial=0) > np.iinfo(kind).max:
            kind = np.promote_types(kind, np.min_scalar_type(-int(values.max())))
        if end > len(self._values) or kind != self._values.dtype:
            grown = np.empty((end + end // 8, *self._values.shape[1:]), kind)
            grown[: self.size] = self.values  # the rest takes memory when it is written
            self._values = grown
        self._values[self.size : end] = values
        self.size = end

    @property
    def values(self) -> NDArray[Any]:
        """All items so far."""
        return self._values[: self.size]


class _Names(dict[str, int]):
    """Numbers names in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


class UpdateRows:
    """Collects updates in columns.

    Attributes:
        newest: per policy its newest update.
        counts: per policy how many.
        clocks: per policy and update: ticks, samples and seconds.
        values: per logged value and policy: ticks and value; in the order in which they were first logged.
    """

    def __init__(self) -> None:
        self.newest: dict[str, UpdateRecord] = {}
        self.counts: Counter[str] = Counter()
        self._clocks: dict[str, array[float]] = {}
        self._values: dict[str, dict[str, array[float]]] = {}

    def take(self, updates: Iterable[UpdateRecord]) -> None:
        """Takes further updates."""
        for update in updates:
            self.newest[update.policy] = update
            self.counts[update.policy] += 1
            clock = self._clocks.setdefault(update.policy, array("d"))
            clock.extend((update.ticks, update.samples, update.seconds))
            for name, value in update.values.items():
                points = self._values.setdefault(name, {}).setdefault(update.policy, array("d"))
                points.extend((update.ticks, value))

    @property
    def clocks(self) -> dict[str, Floats]:
        return {policy: np.array(one).reshape(-1, 3) for policy, one in self._clocks.items()}

    @property
    def values(self) -> dict[str, dict[str, Floats]]:
        return {name: {one: np.array(by[one]).reshape(-1, 2) for one in by} for name, by in self._values.items()}


class Curve(msgspec.Struct, frozen=True):
    """A curve of N points; those without a number are left out."""

    ticks: list[float]  # [N] the end of each part
    mean: list[float]  # [N] of the numbers in it
    low: list[float]  # [N] the lower quartile of the matches' means; the mean if one match alone has numbers
    high: list[float]  # [N] the upper quartile likewise
    count: list[int]  # [N] how many numbers


def edges_for(last: int, *, numbers: int, matches: float = 1) -> Floats:
    """Where the parts of a run end: [parts + 1] ticks from 0 to the last one.

    N numbers make up to sqrt(N) parts: more would show mostly chance, fewer would hide what is learned. With several
    matches at the same time there are fewer parts, as the band is of the matches' means, which need some each. Parts
    are 1, 2 or 5 times a power of ten long, so that they stay as they are while a run goes on; the last one has what
    is left, half as much or more.
    """
    last = max(last, 1)
    shared = max(_FEWEST_PARTS, numbers / (_OF_A_MATCH * max(1, matches)))
    width = last / min(MOST_PARTS, max(1, math.isqrt(numbers)), int(shared))
    power = 10.0 ** math.floor(math.log10(width))
    width = next(power * times for times in (1, 2, 5, 10) if width <= power * times * (1 + 1e-9))
    return np.append(np.arange(max(1, round(last / width))) * width, float(last))


def curve(ticks: Ints, values: Floats, *, matches: Ints, edges: Floats) -> Curve:
    """The curve of numbers which came at these ticks in these matches; all [N]. Those that are not finite are left out.

    Each tick is in (edges[0], edges[-1]], the ends of the parts.
    """
    finite = np.isfinite(values)
    if not finite.any():
        return Curve([], [], [], [], [])
    if not finite.all():
        ticks, values, matches = ticks[finite], values[finite], matches[finite]
    many, cells = int(matches.max()) + 1, None
    keys = np.searchsorted(edges, ticks, side="left")  # a cell for each part and match; in place, as there are many
    keys -= 1
    keys *= many
    keys += matches
    if len(edges) * many > _MOST_CELLS:  # of which most are empty
        cells, keys = np.unique(keys, return_inverse=True)
    counts, sums = np.bincount(keys), np.bincount(keys, weights=values)
    filled = np.flatnonzero(counts)
    counts, sums = counts[filled], sums[filled]
    of_part = (filled if cells is None else cells) // many
    parts, points = np.unique(of_part), []
    for one in parts:
        mine = of_part == one
        mean = float(sums[mine].sum() / counts[mine].sum())
        low = high = mean
        if np.count_nonzero(mine) > 1:
            low, high = map(float, np.quantile(sums[mine] / counts[mine], _QUARTILES))
        points.append((mean, low, high, int(counts[mine].sum())))
    columns = map(list, zip(*points, strict=True))
    return Curve(edges[parts + 1].tolist(), *columns)
