"""One rank's part in a run whose processes a launcher has started.

agree      rank 0 reads the configuration and prepares the run; all ranks get the run, or the reason why there is none
host       the rank's roles play; rank 0 also records, and shows the progress and the result
           between two stages (evaluations, rounds of a league) rank 0 says what is played next
leave      when all ranks have reported that they are done

When a process dies, the launcher ends the others; `arena train` starts all of them again.

A hundred of these processes may start on a few cores, so this module imports only what every rank needs; `Rank0` brings
what only rank 0 needs.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from arena import registry
from arena.errors import ConfigError, Origin, PeerLost, shown
from arena.launch import mpirun
from arena.launch.bound_process import die_with_parent
from arena.launch.console import Console, log_to_stderr, speak_into, tell
from arena.plan.plan import Role, RoleKind
from arena.roles.perform import failure_of, run_role
from arena.roles.protocol import Failed
from arena.run.leg import Leg
from arena.run.process_state import ProcessState
from arena.run.restart import Restart
from arena.run.run import Run, Stage
from arena.run.stop import Stop, ignore_signals
from arena.transport import Endpoint, Tag
from arena.transport.pickling import pack, unpack
from arena.transport.scheduler import RoleScheduler

if TYPE_CHECKING:
    from arena.transport.mpi import World

_START_SECONDS = 300  # for all processes to start and to join
_ABORT_SECONDS = 5.0  # after which a failed process ends the run, if root or launcher have not done so

Main = Callable[[Endpoint], Any]


class Rank0(Protocol):
    """What rank 0 does beside playing its roles."""

    def prepare(self, ranks: int, restart: Restart | None = None) -> Run:
        """Makes the run for a number of ranks; `restart`: its processes were started again after a death."""

    def alone(self, run: Run) -> int:
        """Plays a run that has no other rank; returns the exit status."""

    def conclude(self, run: Run, memory: ProcessState) -> int:
        """Shows the result of a run that was played to its end; returns the exit status."""

    def lead(self, team: World, host: RoleScheduler, run: Run, memory: ProcessState) -> int | Leg:
        """Plays rank 0's roles, the root among them; the exit status, or the leg that comes next."""

    def lock(self, run: Run, memory: ProcessState) -> None:
        """Locks the run folder for this process, until the run ends."""

    def roll_back(self, run: Run, memory: ProcessState) -> None:
        """Brings the run folder back to the boundary from which the run continues after a death."""

    def between_stages(self, run: Run, memory: ProcessState) -> Run:
        """Calls the user's functions between two stages, and returns the run as it continues."""

    def next_stage(self, run: Run, memory: ProcessState) -> Stage | None:
        """What is played next; None if the run is over."""

    def lead_evaluation(
        self, team: World, host: RoleScheduler, run: Run, evaluation: Run, memory: ProcessState
    ) -> int | Leg:
        """Plays rank 0's roles of an evaluation; see `lead`."""

    def interrupted(self, run: Run, memory: ProcessState, error: KeyboardInterrupt) -> Failed:
        """The message after a signal has ended a run at once; removes the folder of a run that has not begun."""


def run_rank(leader: Callable[[], Rank0]) -> int:
    """Plays this rank's roles of a run whose processes a launcher has started. Returns the exit status.

    Args:
        leader: makes what rank 0 needs; called only at rank 0.
    """
    die_with_parent()
    stop = Stop()
    stop.note()
    mpirun.tell_started(sys.stderr)
    signal.alarm(_START_SECONDS)  # MPI waits forever for a process that dies before it has joined
    try:
        from arena.transport import mpi
    except (ImportError, RuntimeError) as error:
        raise ConfigError(f"mpi4py finds no MPI library. {mpirun.NO_MPI}") from error
    mpirun.tell_joined(sys.stderr)
    return Rank(mpi, leader, stop).take_part()


