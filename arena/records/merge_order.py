"""Episodes of several matches in one order: by the tick on which they ended, then by match and lane.

Matches report their episodes at different times. What is written down is to be the same in every run of the same
configuration, so an episode waits here until no match can end an earlier one any more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

from arena.records.metrics import EpisodeRecord, EpisodeRow, column

Place: TypeAlias = tuple[int, int, int]
"""Of an episode in this order: its tick, match and lane."""

place_of: Callable[[EpisodeRow], Place] = itemgetter(
    *(EpisodeRecord._fields.index(name) for name in ("tick", "match", "lane"))
)
_tick = column("tick")


class InOrder:
    """The episodes that wait.

    Args:
        ticks: per match how many ticks it has played.
    """

    def __init__(self, ticks: Mapping[int, int]) -> None:
        self._ticks: dict[int, float] = dict(ticks)
        self._waiting: dict[int, deque[EpisodeRow]] = {match: deque() for match in ticks}

    def add(self, match: int, tick: int, episodes: Sequence[EpisodeRow], *, last: bool = False) -> list[EpisodeRow]:
        """Takes the episodes of a match that has played so many ticks; returns those whose turn has come.

        Args:
            match: the match.
            tick: how far it has come: all its later episodes end after it.
            episodes: in the order of their ticks.
            last: none come after these, unless the match is added to again: a match that has ended early, or has played
            all
                that an evaluation asks for, does not hold up the others.
        """
        self._ticks[match] = math.inf if last else tick
        self._waiting[match].extend(episodes)
        return self._ripe(min(self._ticks.values()))

    def rest(self) -> list[EpisodeRow]:
        """The entries that still wait, when no others will come."""
        return self._ripe(math.inf)

    def _ripe(self, reached: float) -> list[EpisodeRow]:
        ripe: list[EpisodeRow] = []
        for waiting in self._waiting.values():
            while waiting and _tick(waiting[0]) <= reached:
                ripe.append(waiting.popleft())
        ripe.sort(key=place_of)
        return ripe
