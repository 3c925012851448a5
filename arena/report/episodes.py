"""The finished episodes of a run as columns, and numbers over ticks as curves that fit a page.

A policy appears once in an episode, however many seats it had: with the mean return of its entities and its shares of
the result, as in the live display (`arena.records.figures`). Episodes that the end of a leg has cut are no
results.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.records.metrics import EpisodeRecord
from arena.records.outcome import Outcome

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_PARTS, _FEWEST_PARTS = 80, 8
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
        return self.round * (int(self.match.max()) + 1) + self.match

    @property
    def matches_at_once(self) -> float:
        """How many matches a round had, in the mean."""
        return len(np.unique(self.series)) / max(1, len(np.unique(self.round)))


def tabulate(episodes: Iterable[EpisodeRecord]) -> EpisodeTable:
    """The table of episodes, which are read once."""
    envs, policies = _Names(), _Names()
    places, rows, seats = array("q"), array("q"), array("d")
    for number, episode in enumerate(episodes):
        places.extend((episode.round, episode.match, episode.lane, episode.episode))
        flags = (episode.terminated, episode.truncated, episode.cut)
        rows.extend((envs[episode.env], episode.round, episode.match, episode.tick, episode.length, *flags))
        for seat in () if episode.cut else episode.seats:
            gain = np.nan if seat.return_ is None else seat.return_
            seats.extend((number, policies[seat.policy], gain, len(seat.entities), _CODES[seat.outcome]))
    listed = np.array(places, np.int64).reshape(-1, 4)
    order = np.lexsort(listed.T)  # and of equal ones the earlier line first
    again = order[1:][(listed[order][1:] == listed[order][:-1]).all(axis=1)]
    if again.size:
        line = int(again.min())
        round_, match, lane, number = listed[line].tolist()
        place = f"round {round_}, match {match}, lane {lane}, episode {number}"
        raise ConfigError(f"is damaged: {place} is there twice", path=f"line {line + 1}")
    env, round_, match, tick, length, *flags_ = np.array(rows, np.int64).reshape(-1, 8).T
    terminated, truncated, cut = (flag.astype(np.bool_) for flag in flags_)

    # Joins the seats of each policy in each episode.
    in_episode, policy, returns, sizes, outcome = np.array(seats, np.float64).reshape(-1, 5).T
    many = max(len(policies), 1)
    found, place_of = np.unique(in_episode.astype(np.int64) * many + policy.astype(np.int64), return_inverse=True)

    def summed(values: Floats) -> Floats:
        return np.bincount(place_of, weights=values, minlength=len(found)).astype(np.float64, copy=False)

    entities = summed(sizes)
    appearances = EpisodePlayers(
        episode=found // many,
        policy=found % many,
        returns=summed(returns * sizes) / entities,
        shares=np.stack([summed(sizes * (outcome == code)) / entities for code in range(3)], axis=1),
        decided=summed((outcome == _CODES[None]).astype(np.float64)) == 0,
    )
    return EpisodeTable(
        tuple(envs), tuple(policies), env, round_, match, tick, length, terminated, truncated, cut, appearances
    )


class _Names(dict[str, int]):
    """Numbers names in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


class Curve(msgspec.Struct, frozen=True):
    """A curve of N points; those without a number are left out."""

    ticks: list[float]  # [N] the end of each part
    mean: list[float]  # [N] of the numbers in it
    low: list[float]  # [N] the lower quartile of the matches' means; the mean if one match alone has numbers
    high: list[float]  # [N] the upper quartile likewise
    count: list[int]  # [N] how many numbers


def edges_for(last: int, *, numbers: int, matches: float = 1) -> Floats:
    """Where the parts of a run end: [parts + 1] ticks from 0 to the last one.

    N numbers make sqrt(N) parts of as many each: more would show mostly chance, fewer would hide what is learned. With
    several matches at the same time there are fewer parts, as the band is of the matches' means, which need some each.
    """
    parts = math.isqrt(numbers)
    shared = max(_FEWEST_PARTS, numbers / (_OF_A_MATCH * max(1, matches)))
    return np.linspace(0.0, max(last, 1), 1 + min(MOST_PARTS, max(1, parts), int(shared)))


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
    keys, place = np.unique(part * many + matches, return_inverse=True)
    counts, sums = np.bincount(place), np.bincount(place, weights=values)
    parts, points = np.unique(keys // many), []
    for one in parts:
        mine = keys // many == one
        mean = float(sums[mine].sum() / counts[mine].sum())
        low = high = mean
        if np.count_nonzero(mine) > 1:
            low, high = map(float, np.quantile(sums[mine] / counts[mine], _QUARTILES))
        points.append((mean, low, high, int(counts[mine].sum())))
    columns = map(list, zip(*points, strict=True))
    return Curve(edges[parts + 1].tolist(), *columns)
