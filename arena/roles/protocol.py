"""Messages between roles outside the step path.

To the root (tag TO_ROOT), from
    all roles      Ready      the game is created, or the algorithm is built
                   Failed     an error; the root ends the run with its message
                   Done       the role has finished the leg
    workers        Left       `run` has returned before the end of the match
    environments   Stopping   whether the leg can end at the tick that the root ordered
                   Progress   ticks played, and the episodes finished since the last message
                   Restarted  a failed game was recreated; its unfinished episodes are dropped
                   Listening  where the external games of a match connect
                   Games      counts of external games
                   Exhausted  no external game of a match will come any more
    group writers  Update     the metrics of one update of a policy
From the root (tag FROM_ROOT), to
    all roles      Go         all roles are ready: play. From now on the run folder may be written to
                   Next       the leg is over: the next leg, or None
From an environment to each of its workers, once per block of lanes (tag WELCOME)
                   Welcome    spaces and lanes of the worker's seat, see `arena.seat.welcome`

These messages are rare, so they are pickled; processes of one run trust each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from arena.diagnostics.profile import RoleProfile
from arena.plan.plan import Role
from arena.records.metrics import EpisodeRecord, UpdateRecord
from arena.roles.run import Leg

if TYPE_CHECKING:
    from arena.records.formats import ExternalPlace, GamesLine


@dataclass(frozen=True)
class Ready:
    role: Role
    resumable: bool = True  # whether the role's state can be saved and loaded, so that a leg may end within the run
    schedule: str = ""  # of a worker: when its algorithm synchronizes with its group, see `arena.plan.deadlock`


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


@dataclass(frozen=True)
class Left:
    role: Role
    tick: int  # of its match


@dataclass(frozen=True)
class Progress:
    match: int
    tick: int
    episodes: tuple[EpisodeRecord, ...]
    last: bool = False  # whether this is the match's last message of the leg

    def __reduce__(self) -> tuple[Callable[..., Progress], tuple[int, int, bytes, bool]]:
        """Pickles the episodes as one text of bytes: thousands may come in a second, and the root receives them all."""
        return _received, (self.match, self.tick, _ENCODER.encode(self.episodes), self.last)


_ENCODER, _DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(tuple[EpisodeRecord, ...])


def _received(match: int, tick: int, episodes: bytes, last: bool) -> Progress:
    return Progress(match, tick, _DECODER.decode(episodes), last)


@dataclass(frozen=True)
class Restarted:
    """A failed game was recreated.

    Args:
        match: the match of the game.
        tick: the tick of the match at which the game failed.
        lanes: the lanes whose unfinished episodes are dropped.
        error: the game's error, in one line.
        trace: its traceback.
        seconds: from the error until the new game was reset.
    """

    match: int
    tick: int
    lanes: tuple[int, ...]
    error: str
    trace: str
    seconds: float


@dataclass(frozen=True)
class Listening:
    """The external games of a match are open: the content of an entry of `external.json`."""

    place: ExternalPlace


@dataclass(frozen=True)
class Games:
    """Counts of the external games of a match: a line of `games.jsonl`."""

    line: GamesLine


@dataclass(frozen=True)
class Exhausted:
    """No external game of a match will come any more: the ticks after `tick` are empty."""

    match: int
    tick: int


@dataclass(frozen=True)
class Stopping:
    match: int
    ordered: int  # the tick at which the leg is to end
    tick: int  # that the match has reached, including a tick in progress
    holds: bool  # whether the match waits before the ordered tick for a `Go` with the leg's end


@dataclass(frozen=True)
class Update:
    record: UpdateRecord


@dataclass(frozen=True)
class Notice:
    """A sentence of an algorithm for the user."""

    text: str


@dataclass(frozen=True)
class Failed:
    """The error with which a role ended.

    Args:
        who: rank, role, match and policy, as text.
        message: for the user: one sentence where it says everything, or a traceback.
        exit_code: 2 for an error in the configuration, 128 + its number for a signal, 1 for all other errors.
    """

    who: str
    message: str
    exit_code: int


@dataclass(frozen=True)
class Go:
    until: int  # the leg's last tick


@dataclass(frozen=True)
class Next:
    leg: Leg | None
