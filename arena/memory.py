"""What a process knows of a run that would be lost with the roles that know it: kept for the repair after a death.

a worker        keeps the policy's state whenever the algorithm offers it (`group.save`), at the end of a leg, and when
                it is interrupted; what is offered it sends to its environment's process as well
an environment  leaves how far its match has come, and the episodes that may not be on record yet
the root        leaves the score and the counts
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.leg import Leg
from arena.records.lines import EpisodeRow, column
from arena.stopping import Stop

if TYPE_CHECKING:
    from arena.callbacks import Callbacks
    from arena.records.lock import RunLock
    from arena.records.scoreboard import Scoreboard
    from arena.screen.profile import Profiled
    from arena.stopwatch import RoleProfile


_lane, _episode = column("lane"), column("episode")


class Learnt(NamedTuple):
    """A policy as it was after an update."""

    update: int  # its number; 0: before the first
    ticks: int  # that the match of the worker who tells had played
    seconds: float  # since the policy's worker began
    state: bytes  # pickled

    @classmethod
    def of(cls, update: int, ticks: int, seconds: float, state: Any) -> Learnt:
        """A copy: what the algorithm does with its arrays afterwards changes nothing here."""
        return cls(update, ticks, seconds, pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL))

    def load(self) -> Any:
        """The state."""
        return pickle.loads(self.state)


class Standing(NamedTuple):
    """How far a match has come."""

    tick: int
    episodes: tuple[int, ...] = ()  # per lane how many; empty where only the tick is known
    recent: tuple[EpisodeRow, ...] = ()  # the last ones, some of which may not be on record

    def merged(self, other: Standing) -> Standing:
        """What two processes know together."""
        episodes = tuple(map(max, zip_longest(self.episodes, other.episodes, fillvalue=0)))
        recent = {(_lane(row), _episode(row)): row for row in (*self.recent, *other.recent)}
        return Standing(max(self.tick, other.tick), episodes, tuple(recent.values()))


@dataclass
class Memory:
    """Filled by the roles of one process.

    Args:
        keeps: whether it is of any use, as the run can be repaired.
        policies: by name, the newest state that this process has seen.
        matches: by number, how far those have come whose roles were here.
        scoreboard: of the root.
        counts: of the root: per match and lane how many episodes it has heard of, all of which are on record.
        stop: what signals have asked this process for, if it leads the run.
        callbacks: of the root.
        concluded: whether this process has shown the result of the run.
        profiles: of the root: where the time of each role went.
        leg: the newest leg that a role here has heard of.
        begun: whether somebody has played.
        repairable: whether the run can go on without those who die: everything that is learnt can be saved and loaded.
        left: the workers, as (match, seat), whose `run` has returned.
        lock: of the run folder, held by the process that leads the run from its beginning to its end.
        schedules: of the root: by policy that learns when its algorithm says that its workers meet.
    """

    keeps: bool = False
    policies: dict[str, Learnt] = field(default_factory=dict)
    matches: dict[int, Standing] = field(default_factory=dict)
    scoreboard: Scoreboard | None = None
    counts: Mapping[int, list[int]] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    callbacks: Callbacks | None = None
    concluded: bool = False
    profiles: dict[Profiled, RoleProfile] = field(default_factory=dict)
    leg: Leg | None = None
    begun: bool = False
    repairable: bool = True
    left: set[tuple[int, int]] = field(default_factory=set)
    lock: RunLock | None = None
    schedules: dict[str, str] = field(default_factory=dict)

    def go(self, leg: Leg, *, repairable: bool) -> None:
        """Notes that a leg is played; what was known of the one before is in what it begins from."""
        if self.leg is not None and leg.start > self.leg.start:
            self.policies.clear()
            self.matches.clear()
        self.leg, self.begun, self.repairable = leg, True, repairable

    def aside(self) -> Memory:
        """The root's, while an evaluation or a rehearsal of the run is played.

        It is asked to end as the run is. Who learns says its schedule in a rehearsal, and the run knows it from there.
        """
        return Memory(stop=self.stop, schedules=self.schedules)

    def spend(self, who: Profiled, profile: RoleProfile) -> None:
        """Adds to where somebody's time went."""
        before = self.profiles.get(who)
        self.profiles[who] = profile if before is None else before.plus(profile)

    def unlock(self) -> None:
        """Lets others have the run folder, if this process has it."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def begin_round(self) -> None:
        """Forgets the matches, and who had left them: those of the next round are others."""
        self.counts = {}
        self.left.clear()

    def learn(self, policy: str, learnt: Learnt) -> None:
        """Keeps a policy's state if it is newer than what is kept."""
        known = self.policies.get(policy)
        if known is None or known[:2] <= learnt[:2]:
            self.policies[policy] = learnt

    def note(self, match: int, standing: Standing) -> None:
        """Keeps how far a match has come, beside what is known already."""
        known = self.matches.get(match)
        self.matches[match] = standing if known is None else known.merged(standing)