class Rank:
    """This process's part in a run, from its beginning to its end.

    Args:
        mpi: the module `arena.transport.mpi`.
        leader: makes what rank 0 needs.
        stop: has noted the signals received so far.
    """

    def __init__(self, mpi: Any, leader: Callable[[], Rank0], stop: Stop) -> None:
        self._mpi = mpi
        self._team: World = mpi.World(mpi.world())
        self._leader = leader
        self._run: Run | None = None
        self._console = Console()
        self._memory = ProcessState(stop=stop)

    def take_part(self) -> int:
        """Plays until the run has ended; returns the exit status."""
        try:
            return self._leave(self._play())
        except BaseException as error:
            if self._team.is_peer_failure(error):
                time.sleep(_ABORT_SECONDS)  # the launcher ends all processes; if it does not, this process does
                if mpirun.started_by_us():  # a message would be a reason, after which `arena train` does not restart
                    self._abort()
            self._abort(self._failure(error))

    def _play(self) -> int:
        """Plays the run; returns the exit status."""
        first = self._team.rank == 0
        self._team = self._team.private()
        agreed: Run | Failed | None = None
        if first:
            self._memory.restart = Restart.take()
            try:
                agreed = self._leader().prepare(self._team.size, self._memory.restart)
            except BaseException as error:
                agreed = failure_of(error, "root, rank 0")
        run: Run | Failed = self._broadcast(agreed)
        if isinstance(run, Failed):
            if not first:
                return 0  # one status is enough: Open MPI's launcher may hang when many processes fail at once
            tell(run)
            return run.exit_code
        self._begin(run)
        if run.plan.processes == 1 and self._memory.restart is None:
            return self._leader().alone(run)
        if first:
            self._leader().lock(run, self._memory)
            if run.begun:
                self._leader().roll_back(run, self._memory)
        while (stage := self._next_stage(run)) is not None:
            self._run = run = stage.run
            outcome = self._host(run, stage.evaluation)
            if run.staged:
                outcome = self._broadcast(outcome)
            if isinstance(outcome, int):
                return outcome if first else 0
            self._run = run = run.after(outcome)
        return self._leader().conclude(run, self._memory) if first else 0

    def _next_stage(self, run: Run) -> Stage | None:
        if not run.staged:
            return None if run.concluded else Stage(run)
        stage: Stage | None = None
        if self._team.rank == 0:
            leader = self._leader()
            stage = leader.next_stage(leader.between_stages(run, self._memory), self._memory)
        following: Stage | None = self._broadcast(stage)
        return following

    def _broadcast(self, value: Any) -> Any:
        """Broadcasts a value of rank 0. A collective."""
        # MPI waits for a broadcast in a busy loop, which would take the cores from rank 0 while it prepares the run, or
        # while a program holds the run.
        self._team.wait_for_all()
        return unpack(self._team.broadcast(pack(value)))

    def _begin(self, run: Run) -> None:
        signal.alarm(0)
        self._run = run
        if self._team.rank != 0:
            ignore_signals()
            speak_into(run.folder.log_path(self._team.rank))
            registry.import_plugins(run.plan.config.imports)
        else:
            mpirun.note(self._console.stderr, folder=str(run.path), made=run.made_folder, begun=run.begun)

    def _host(self, run: Run, evaluation: Run | None) -> int | Leg:
        """Plays the rank's roles of the run, or of an evaluation before it; returns the outcome, at rank 0."""
        played, memory = (run, self._memory) if evaluation is None else (evaluation, ProcessState())
        team, roles = self._team, played.plan.ranks[self._team.rank]
        communicator = team.split(_color(played, roles))
        ranks = [played.plan.rank_of(role) for role in played.roles]
        outcome: int | Leg = 0
        with closing(
            self._mpi.MpiTransport(team, ranks, shared_memory=played.plan.config.transport == "auto")
        ) as outside:
            host = RoleScheduler(names_of(played, roles), outside, size=len(played.roles))
            with closing(host.link_memory):
                if team.rank != 0:
                    self._host_roles(host, played, roles, communicator, memory)
                elif evaluation is None:
                    outcome = self._leader().lead(team, host, run, memory)
                else:
                    outcome = self._leader().lead_evaluation(team, host, run, evaluation, self._memory)
                # MPI may deliver a rank's last messages only while it takes part, so all ranks leave together.
                team.wait_for_all()
                if communicator is not None:
                    communicator.Free()
        return outcome

    def _host_roles(
        self, host: RoleScheduler, run: Run, roles: tuple[Role, ...], communicator: Any, memory: ProcessState
    ) -> None:
        log_to_stderr(run, roles)

        def main_of(role: Role) -> Main:
            def main(endpoint: Endpoint) -> None:
                failure = run_role(
                    endpoint, run, role, memory=memory, communicator=communicator, private=len(roles) == 1
                )
                if failure is not None:
                    # The root shows the failure and ends all processes; if it does not, this process does.
                    end = time.monotonic() + _ABORT_SECONDS
                    while (left := end - time.monotonic()) > 0:
                        endpoint.listen(0, Tag.FROM_ROOT, left)
                    self._abort(failure)

            return main

        if roles:
            host.run({run.address(role): main_of(role) for role in roles})

    def _failure(self, error: BaseException) -> Failed:
        """The message for an error of this process, for instance between two stages of a run."""
        run, rank = self._run, self._team.rank
        if rank == 0 and run is not None and isinstance(error, KeyboardInterrupt):
            return self._leader().interrupted(run, self._memory, error)
        if isinstance(error, PeerLost) and run is not None:
            again = again_words(run, self._memory, "the newest boundary")
            return Failed("a process of it has died", again, exit_code=1)
        return failure_of(error.__cause__ or error, f"rank {rank}", run.origin if run else Origin())

    def _abort(self, failure: Failed | None = None) -> NoReturn:
        """Ends all processes."""
        if failure is not None:
            tell(failure, self._console.stderr)
        self._memory.disconnect("over")
        self._memory.unlock()
        self._team.abort(1 if failure is None else failure.exit_code)

    def _leave(self, status: int) -> int:
        self._memory.disconnect("over")
        self._memory.unlock()
        if status == 0 and self._team.rank == 0:
            mpirun.confirm(self._console.stderr)
        gc.freeze()  # skips the garbage collection at exit, which would traverse all objects
        return status


