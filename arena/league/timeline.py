"""Timelines: the games of a league by the ticks at which they ended, with snapshots, resets and copies.

A period is a stretch of ticks: its games ended within it, at ticks that are not kept. Periods never cross the border of
two rounds, at which snapshots join and policies start over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from arena.league.results import Results, Score

_NODES = 32  # that a strength curve has at least, if the periods are short enough
_SINGLE = 16  # newest rounds with nodes of their own, where older ones are merged


class Period(NamedTuple):
    """A stretch of ticks, and the games that ended within it."""

    start: int  # the tick after which they ended
    end: int  # the tick at which the last of them may have ended
    results: Results
    playing: frozenset[str]  # policies and snapshots in the matches of its round; of these, those that learn changed


class Margin(NamedTuple):
    """The margins of some games: half the difference of the returns of the first side and of the second."""

    games: int
    total: float


class PolicyReset(NamedTuple):
    """A reset of a policy, or its replacement by a copy."""

    tick: int
    source: str | None  # the policy of which it becomes a copy; None: it is reset to its first weights


@dataclass(frozen=True, eq=False)
class Timeline:
    """The games of a run, period by period."""

    periods: Sequence[Period]  # in the order of their ticks
    round_ticks: int  # how long a round is
    learners: frozenset[str]  # the policies that learn; the strength of each other player never changes
    beginnings: Mapping[str, Sequence[PolicyReset]] = field(default_factory=dict)  # of policies, the earliest first
    snapshots: Sequence[str] = ()  # that have joined; `p@t` is the policy `p` as it was at tick `t`
    prior: Mapping[str, float] = field(default_factory=dict)  # of players at the beginning, in Elo, by an earlier run
    margins: Mapping[tuple[int, str, str], Margin] = field(default_factory=dict)
    """By round and the players that alone filled the two sides; only in leagues with the rule `nash`."""

    @cached_property
    def results(self) -> Results:
        """All games, whenever they were played."""
        return together(period.results for period in self.periods)

    def tallies(self) -> Mapping[str, Score]:
        """The games of each player as it is now, by side: of a policy, those since it started over."""
        found: dict[str, Score] = {}
        for period in self.periods:
            for player, score in period.results.tallies().items():
                if self._is_now(player, period):
                    found[player] = found.get(player, Score()).plus(score)
        return found

    def taken_part(self) -> Mapping[str, int]:
        """In how many games each player took part, as it is now."""
        found: dict[str, int] = {}
        for period in self.periods:
            for player, games in period.results.taken_part().items():
                if self._is_now(player, period):
                    found[player] = found.get(player, 0) + games
        return found

    def _is_now(self, player: str, period: Period) -> bool:
        """Whether a player is still what it was in a period, or has learned since, but not started over."""
        began = self.newest_beginnings.get(player)
        return began is None or began.tick <= period.start

    @cached_property
    def newest_beginnings(self) -> Mapping[str, PolicyReset]:
        """The newest beginning of each policy that has started over."""
        return {name: times[-1] for name, times in self.beginnings.items() if times}

    @property
    def players(self) -> tuple[str, ...]:
        """All players that have played as they are now, sorted."""
        return tuple(sorted(self.taken_part()))

    @property
    def learns(self) -> bool:
        """Whether a player that has played learns."""
        return not self.learners.isdisjoint(self.results.players)

    @property
    def end(self) -> int:
        """The tick at which the last period ends."""
        return self.periods[-1].end if self.periods else 0

    def groups(self, *, coarse: bool = False) -> Iterator[list[Period]]:
        """The periods of strength curves: groups of consecutive periods, at whose ends the curves have nodes.

        If `coarse`, rounds long ago are merged if there are very many.
        """
        starts = sorted({self.round_of(period) for period in self.periods})
        parts = 2 ** int(math.log2(max(1.0, _NODES / max(1, len(starts)))))
        old = len(starts) - _SINGLE if coarse and len(starts) > _NODES else 0
        merged = {start: place * _SINGLE // old for place, start in enumerate(starts[:old])}
        begun = {one.tick for times in self.beginnings.values() for one in times}
        group: list[Period] = []
        before: object = None
        for period in self.periods:
            start = self.round_of(period)
            key = merged.get(start, (start, (period.start - start) * parts // self.round_ticks))
            if group and (key != before or period.start in begun):
                yield group
                group = []
            group.append(period)
            before = key
        if group:
            yield group

    def round_of(self, period: Period) -> int:
        """The tick at which the round of a period begins."""
        return period.start - period.start % self.round_ticks

    def begun(self, snapshots: Iterable[str], forks: Mapping[str, str], resets: Iterable[str]) -> Timeline:
        """The timeline at the beginning of the next round; forks are the policies that become copies, by source."""
        beginnings = {name: [*times] for name, times in self.beginnings.items()}
        for name, source in [*dict.fromkeys(resets).items(), *forks.items()]:
            beginnings.setdefault(name, []).append(PolicyReset(self.end, source))
        return replace(self, beginnings=beginnings, snapshots=[*self.snapshots, *snapshots])

    def until(self, tick: int) -> Timeline:
        """The timeline up to a tick, without later beginnings and snapshots."""
        beginnings = {
            name: found
            for name, times in self.beginnings.items()
            if (found := [one for one in times if one.tick < tick])
        }
        snapshots = [name for name in self.snapshots if int(name.rpartition("@")[2]) <= tick]
        periods = [period for period in self.periods if period.start < tick]
        return replace(self, periods=periods, beginnings=beginnings, snapshots=snapshots)


def together(results: Iterable[Results]) -> Results:
    """The games of several results."""
    found = Results()
    for one in results:
        found.update(one)
    return found
