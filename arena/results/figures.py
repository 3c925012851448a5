"""Episodes to numbers: means, minima and maxima of rewards, lengths and returns, and shares of games won."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from arena.records.episode_stats import results_of
from arena.records.metrics import EpisodeRecord

NAN = math.nan

Metrics = Mapping[str, float]
Place = tuple[int, int, int, int]
"""The place of an episode: its tick, match, lane, and number."""

place_of: Callable[[EpisodeRecord], Place] = attrgetter("tick", "match", "lane", "episode")

_ENDS = ("_mean", "_min", "_max")
_HELD = 1000  # numbers, at most, that are collected before they are summed


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
        if len(self._new) == _HELD:
            self._settle()

    def ends(self, name: str) -> dict[str, float]:
        """`<name>_mean`, `<name>_min` and `<name>_max`; NaN without a number."""
        self._settle()
        least, most = (self._least, self._most) if self._count else (NAN, NAN)
        return {f"{name}_mean": self.mean, f"{name}_min": least, f"{name}_max": most}

    @property
    def mean(self) -> float:
        """NaN without a number."""
        self._settle()
        if not self._count:
            return NAN
        try:
            return math.fsum(self._terms) / self._count
        except OverflowError:  # the sum is larger than a float can be
            return math.inf if self._most > -self._least else -math.inf

    def _settle(self) -> None:
        """Includes the new numbers in the counts."""
        if self._new:
            self._count += len(self._new)
            self._least, self._most = min(self._least, *self._new), max(self._most, *self._new)
            self._terms = condensed([*self._terms, *self._new])
            self._new = []


def condensed(numbers: list[float]) -> list[float]:
    """A few numbers with the same exact sum: the rounded sum, then the rounded rest, until it is 0.

    Numbers whose sum is larger than a float can be are returned as they are.
    """
    terms: list[float] = []
    try:
        while rest := math.fsum([*numbers, *(-term for term in terms)]):
            terms.append(rest)
    except OverflowError:
        return numbers
    return terms


class Figures:
    """The numbers of many episodes, none of them cut.

    Values that are not finite are left out: `episodes.jsonl` has null in their places.

    Attributes:
        count: how many episodes there are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._rewards, self._lengths = Spread(), Spread()
        self._returns: dict[str, Spread] = {}  # per policy one number for each seat and episode
        self._won: dict[str, Spread] = {}  # per policy the share of each decided game
        self._metrics: dict[str, Spread] = {}

    def add(
        self, episodes: Collection[EpisodeRecord], measured: Mapping[Place, Sequence[Metrics]] | None = None
    ) -> None:
        """Adds episodes, in any order.

        Args:
            episodes: none of them cut.
            measured: what callbacks have measured, by the place of the episode.
        """
        self.count += len(episodes)
        by_match: dict[tuple[str, int], list[EpisodeRecord]] = {}
        for episode in episodes:
            by_match.setdefault((episode.env, episode.match), []).append(episode)
            self._lengths.add(episode.length)
            reward, seats = 0.0, 0
            for metrics in (measured or {}).get(place_of(episode), ()):
                self.measure(metrics)
            for seat in episode.seats:
                if isinstance(seat.metrics, dict):
                    self.measure(seat.metrics)
                if (value := seat.return_) is not None and math.isfinite(value):
                    reward += value * len(seat.entities)
                    seats += 1
                    self._returns.setdefault(seat.policy, Spread()).add(value)
            if seats and math.isfinite(reward):
                self._rewards.add(reward)
        for of_match in by_match.values():
            for policy, brought in results_of(of_match).items():
                for share in brought.won:
                    self._won.setdefault(policy, Spread()).add(share)

    def measure(self, metrics: Metrics) -> None:
        """Adds values of metrics."""
        for name, value in metrics.items():
            self._metrics.setdefault(name, Spread()).add(value)

    def metrics(self, known: Iterable[str] = ()) -> dict[str, float]:
        """`<name>_mean`, `_min` and `_max` of each metric; of those that are `known` even without a value."""
        names = sorted({*known, *self._metrics})
        return {key: value for name in names for key, value in self._metrics.get(name, Spread()).ends(name).items()}

    @property
    def measured(self) -> frozenset[str]:
        """The names of the metrics that have values."""
        return frozenset(self._metrics)

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


def metric_names(metrics: Iterable[str]) -> frozenset[str]:
    """The names of the metrics in `custom_metrics` of a result."""
    return frozenset(key.removesuffix("_mean") for key in metrics if key.endswith("_mean"))
