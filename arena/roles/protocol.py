"""Messages between roles outside the step path.

To the root (tag TO_ROOT), from
    all roles      Ready           the game is created, or the algorithm is built
                   Failed          an error; the root ends the run with its message
                   Done            the role has finished the leg
                   Notice          a sentence for the user
    workers        Left            `run` has returned before the end of the match
    environments   Stopping        whether the leg can end at the tick that the root ordered
                   Progress        of a rank's matches: ticks played, and the episodes finished since the last message
                   Restarted       a failed game was recreated; its unfinished episodes are dropped
                   ExternalPlace   where the external games of a match connect
                   GamesLine       counts of external games
                   BudgetExhausted no external game of a match will come any more
    group writers  UpdateRecord    the metrics of one update of a policy
From the root (tag FROM_ROOT), to
    all roles      Go              all roles are ready: play. From now on the run folder may be written to
                   Next            the leg is over: the next leg, or None
From an environment to each of its workers, once per block of lanes (tag WELCOME)
                   Welcome         spaces and lanes of the worker's seat, see `arena.seat.layout`

These messages are rare, so they are pickled; processes of one run trust each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from arena.config.fields import OutcomeRule
from arena.diagnostics.profile import RoleProfile
from arena.errors import ArenaError, ConfigError
from arena.plan.plan import Plan, Role
from arena.records.metrics import EpisodeRecord
from arena.roles.run import Leg

if TYPE_CHECKING:
    from arena.records.checkpoint import StatePlace

_REPORT_SECONDS = 0.25  # between two Progress messages of a rank, in runs of few ranks
_MOST_REPORTS = 2_000  # per second, of all ranks


@dataclass(frozen=True)
class Ready:
    role: Role
    resumable: bool = True  # whether the role's state can be saved and loaded, so that a leg may end within the run
    schedule: str = ""  # of a worker: when its algorithm synchronizes with its group, see `arena.plan.deadlock`
    external: str | None = None  # of an environment: the kind of its external games, see `registry.external_kind`
    rule: OutcomeRule | None = None  # of an environment: how the winner of an episode is determined


@dataclass(frozen=True)
class Done:
    role: Role
    tick: int  # of its match
    profile: RoleProfile | None = None  # time per activity, in a profiled run
    episodes: tuple[int, ...] = ()  # of an environment: number of recorded episodes per lane
    saved: int | None = None  # of a worker: the boundary of the last checkpoint that it has written
    returned: bool = False  # of a worker: whether `run` has returned before the end of the leg
    stateless: bool = False  # of a worker: whether it learns, but its algorithm cannot save its state
    alone: bytes | None = None  # of a worker that has not synchronized in this leg: a digest of its state
    worker_state: StatePlace | None = None  # of a worker: where it has written the state that it alone has


@dataclass(frozen=True)
class Left:
    role: Role
    tick: int  # of its match


@dataclass(frozen=True)
class Progress:
    rank: int  # the MPI process that hosts the environments
    ticks: Mapping[int, int]  # that its matches have reached, of those that have moved since the last message
    reached: int  # the tick that all its matches that still play have reached; the highest one if none plays
    episodes: tuple[EpisodeRecord, ...]  # of all its matches, in the order of their places
    logged: Mapping[str, int]  # by policy, the last update sent before these ticks
    last: bool = False  # whether all its matches have played the leg

    def __reduce__(self) -> tuple[Callable[..., Progress], tuple[Any, ...]]:
        """Pickles the episodes as one text of bytes: thousands may come in a second, and the root receives them all."""
        return _received, (self.rank, self.ticks, self.reached, _ENCODER.encode(self.episodes), self.logged, self.last)


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(tuple[EpisodeRecord, ...])


def _received(
    rank: int, ticks: Mapping[int, int], reached: int, episodes: bytes, logged: Mapping[str, int], last: bool
) -> Progress:
    return Progress(rank, ticks, reached, _DECODER.decode(episodes), logged, last)


def report_seconds(plan: Plan) -> float:
    """Seconds between two Progress messages of a rank: the root gets at most 2,000 messages a second of all ranks."""
    return max(_REPORT_SECONDS, len(plan.environment_ranks) / _MOST_REPORTS)


@dataclass(frozen=True)
class Restarted:
    match: int
    tick: int  # of the match, at which the game failed
    lanes: tuple[int, ...]  # their unfinished episodes are dropped
    error: str  # of the game, in one line
    trace: str  # its traceback
    seconds: float  # from the error until the new game was reset


@dataclass(frozen=True)
class BudgetExhausted:
    match: int
    tick: int  # the ticks after it are empty


@dataclass(frozen=True)
class Stopping:
    match: int
    ordered: int  # the tick at which the leg is to end
    tick: int  # that the match has reached, including a tick in progress
    holds: bool  # whether the match waits before the ordered tick for a `Go` with the leg's end


@dataclass(frozen=True)
class Notice:
    text: str


@dataclass(frozen=True)
class Failed:
    who: str  # rank, role, match and policy
    message: str  # for the user: one sentence where it says everything, or a traceback
    exit_code: int  # 2 for an error in the configuration, 128 + its number for a signal, 1 for all other errors
    logs_useless: bool = False  # the message says everything: a mistake, or a wrong value of a game
    brief: str = ""  # the message without its traceback, if it has one
    key: str = ""  # of the configuration, whose game or policy has failed; empty: not known, or in the message
    mistake: ConfigError | None = None  # that the message is of, with its place


class RoleFailed(ArenaError):
    """A role ended with an error; the run is over."""

    def __init__(self, failure: Failed) -> None:
        super().__init__(f"{failure.who}\n{failure.message}")
        self.failure = failure


@dataclass(frozen=True)
class Go:
    until: int  # the leg's last tick


@dataclass(frozen=True)
class Next:
    leg: Leg | None
