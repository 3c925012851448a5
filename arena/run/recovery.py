"""What one process knows of a run beside its roles: what the root carries from leg to leg, what a repair needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from arena.run.stop import Stop

if TYPE_CHECKING:
    from arena.callbacks import Callbacks
    from arena.diagnostics.profile import RoleProfile
    from arena.records.lock import RunLock
    from arena.records.scoreboard import Scoreboard
    from arena.run.profiles import Profiled


@dataclass
class RecoveryState:
    """Filled by the roles of one process.

    Args:
        tolerant: whether the run goes on when a process dies.
        scoreboard: of the root.
        stop: what signals have asked this process for, if it leads the run.
        callbacks: of the root.
        concluded: whether this process has shown the result of the run.
        profiles: of the root: where the time of each role went.
        begun: whether a role here has begun to play, so that the run folder has a boundary.
        repairable: whether all that is learned can be saved and loaded, so that a leg can be played again.
        tick: the farthest tick that a role here has seen of its match, when it was interrupted.
        lock: of the run folder, held by the process that leads the run from its beginning to its end.
    """

    tolerant: bool = False
    scoreboard: Scoreboard | None = None
    stop: Stop = field(default_factory=Stop)
    callbacks: Callbacks | None = None
    concluded: bool = False
    profiles: dict[Profiled, RoleProfile] = field(default_factory=dict)
    begun: bool = False
    repairable: bool = True
    tick: int = 0
    lock: RunLock | None = None

    def go(self, *, repairable: bool) -> None:
        """Notes that a leg begins."""
        self.begun, self.repairable = True, repairable

    def reach(self, tick: int) -> None:
        """Notes how far a match has come."""
        self.tick = max(self.tick, tick)

    def roll_back(self) -> None:
        """Forgets what was counted and told since the boundary to which the run goes back; it is read from the folder.

        Callbacks are made anew, as by `--resume`, because the old ones have been told of what is played again.
        """
        self.scoreboard, self.callbacks, self.tick = None, None, 0
        self.stop.by = ""

    def aside(self) -> RecoveryState:
        """The root's state while an evaluation of the run is played, which ends early when the run does."""
        return RecoveryState(stop=self.stop)

    def spend(self, who: Profiled, profile: RoleProfile) -> None:
        """Adds to where the time of a role went."""
        before = self.profiles.get(who)
        self.profiles[who] = profile if before is None else before.plus(profile)

    def unlock(self) -> None:
        """Lets others have the run folder, if this process has it."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None
