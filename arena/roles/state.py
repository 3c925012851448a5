"""What one process keeps of a run besides its roles: above all the root's state between legs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from arena.plan.plan import Plan, Role, RoleKind
from arena.roles.stop import Stop

if TYPE_CHECKING:
    from arena.callbacks import Callbacks
    from arena.config.fields import OutcomeRule
    from arena.diagnostics.profile import RoleProfile
    from arena.external.connection import Connection
    from arena.league.read_results import GameReader
    from arena.records.boundary import FileDigests
    from arena.records.checkpoint import StatesFile
    from arena.records.formats import ChangeLine
    from arena.records.lock import RunLock
    from arena.records.results import RunResults
    from arena.records.scoreboard import Scoreboard
    from arena.roles.environment.reports import Reports
    from arena.roles.environment.restart import RestartLimit


class Display(Protocol):
    """Shows the progress of a run."""

    def start(self) -> None:
        """Begins to show; elapsed time is counted from here."""

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None:
        """Takes the state of the run: ticks played by all matches together, and the results of the policies."""

    def message(self, text: str) -> None:
        """Shows a line that stays."""

    def stop(self) -> None:
        """Shows the last state and releases the stream; a second call does nothing."""


class ProfileKey(NamedTuple):
    """A role with its policy and rank, which change from round to round of a league."""

    role: Role
    policy: str | None  # of a worker
    rank: int

    @classmethod
    def of(cls, plan: Plan, role: Role) -> ProfileKey:
        return cls(role, plan.seat(role).policy if role.kind is RoleKind.WORKER else None, plan.rank_of(role))

    @property
    def place(self) -> tuple[int, int, str, int]:
        """Its place in the order: the root first, then match by match the environment and its workers."""
        match, seat = (-1 if number is None else number for number in (self.role.match, self.role.seat))
        return match, seat, self.policy or "", self.rank


@dataclass
class RunState:
    """What changes while a run is played, as one process keeps it from leg to leg and from stage to stage."""

    stop: Stop = field(default_factory=Stop)  # the requests to end the run that have reached this process
    connections: dict[int, Connection] = field(default_factory=dict)  # per match, to the external games of this process
    restart_limits: dict[int, RestartLimit] = field(default_factory=dict)  # per match of this process
    reports: dict[int, Reports] = field(default_factory=dict)  # of the matches, per rank of this process
    #: At the end of a leg, per policy and rank of this process: how many workers are to add their own states yet, and
    #: the open files with those of the others, by boundary.
    worker_states: dict[tuple[str, int], tuple[int, dict[int, StatesFile]]] = field(default_factory=dict)
    # Of the root's process:
    lock: RunLock | None = None  # of the run folder
    scoreboard: Scoreboard | None = None
    results: RunResults | None = None
    callbacks: Callbacks | None = None
    objects: tuple[Any, ...] = ()  # callbacks that a program has made itself
    games: GameReader | None = None  # of the rounds of a league that are over
    digests: FileDigests | None = None  # of the files of the boundaries
    profiles: dict[ProfileKey, RoleProfile] = field(default_factory=dict)  # the time of each role
    external: dict[int, str] | None = None  # by match, the kind of external games; None: the roles have not told yet
    rules: dict[int, OutcomeRule | None] | None = None  # likewise, how the winner of an episode is determined
    resumable: bool = True  # all algorithms can be saved and loaded
    curriculum: Any = None  # the object of the user's class
    unrecorded_change: ChangeLine | None = None  # what `curriculum` has just changed
    controller: Any = None  # the connection to a program that controls the run
    changes: dict[str, Any] = field(default_factory=dict)  # that the program asks for, by key path

    def add_profile(self, who: ProfileKey, profile: RoleProfile) -> None:
        """Adds to the time of a role."""
        before = self.profiles.get(who)
        self.profiles[who] = profile if before is None else before.plus(profile)

    def disconnect(self, reason: str) -> None:
        """Ends all external games of this process."""
        for connection in self.connections.values():
            connection.close(reason)
        self.connections.clear()

    def release(self) -> None:
        """Ends all external games of this process, and releases the lock of the run folder."""
        self.disconnect("over")
        self.unlock()

    def unlock(self) -> None:
        """Releases the lock of the run folder, if this process holds it."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None
