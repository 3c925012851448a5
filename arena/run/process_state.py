"""What one process keeps of a run besides its roles: above all the root's state between legs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.plan.plan import Plan, Role, RoleKind
from arena.run.stop import Stop

if TYPE_CHECKING:
    from arena.callbacks import Callbacks
    from arena.diagnostics.profile import RoleProfile
    from arena.external.connection import Connection
    from arena.league.read_results import GamesSoFar
    from arena.records.boundary import FileDigests
    from arena.records.formats import ChangeLine
    from arena.records.lock import RunLock
    from arena.records.results import RunResults
    from arena.records.scoreboard import Scoreboard
    from arena.roles.environment.restart import RestartLimit
    from arena.run.restart import Restart


class Profiled(NamedTuple):
    """A role with its policy and rank, which change from round to round of a league."""

    role: Role
    policy: str | None  # of a worker
    rank: int

    @classmethod
    def of(cls, plan: Plan, role: Role) -> Profiled:
        return cls(role, plan.seat(role).policy if role.kind is RoleKind.WORKER else None, plan.rank_of(role))

    @property
    def place(self) -> tuple[int, int, str, int]:
        """Its place in the order: the root first, then match by match the environment and its workers."""
        match, seat = (-1 if number is None else number for number in (self.role.match, self.role.seat))
        return match, seat, self.policy or "", self.rank


@dataclass
class ProcessState:
    """Filled by the roles of one process.

    Args:
        scoreboard: of the root.
        stop: the requests to end the run that have reached this process, if it leads the run.
        callbacks: of the root.
        results: of the root, from stage to stage.
        games: of the rounds of a league that are over; of the root.
        curriculum: of the root: the object of the user's class.
        change: what `curriculum` has just changed, until that is on record.
        objects: callbacks that a program has made itself.
        holder: the connection to a program that holds the run.
        wanted: what a program that holds the run wants to change, by key path.
        profiles: of the root: the time of each role.
        resumable: of the root: whether all algorithms can be saved and loaded, so that the run can be resumed.
        restart: of the root: the death after which this process was started, until it is on record.
        digests: of the root: of the files of its boundaries.
        connections: to the external games of the matches whose environments have played in this process.
        lock: of the run folder, held by the process that leads the run from its beginning to its end.
        restart_limits: by match, of the environments of this process; they count across legs.
    """

    scoreboard: Scoreboard | None = None
    stop: Stop = field(default_factory=Stop)
    callbacks: Callbacks | None = None
    results: RunResults | None = None
    games: GamesSoFar | None = None
    curriculum: Any = None
    change: ChangeLine | None = None
    objects: tuple[Any, ...] = ()
    holder: Any = None
    wanted: dict[str, Any] = field(default_factory=dict)
    profiles: dict[Profiled, RoleProfile] = field(default_factory=dict)
    resumable: bool = True
    restart: Restart | None = None
    lock: RunLock | None = None
    digests: FileDigests | None = None
    connections: dict[int, Connection] = field(default_factory=dict)
    restart_limits: dict[int, RestartLimit] = field(default_factory=dict)

    def for_evaluation(self) -> ProcessState:
        """The root's state during an evaluation of the run; a request to end the run ends the evaluation."""
        return ProcessState(stop=self.stop)

    def add_profile(self, who: Profiled, profile: RoleProfile) -> None:
        """Adds to the time of a role."""
        before = self.profiles.get(who)
        self.profiles[who] = profile if before is None else before.plus(profile)

    def disconnect(self, reason: str) -> None:
        """Ends all external games of this process."""
        for connection in self.connections.values():
            connection.close(reason)
        self.connections.clear()

    def unlock(self) -> None:
        """Releases the lock of the run folder, if this process holds it."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None
