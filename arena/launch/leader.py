"""Rank 0's part in a run of any kind: it hosts the root; what is made, played and shown is for each kind to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from arena.launch import lead as hosting
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Failed
from arena.run import stages
from arena.run.display import Display
from arena.run.leg import Leg
from arena.run.recovery import RecoveryState
from arena.run.resume import forget
from arena.run.run import Run, Stage
from arena.transport.scheduler import RoleScheduler

if TYPE_CHECKING:
    from arena.transport.mpi import World


class Rank0Base(ABC):
    """Rank 0's part of a run, or all of it where there is no other rank; see `arena.launch.rank.Rank0`."""

    @abstractmethod
    def prepare(self, ranks: int, *, tolerant: bool = False) -> Run:
        """Makes the run for a number of ranks; `tolerant` says whether MPI survives the death of one.

        Raises:
            ConfigError: a mistake of the user.
        """

    @abstractmethod
    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        """Shows the result."""

    def display(self) -> Display | None:
        """Shows the progress; None: as it fits the terminal."""
        return None

    def lock(self, run: Run, memory: RecoveryState) -> None:
        """Takes the run folder for this process, until the run ends.

        Raises:
            ConfigError: another process writes into it.
        """
        hosting.lock(run, memory)

    def roll_back(self, run: Run) -> None:
        """Brings the run folder back to the boundary from which the run goes on after a death."""
        forget(run)

    def next_stage(self, run: Run) -> Stage | None:
        """What is played next; None if the run is over."""
        return stages.next_stage(run)

    def alone(self, run: Run) -> int:
        """Plays everything in this process and shows the result; returns the exit status."""
        return hosting.run_single_process(run, self.present, self.display(), next_stage=self.next_stage)

    def conclude(self, run: Run, memory: RecoveryState) -> int:
        """Shows the result of a run that was played to its end; returns the exit status."""
        return hosting.conclude(run, memory, self.present)

    def lead(self, team: World, host: RoleScheduler, run: Run, memory: RecoveryState) -> int | Leg:
        """Plays rank 0's roles; the exit status when the result is shown, or the leg that the run goes on with."""
        return hosting.lead(team, host, run, memory, self.present, self.display())

    def lead_evaluation(
        self, team: World, host: RoleScheduler, run: Run, evaluation: Run, memory: RecoveryState
    ) -> int | Leg:
        """Plays rank 0's roles of an evaluation; as `lead`."""
        return hosting.lead_evaluation(team, host, run, evaluation, memory)

    def interrupted(self, run: Run, memory: RecoveryState, error: KeyboardInterrupt) -> Failed:
        """What to say when a signal has ended a run at once; one that nobody has played leaves nothing behind."""
        return hosting.interrupted(run, memory, error)
