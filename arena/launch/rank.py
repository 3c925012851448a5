"""One rank's part in a run whose processes a launcher has started.

agree      rank 0 reads the configuration and prepares the run; all ranks get the run, or the reason why there is none
host       the rank's roles play; rank 0 also records, and shows the progress and the result
           between two stages (evaluations, rounds of a league) rank 0 says what is played next
repair     a process has died: the survivors agree how to continue, and host again
leave      when all ranks have reported that they are done

A hundred of these processes may start on a few cores, so this module imports only what every rank needs; `Rank0` brings
what only rank 0 needs.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from arena import registry
from arena.errors import ConfigError, Origin, PeerLost, ProcessExited, shown
from arena.launch import mpirun
from arena.launch.bound_process import die_with_parent
from arena.launch.console import Console, log_to_stderr, speak_into, tell
from arena.plan.plan import Role, RoleKind
from arena.roles.perform import failure_of, run_role
from arena.roles.process import import_algorithms
from arena.roles.protocol import Failed
from arena.run.leg import Leg
from arena.run.process_state import ProcessState
from arena.run.run import Run, Stage
from arena.run.stop import Stop, ignore_signals
from arena.transport import Endpoint, Tag
from arena.transport.pickling import pack, unpack
from arena.transport.scheduler import RoleScheduler

if TYPE_CHECKING:
    from arena.transport.mpi import World

_START_SECONDS = 300  # for all processes to start and to join
_PATIENCE = 60.0  # seconds, at least, for the survivors to learn of a death
_ABORT_SECONDS = 5.0  # after which a failed process ends the run, if the root has not done so

Main = Callable[[Endpoint], Any]


class Rank0(Protocol):
    """What rank 0 does beside playing its roles."""

    def prepare(self, ranks: int, *, tolerant: bool) -> Run:
        """Makes the run for a number of ranks; `tolerant` says whether MPI survives the death of one."""

    def alone(self, run: Run) -> int:
        """Plays a run that has no other rank; returns the exit status."""

    def conclude(self, run: Run, memory: ProcessState) -> int:
        """Shows the result of a run that was played to its end by processes that have died; returns the exit status."""

    def lead(self, team: World, host: RoleScheduler, run: Run, memory: ProcessState) -> int | Leg:
        """Plays rank 0's roles, the root among them; the exit status, or the leg that comes next."""

    def lock(self, run: Run, memory: ProcessState) -> None:
        """Locks the run folder for this process, until the run ends."""

    def roll_back(self, run: Run) -> None:
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
        self._team: World = mpi.World(mpi.world(), tolerant=mpi.tolerates_faults())
        self._leader = leader
        self._run: Run | None = None
        self._console = Console()
        self._memory = ProcessState(stop=stop)
        self._lost_at = 0.0  # when the last death was noticed

    def take_part(self) -> int:
        """Plays until the run has ended, with repairs after deaths; returns the exit status."""
        while True:
            try:
                status = self._until_a_death()
                if status is not None:
                    return self._leave(status)
                self._repair()
            except ProcessExited as error:
                self._abort(self._no_death(error) if self._team.is_first else None)
            except BaseException as error:
                self._abort(self._failure(error))

    def _until_a_death(self) -> int | None:
        """The exit status if all ranks have finished; None if a process has died and all survivors know it."""
        try:
            status = self._play()
        except BaseException as error:
            if not self._team.is_peer_failure(error):
                raise
            self._lost_at = time.monotonic()
            if not self._team.tolerant:
                time.sleep(_ABORT_SECONDS)  # the launcher ends all processes; if it does not, this process does
                self._abort()
            self._team.revoke()
            self._team.agree(False)  # waits until all survivors know
            return None
        if not self._team.tolerant or self._team.agree(True):
            return status
        self._lost_at = time.monotonic()
        return None

    def _play(self) -> int:
        """Plays the run, or after a repair the rest of it; returns the exit status."""
        if self._run is None:
            self._team = self._team.private()
            agreed = _agree(self._team, self._leader)
            if isinstance(agreed, Failed):
                if self._team.rank != 0:
                    return 0  # one status is enough: Open MPI's launcher may hang when many processes fail at once
                tell(agreed)
                return agreed.exit_code
            self._begin(agreed)
        run = self._run
        assert run is not None
        if run.plan.processes == 1 and not run.repairs:
            return self._leader().alone(run)
        return self._stages(run)

    def _stages(self, run: Run) -> int:
        """Plays the run, stage after stage; returns the exit status."""
        first = self._team.rank == 0
        if first:
            self._leader().lock(run, self._memory)
            if run.begun and run.repairs:
                self._leader().roll_back(run)
        while (stage := self._next_stage(run)) is not None:
            self._run = run = stage.run
            outcome = self._host(run, stage.evaluation)
            if run.staged:
                outcome = _broadcast(self._team, outcome)
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
        if run.held:
            self._team.wait_for_all()  # asleep: a broadcast would spin while the program holds the run
        stage = _broadcast(self._team, stage)
        return stage

    def _begin(self, run: Run) -> None:
        signal.alarm(0)
        self._run = run
        self._team.agree_timeout = max(_PATIENCE, run.plan.config.watchdog_s, run.plan.config.env_timeout_s or 0.0)
        self._memory.tolerant = self._team.tolerant and run.plan.config.fault_tolerance != "off"
        if self._team.rank != 0:
            ignore_signals()
            speak_into(run.folder.log_path(self._team.rank))
            registry.import_plugins(run.plan.config.imports)
        if self._memory.tolerant and not run.plan.ranks[self._team.rank]:
            import_algorithms(run)  # so that a spare can take over at once

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
            try:
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
                    team.free(communicator)
            except BaseException:
                team.wake_all()  # processes that sleep at a doorbell notice nothing else
                raise
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

    def _repair(self) -> None:
        """Continues the run with the surviving processes, or ends all of them if it cannot be continued.

        A run that has not been prepared yet is prepared again.
        """
        run, memory = self._run, self._memory
        if run is None:
            self._team = self._team.survivors()
            return
        if memory.begun and not (memory.tolerant and memory.repairable):
            self._team = self._team.survivors()
            if self._team.rank == 0:
                self._abort(Failed("root", _why_not(run, memory), exit_code=1))
            self._team.agree(False)  # does not return: the first rank ends all processes
            self._abort()
        from arena.launch.repair import DEATHS_AT_MOST, often_dead, repaired  # imported only when needed

        was_leading = self._team.rank == 0
        self._team, self._run = repaired(self._team, run, memory, self._lost_at)
        if self._team.rank == 0 and not was_leading:
            self._console.take()
        role = often_dead(self._run)
        if role is not None and self._team.rank == 0:
            words = (
                f"its process has died {DEATHS_AT_MOST} times since the last boundary; this is no accident, so the run "
                f"ends; {again_words(self._run, memory)}"
            )
            self._abort(Failed(self._run.describe(role), words, exit_code=1))

    def _failure(self, error: BaseException) -> Failed:
        """The message for an error of this process, for instance between two stages of a run."""
        run, rank = self._run, self._team.rank
        if rank == 0 and run is not None and isinstance(error, KeyboardInterrupt):
            return self._leader().interrupted(run, self._memory, error)
        return failure_of(error, f"rank {rank}", run.origin if run else Origin())

    def _no_death(self, error: ProcessExited) -> Failed:
        """The message for processes that have exited by themselves."""
        plan = self._run.plan if self._run else None
        roles = [role for rank in error.ranks for role in plan.ranks[rank]] if plan is not None else []
        who = ", ".join(self._run.describe(role) for role in roles) if self._run else ""
        return Failed(who or "a process", str(error), exit_code=1)

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
        if self._run is not None and self._run.repairs:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)  # finalizing MPI after a death may hang
        gc.freeze()  # skips the garbage collection at exit, which would traverse all objects
        return status


