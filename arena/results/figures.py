"""Episodes to numbers: means, least and most values of rewards, lengths and returns, and shares of games won."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from arena.records.episode_stats import results_of
from arena.records.metrics import EpisodeRecord, EpisodeRow, column
from arena.records.outcome import Winners
from arena.records.scoreboard import Kind

NAN = math.nan

Metrics = Mapping[str, float]
Place = tuple[int, int, int, int]
"""Of an episode: its tick, match, lane, and number."""

_env, _match, _length, _seats = column("env"), column("match"), column("length"), column("seats")
place_of: Callable[[EpisodeRow], Place] = itemgetter(
    *(EpisodeRecord._fields.index(name) for name in ("tick", "match", "lane", "episode"))
)


class Figures:
    """The numbers of many episodes, none of them cut.

    Values that are not finite are left out: `episodes.jsonl` has null in their places.

    Attributes:
        count: how many episodes there are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._rewards: list[float] = []
        self._lengths: list[int] = []
        self._returns: dict[str, list[float]] = {}  # per policy one for each seat and episode
        self._won: dict[str, dict[Kind, list[float]]] = {}  # per policy the share of each decided game
        self._metrics: dict[str, list[float]] = {}

    def add(self, episodes: Collection[EpisodeRow], measured: Mapping[Place, Sequence[Metrics]] | None = None) -> None:
        """Adds episodes, in any order.

        Args:
            episodes: none of them cut.
            measured: what callbacks have measured, by the place of the episode.
        """
        self.count += len(episodes)
        by_match: dict[tuple[str, int], list[EpisodeRow]] = {}
        for episode in episodes:
            by_match.setdefault((_env(episode), _match(episode)), []).append(episode)
            self._lengths.append(_length(episode))
            reward, seats = 0.0, 0
            for metrics in (measured or {}).get(place_of(episode), ()):
                self.measure(metrics)
            for policy, entities, value, _, _, stated in _seats(episode):
                if stated is not None:
                    self.measure(stated)
                if math.isfinite(value):
                    reward += value * len(entities)
                    seats += 1
                    self._returns.setdefault(policy, []).append(value)
            if seats:
                self._rewards.append(reward)
        for of_match in by_match.values():
            for policy, brought in results_of(of_match).items():
                won = self._won.setdefault(policy, {})
                for share, settled in zip(brought.won, brought.settled, strict=True):
                    won.setdefault(Kind(brought.env, settled), []).append(share)

    def measure(self, metrics: Metrics) -> None:
        """Adds values of metrics."""
        for name, value in metrics.items():
            self._metrics.setdefault(name, []).append(value)

    def metrics(self, known: Iterable[str] = ()) -> dict[str, float]:
        """`<name>_mean`, `_min` and `_max` of each metric; of those that are `known` even without a value."""
        names = sorted({*known, *self._metrics})
        return {key: value for name in names for key, value in spread(name, self._metrics.get(name, ())).items()}

    @property
    def measured(self) -> frozenset[str]:
        """The names of the metrics that have values."""
        return frozenset(self._metrics)

    def rewards(self) -> dict[str, Any]:
        """`episode_reward_mean`, `_min`, `_max` and `episode_len_mean`; NaN without an episode."""
        return {**spread("episode_reward", self._rewards), "episode_len_mean": mean(self._lengths)}

    def returns(self, policies: Iterable[str]) -> dict[str, dict[str, float]]:
        """`policy_reward_mean`, `_min`, `_max`: mappings by policy."""
        found = {name: spread("", self._returns.get(name, ())) for name in policies}
        return {f"policy_reward{end}": {name: ends[end] for name, ends in found.items()} for end in _ENDS}

    def win_rates(self, policies: Iterable[str], winners: Winners) -> dict[str, float]:
        """Per policy the share of the games with a winner or a draw that it won, as the scoreboard counts them.

        Args:
            policies: by name.
            winners: which games have winners.
        """
        return {name: mean(self._counting(name, winners)) for name in policies}

    def _counting(self, policy: str, winners: Winners) -> list[float]:
        kinds = self._won.get(policy, {})
        return [
            share
            for kind, shares in kinds.items()
            if kind.settled or kind.env not in winners.without
            for share in shares
        ]


_ENDS = ("_mean", "_min", "_max")


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """`<name>_mean`, `<name>_min` and `<name>_max` of numbers; NaN without a number."""
    if not values:
        return {f"{name}{end}": NAN for end in _ENDS}
    return {f"{name}_mean": mean(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def mean(values: Sequence[float]) -> float:
    """The exact sum of numbers, rounded once, divided by their number; NaN without a number.

    The order of the numbers does not matter.
    """
    if not values:
        return NAN
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is larger than a float can be
        return math.inf if max(values) > -min(values) else -math.inf


def metric_names(metrics: Iterable[str]) -> frozenset[str]:
    """The names of the metrics in `custom_metrics` of a result."""
    return frozenset(key.removesuffix("_mean") for key in metrics if key.endswith("_mean"))