def again_words(run: Run, memory: ProcessState, place: str = "there") -> str:
    """How a run that has ended early can be continued."""
    if not run.has_resume:
        return "it cannot be resumed"
    if not memory.resumable:
        return "it cannot be resumed: what some algorithm has learned cannot be saved and loaded"
    return f"--resume goes on from {place}"


def played_words(run: Run) -> str:
    """Where the games of a run without learning are, and how a run of several rounds can be continued."""
    more = (
        "; the same command with --resume goes on after the last batch that is whole"
        if run.plan.config.rounds > 1
        else ""
    )
    return f"what was played is in {shown(run.path)}{more}"


def names_of(run: Run, roles: tuple[Role, ...]) -> Mapping[int, str]:
    """The descriptions of roles, by their addresses."""
    return {run.address(role): run.describe(role) for role in roles}


def _color(run: Run, roles: tuple[Role, ...]) -> int | None:
    """The color of a policy's workers, if each of them has a rank of its own; None for all other ranks."""
    if len(roles) != 1 or roles[0].kind is not RoleKind.WORKER:
        return None
    name = run.plan.seat(roles[0]).policy
    ranks = (run.plan.rank_of(Role(RoleKind.WORKER, *worker)) for worker in run.plan.policies[name].workers)
    if any(len(run.plan.ranks[rank]) > 1 for rank in ranks):
        return None  # a communicator of only some of the workers is of no use to the group
    return list(run.plan.policies).index(name)
