"""The games of a league with the ticks at which they were played: what is needed where policies learn meanwhile.

A period is a stretch of ticks in which it is known who has played whom, not when exactly. Periods never cross the
border of two rounds, at which snapshots join and policies begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from arena.league.results import Results


class Period(NamedTuple):
    """The games that ended within some ticks.

    Args:
        start: the tick after which they ended.
        end: the tick at which the last of them may have ended.
        results: how they ended.
        playing: policies and snapshots in the matches of its round; those of them that learn have changed.
    """

    start: int
    end: int
    results: Results
    playing: frozenset[str]

    @property
    def ticks(self) -> int:
        """How long it is."""
        return self.end - self.start


class Beginning(NamedTuple):
    """A policy begins anew.

    Args:
        tick: at which.
        source: the policy of which it becomes a copy; None: it is reset to its first weights.
    """

    tick: int
    source: str | None


@dataclass(frozen=True)
class Timeline:
    """The games of a run, period by period.

    Args:
        periods: in the order of their ticks.
        round_ticks: how long a round is.
        learners: the policies that learn; the strength of each other player never changes.
        beginnings: when policies that learn have begun anew, the earliest first.
        snapshots: that have joined; `p@t` is the policy `p` as it was at tick `t`.
    """

    periods: Sequence[Period]
    round_ticks: int
    learners: frozenset[str]
    beginnings: Mapping[str, Sequence[Beginning]] = field(default_factory=dict)
    snapshots: Sequence[str] = ()

    @cached_property
    def results(self) -> Results:
        """All games, whenever they were played."""
        return together(period.results for period in self.periods)

    @cached_property
    def current(self) -> Results:
        """The games of players as they are now: without those of a policy before it last began anew."""
        found = Results()
        for period in self.periods:
            gone = [name for name, times in self.beginnings.items() if times[-1].tick >= period.end]
            found.update(period.results.without(gone) if gone else period.results)
        return found

    @property
    def players(self) -> tuple[str, ...]:
        """All players that have played as they are now, sorted."""
        return self.current.players

    @property
    def learns(self) -> bool:
        """Whether a player that has played learns."""
        return not self.learners.isdisjoint(self.results.players)

    @property
    def end(self) -> int:
        """The tick at which the last period ends."""
        return self.periods[-1].end if self.periods else 0

    def until(self, tick: int) -> Timeline:
        """The players as they were at a tick: what has begun or joined later has not."""
        beginnings = {
            name: found
            for name, times in self.beginnings.items()
            if (found := [one for one in times if one.tick < tick])
        }
        snapshots = [name for name in self.snapshots if int(name.rpartition("@")[2]) <= tick]
        periods = [period for period in self.periods if period.start < tick]
        return Timeline(periods, self.round_ticks, self.learners, beginnings, snapshots)


def together(results: Iterable[Results]) -> Results:
    """The games of several results."""
    found = Results()
    for one in results:
        found.update(one)
    return found
