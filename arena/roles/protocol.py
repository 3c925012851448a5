"""What roles tell each other outside the step path.

To the root (tag TO_ROOT), from
    everybody      Ready      I can begin: the game is made, or the algorithm is built
                   Failed     I cannot go on; the run ends with this message
                   Done       I have nothing more to do
    workers        Left       my `run` has returned, though the match goes on
    environments   Stopping   the leg can end at the tick that was ordered, or cannot
                   Progress   so many ticks played, these episodes finished
                   Restarted  my game has failed and was made anew; these episodes are dropped
    group speakers Update     the policy has learned once more
From the root (tag FROM_ROOT)
    everybody      Go         everybody is ready: play; from now on the run folder may be written to
                   Next       the leg is over: here is the next one, or there is none
From an environment to each of its workers, once per block of lanes (tag WELCOME)
                   Welcome    what your seat looks like

These are rare, so they are pickled; processes of one run trust each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from arena.diagnostics.profile import RoleProfile
from arena.plan.plan import Role
from arena.records.metrics import EpisodeRow, UpdateRecord, plain
from arena.run.leg import Leg


@dataclass(frozen=True)
class Ready:
    role: Role
    resumable: bool = True  # whether a leg may end for it: what it has learned can be saved and loaded
    schedule: str = ""  # of a worker: when its algorithm meets its group, see `arena.plan.deadlock`


@dataclass(frozen=True)
class Done:
    role: Role
    tick: int  # of its match
    profile: RoleProfile | None = None  # where its time went, in a run that is profiled
    episodes: tuple[int, ...] = ()  # of an environment: how many each lane has on record
    saved: int | None = None  # the boundary of the checkpoint that a worker has written of its policy
    returned: bool = False  # whether a worker's `run` has ended by itself
    stateless: bool = False  # a worker that may have learned something, of which no checkpoint could be kept
    alone: bytes | None = None  # of a worker that has not met its group in this leg: a digest of its state


@dataclass(frozen=True)
class Left:
    role: Role
    tick: int  # of its match


@dataclass(frozen=True)
class Progress:
    match: int
    tick: int
    episodes: tuple[EpisodeRow, ...]
    last: bool = False  # no more of them in this leg

    def __reduce__(self) -> tuple[type[Progress], tuple[int, int, tuple[EpisodeRow, ...], bool]]:
        """What is pickled. Names would take most of the time, here and at the root, which hears of every episode."""
        return Progress, (self.match, self.tick, tuple(map(plain, self.episodes)), self.last)


@dataclass(frozen=True)
class Restarted:
    """A game that has failed was made anew.

    Args:
        match: which match's.
        tick: of the match, at which it failed.
        lanes: whose unfinished episodes are dropped.
        error: of the game, in a line.
        trace: its traceback.
        seconds: from the error until the new game could go on.
    """

    match: int
    tick: int
    lanes: tuple[int, ...]
    error: str
    trace: str
    seconds: float


@dataclass(frozen=True)
class Stopping:
    match: int
    ordered: int  # the tick at which the leg is to end
    tick: int  # that the match has come to, the one that is under way included
    holds: bool  # whether it waits before the ordered tick to be told that the leg ends there


@dataclass(frozen=True)
class Update:
    record: UpdateRecord


@dataclass(frozen=True)
class Failed:
    """Why a role ends.

    Args:
        who: rank, role, match and policy, in words.
        message: what to tell the user: a configuration error's sentence, or a traceback.
        exit_code: 2 for a user's mistake in the configuration, 1 for everything else.
    """

    who: str
    message: str
    exit_code: int


@dataclass(frozen=True)
class Go:
    until: int  # the leg's last tick
    repairable: bool = True  # whether the run can go on without those who die


@dataclass(frozen=True)
class Next:
    leg: Leg | None
