"""The finished episodes and the updates of a run as columns, and numbers over ticks as curves that fit a page.

A policy appears once in an episode, however many seats it had: with the mean return of its entities and its shares of
the result, as in the live display (`arena.records.figures`). Episodes that the end of a leg has cut are no
results.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
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
_CODES: dict[Outcome | None, int] = {"win": 0, "draw": 1, "loss": 2, None: 3}


class EpisodePlayers(NamedTuple):
    """Which policy played in which episode, ordered by episode. A appearances."""

    episode: Ints  # [A] row of the episode in the table
    policy: Ints  # [A] index in the table's policies
    returns: Floats  # [A] mean over the policy's entities; NaN where one was not finite
    shares: Floats  # [A, 3] of the game: won, drawn, lost; they add up to 1
    decided: Bools  # [A] whether all seats of the policy have won, drawn or lost; else the shares say nothing

    def of(self, policy: int) -> EpisodePlayers:
        """The appearances of one policy."""
        mine = self.policy == policy
        return EpisodePlayers(*(column[mine] for column in self))


class EpisodeTable(NamedTuple):
    """All episodes in the order of the file. E episodes."""

    envs: tuple[str, ...]  # names, in the order in which they were first seen
    policies: tuple[str, ...]  # likewise
    env: Ints  # [E] index in `envs`
    round: Ints  # [E] of the league
    match: Ints  # [E] its number in that round
    tick: Ints  # [E] at which the episode ended
    length: Ints  # [E] its ticks
    terminated: Bools  # [E] by the rules
    truncated: Bools  # [E] otherwise
    cut: Bools  # [E] by the end of a leg, so that it is no result
    appearances: EpisodePlayers

    @property
    def results(self) -> int:
        """How many episodes are results."""
        return int(np.count_nonzero(~self.cut))

    @property
    def series(self) -> Ints:
        """[E] a number for each match of each round."""
        if not len(self.match):
            return self.match
        return self.round.astype(np.int64) * (int(self.match.max()) + 1) + self.match

    @property
    def matches_at_once(self) -> float:
        """How many matches a round had, in the mean."""
        return len(np.unique(self.series)) / max(1, len(np.unique(self.round)))


class EpisodeRows:
    """Collects episodes, in the order of the file, in columns: some 15 bytes each, and 27 for a policy in it.

    `checks`: an episode that comes twice is refused when the table is asked for.
    """

    def __init__(self, *, checks: bool = True) -> None:
        self._envs, self._policies = _Names(), _Names()
        self._places = _Column(np.int64, 4) if checks else None
        self._rows = [*(_Column() for _ in range(5)), *(_Column(np.bool_) for _ in range(3))]
        self._players = [_Column(), _Column(), _Column(np.float64), _Column(np.float32, 3), _Column(np.bool_)]

    def take(self, episodes: Sequence[EpisodeRecord]) -> None:
        """Takes further episodes."""
        places, rows, seats = array("q"), array("q"), array("d")
        envs, policies = self._envs, self._policies
        for number, episode in enumerate(episodes, start=self._rows[0].size):
            if self._places is not None:
                places.extend((episode.round, episode.match, episode.lane, episode.episode))
            flags = (episode.terminated, episode.truncated, episode.cut)
            rows.extend((envs[episode.env], episode.round, episode.match, episode.tick, episode.length, *flags))
            for seat in () if episode.cut else episode.seats:
                gain = np.nan if seat.return_ is None else seat.return_
                seats.extend((number, policies[seat.policy], gain, len(seat.entities), _CODES[seat.outcome]))
        for column, values in zip(self._rows, np.array(rows, np.int64).reshape(-1, 8).T, strict=True):
            column.extend(values)
        if self._places is not None:
            self._places.extend(np.array(places, np.int64).reshape(-1, 4))
        # Joins the seats of each policy in each episode.
        in_episode, policy, returns, sizes, outcome = np.array(seats, np.float64).reshape(-1, 5).T
        many = max(len(policies), 1)
        found, place_of = np.unique(in_episode.astype(np.int64) * many + policy.astype(np.int64), return_inverse=True)

        def summed(values: Floats) -> Floats:
            return np.bincount(place_of, weights=values, minlength=len(found)).astype(np.float64, copy=False)

        entities = summed(sizes)
        shares = np.stack([summed(sizes * (outcome == code)) / entities for code in range(3)], axis=1)
        decided = summed((outcome == _CODES[None]).astype(np.float64)) == 0
        joined = (found // many, found % many, summed(returns * sizes) / entities, shares, decided)
        for column, of_players in zip(self._players, joined, strict=True):
            column.extend(of_players)

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
        players = EpisodePlayers(*[column.values for column in self._players])
        columns: list[Any] = [*(column.values for column in self._rows), players]
        return EpisodeTable(tuple(self._envs), tuple(self._policies), *columns)


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
    values, matches = values[finite], matches[finite]
    part = np.searchsorted(edges, ticks[finite], side="left") - 1
    many = int(matches.max()) + 1
    keys, cells = part * many + matches, None  # a cell for each part and match
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
