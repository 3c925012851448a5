"""What the environments of one process report to the root: one message for all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from arena.records.metrics import EpisodeRecord, place_of
from arena.roles.protocol import Progress


class Reports:
    """The reports of the matches of a rank that are not sent yet. Sends nothing itself.

    All matches of a leg must `begin` before the first of them reports.

    Attributes:
        taken_at: the time of the last message.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.taken_at = -math.inf
        self._playing: dict[int, int] = {}  # by match that plays, the tick that it has reached
        self._farthest = 0  # the highest tick that a match has reached
        self._moved: dict[int, int] = {}  # the same of those that have reported since the last message
        self._episodes: list[EpisodeRecord] = []
        self._logged: dict[str, int] = {}

    def begin(self, match: int, tick: int) -> None:
        """Takes a match that plays the leg from a tick on."""
        self._playing[match] = tick

    def add(
        self, match: int, tick: int, episodes: Sequence[EpisodeRecord], logged: Mapping[str, int], *, last: bool
    ) -> None:
        """Takes the report of a match; the arguments are as in `Progress`, `last`: whether it has played the leg."""
        self._playing[match] = self._moved[match] = tick
        if last:
            del self._playing[match]
        self._farthest = max(self._farthest, tick)
        self._episodes += episodes
        for policy, newest in logged.items():
            self._logged[policy] = max(newest, self._logged.get(policy, 0))

    @property
    def over(self) -> bool:
        """Whether all matches have played the leg."""
        return not self._playing

    def take(self, now: float) -> Progress:
        """The message about all that was reported since the last one."""
        self.taken_at = now
        reached = self._farthest if self.over else min(self._playing.values())
        episodes = tuple(sorted(self._episodes, key=place_of))
        message = Progress(self._rank, self._moved, reached, episodes, self._logged, last=self.over)
        self._moved, self._episodes, self._logged = {}, [], {}
        return message
