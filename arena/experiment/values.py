"""What trials have reached: numbers of `result.json`, and the value by which a trial is judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from arena.experiment.config import MetricConfig
from arena.records.journal import FollowedJournal
from arena.records.result_file import numbers


class FollowedResults:
    """The results of a run that are on record; reads only what is new."""

    def __init__(self, path: Path, key: str) -> None:
        self._path, self._key = path, key
        self._forget()

    def _forget(self) -> None:
        self._tail = FollowedJournal(self._path)
        self.ticks = 0
        self.done = False  # whether the newest result is the last one of a run that has come to its end
        self.points: list[tuple[int, float]] = []  # training_iteration and value, of results with the metric
        self.at: list[int] = []  # the tick of each of them

    def look(self) -> list[tuple[int, float]]:
        """Takes the results that are new; returns those that have the metric.

        Raises:
            ConfigError: the file is damaged.
        """
        if self._tail.was_cut:
            self._forget()
        fresh = []
        for line in self._tail.fresh(iter):
            self.ticks = int(line.get("ticks", self.ticks))
            self.done = line.get("done") is True
            if (value := numbers(line).get(self._key)) is not None:
                fresh.append((int(line.get("training_iteration", 0)), float(value)))
                self.at.append(self.ticks)
        self.points += fresh
        return fresh

    @property
    def values(self) -> list[float]:
        """The values of the metric, result after result."""
        return [value for _, value in self.points]


def judged(values: Sequence[float], metric: MetricConfig) -> float | None:
    """The value of a trial by the scope of the metric; None without a result that has the metric."""
    if not values:
        return None
    if metric.scope == "best":
        return max(values) if metric.mode == "max" else min(values)
    if metric.scope == "last":
        return values[-1]
    last = values if metric.scope == "mean" else values[-int(metric.scope.removeprefix("last-")) :]
    return math.fsum(last) / len(last)


class TrialRow(msgspec.Struct, frozen=True):
    """A trial as tables show it."""

    number: int
    name: str  # of its run
    variant: str  # its name; empty without variants
    params: dict[str, Any]  # the values that vary
    seed: int
    state: str  # its newest state
    attempts: int  # how often it was tried
    ticks: int  # that the run has reached
    seconds: float  # that its attempts took
    value: float | None  # by which it is judged; None without one
    highest: float | None  # value of the metric in any result; `lowest`, `last` likewise
    lowest: float | None
    last: float | None
    folder: str  # of the run, as a path
    why: str  # the reason of its state in words
