"""Episodes of several matches in one order: by the tick on which they ended, then by match and lane.

Matches report their episodes at different times, but the file is to be the same in every run of the same configuration.
So an episode waits here until no match can report an earlier one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

from arena.records.metrics import EpisodeRecord

Place: TypeAlias = tuple[int, int, int]
"""Of an episode in this order: its tick, match and lane."""

place_of: Callable[[EpisodeRecord], Place] = attrgetter("tick", "match", "lane")


class InOrder:
    """Holds episodes until their places in the order are certain.

    Args:
        ticks: per match, the number of ticks that it has played.
    """

    def __init__(self, ticks: Mapping[int, int]) -> None:
        self._ticks: dict[int, float] = dict(ticks)
        self._waiting: dict[int, deque[EpisodeRecord]] = {match: deque() for match in ticks}

    def add(
        self, match: int, tick: int, episodes: Sequence[EpisodeRecord], *, last: bool = False
    ) -> list[EpisodeRecord]:
        """Adds episodes of a match; returns the waiting episodes whose places in the order are certain now.

        Args:
            match: the match.
            tick: the tick that the match has reached: all its later episodes end after it.
            episodes: in the order of their ticks.
            last: whether the match, which has ended early or has played all that an evaluation asks for, no longer
                holds up the others; a later call for it revokes this.
        """
        self._ticks[match] = math.inf if last else tick
        self._waiting[match].extend(episodes)
        return self._ripe(min(self._ticks.values()))

    def rest(self) -> list[EpisodeRecord]:
        """All episodes that still wait; no others will come."""
        return self._ripe(math.inf)

    def _ripe(self, reached: float) -> list[EpisodeRecord]:
        ripe: list[EpisodeRecord] = []
        for waiting in self._waiting.values():
            while waiting and waiting[0].tick <= reached:
                ripe.append(waiting.popleft())
        ripe.sort(key=place_of)
        return ripe
