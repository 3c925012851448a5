"""What one process keeps of a run besides its roles: the root's state between legs, and what a rollback needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from arena.run.stop import Stop

if TYPE_CHECKING:
    from arena.callbacks import Callbacks
    from arena.diagnostics.profile import RoleProfile
    from arena.external.connection import Connection
    from arena.league.read_results import GamesSoFar
    from arena.records.boundary import FileDigests
    from arena.records.formats import ChangeLine
    from arena.records.lock import RunLock
    from arena.records.scoreboard import Scoreboard
    from arena.results.keeper import RunResults
    from arena.roles.environment.restart import RestartLimit
    from arena.run.profiles import Profiled


@dataclass
class ProcessState:
    """Filled by the roles of one process.

    Args:
        tolerant: whether the run goes on when a process dies.
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
        concluded: whether this process has shown the result of the run.
        profiles: of the root: the time of each role.
        begun: whether a role of this process has begun to play, so that the run folder has a boundary.
        repairable: whether all algorithms can be saved and loaded, so that a leg can be played again.
        tick: the farthest tick that a role of this process had seen of its match when it was interrupted.
        digests: of the root: of the files of its boundaries.
        connections: to the external games of the matches whose environments have played in this process.
        lock: of the run folder, held by the process that leads the run from its beginning to its end.
        restart_limits: by match, of the environments of this process; they count across legs.
    """

    tolerant: bool = False
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
    concluded: bool = False
    profiles: dict[Profiled, RoleProfile] = field(default_factory=dict)
    begun: bool = False
    repairable: bool = True
    tick: int = 0
    lock: RunLock | None = None
    digests: FileDigests | None = None
    connections: dict[int, Connection] = field(default_factory=dict)
    restart_limits: dict[int, RestartLimit] = field(default_factory=dict)

    def begin_leg(self, *, repairable: bool) -> None:
        """Notes that a leg begins."""
        self.begun, self.repairable = True, repairable

    def reach(self, tick: int) -> None:
        """Notes the tick that a match has reached."""
        self.tick = max(self.tick, tick)

    def roll_back(self) -> None:
        """Forgets what was counted since the boundary to which the run goes back; the folder has what came before.

        Callbacks are created again, as by `--resume`, because the old ones have seen what is played again.
        """
        self.scoreboard, self.callbacks, self.results, self.tick = None, None, None, 0
        self.curriculum, self.change, self.games, self.digests = None, None, None, None
        self.stop.by = ""

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