def _why_not(run: Run, memory: ProcessState) -> str:
    if run.episodes is not None:
        return f"a process has died; {played_words(run)}"
    if not memory.tolerant:
        again = again_words(run, memory, "the newest boundary")
        return f"a process has died, and `fault_tolerance` is off; {again}"
    return (
        "a process has died, and the run cannot go on without it: what some algorithm has learned cannot be saved and "
        f"loaded (it has no load_state_dict()); what was played is in {shown(run.path)}"
    )


def again_words(run: Run, memory: ProcessState, place: str = "there") -> str:
    """How a run that has ended early can be continued."""
    if not run.has_resume:
        return "it cannot be resumed"
    if not memory.repairable:
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


def _agree(team: World, leader: Callable[[], Rank0]) -> Run | Failed:
    """Rank 0 reads and prepares the run; all ranks get it, or the reason why there is none."""
    prepared: Run | Failed | None = None
    if team.rank == 0:
        try:
            prepared = leader().prepare(team.size, tolerant=team.tolerant)
        except BaseException as error:
            prepared = failure_of(error, "root, rank 0")
    agreed: Run | Failed = _broadcast(team, prepared)
    return agreed


def _broadcast(team: World, value: Any) -> Any:
    """Broadcasts a value of rank 0. A collective."""
    # MPI waits for a broadcast in a busy loop, which would take the cores from rank 0 while it prepares the run.
    team.wait_for_all()
    told = unpack(team.broadcast(pack(value)))
    if team.tolerant and not team.agree(True):  # else only some ranks might have received it
        raise PeerLost("a process has died while all were told how to go on")
    return told


def _color(run: Run, roles: tuple[Role, ...]) -> int | None:
    """The color of a policy's workers, if each of them has a rank of its own; None for all other ranks."""
    if len(roles) != 1 or roles[0].kind is not RoleKind.WORKER:
        return None
    name = run.plan.seat(roles[0]).policy
    ranks = (run.plan.rank_of(Role(RoleKind.WORKER, *worker)) for worker in run.plan.policies[name].workers)
    if any(len(run.plan.ranks[rank]) > 1 for rank in ranks):
        return None  # a communicator of only some of the workers is of no use to the group
    return list(run.plan.policies).index(name)
