"""The loop of a run: its stages, played one after the other by the processes of a launcher, or by this one alone.

agree   rank 0 prepares the run; all ranks get it, or the reason why there is none
play    rank 0 says what is played next; the roles of each rank play it; rank 0 says how the run continues
leave   when all ranks have come to the end

When a process dies, the launcher ends the others and starts all of them again.

A hundred of these processes may start on a few cores, so this module imports only what every rank needs; `lead` has
what rank 0 needs.
"""

from __future__ import annotations

import gc
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from arena import registry
from arena.errors import MISTAKE, ConfigError, Origin, WriteError, listed
from arena.plan.plan import Role, RoleKind, place
from arena.records.atomic import private, writing
from arena.roles.perform import failure_of, run_role
from arena.roles.protocol import Failed, RoleFailed
from arena.roles.run import Leg, Run
from arena.roles.state import Display, RunState
from arena.roles.stop import ignore_signals
from arena.run import mpirun
from arena.run.bound_process import die_with_parent
from arena.run.console import CONSOLE_OUTPUT, Output, direct_output, log_roles, write_failure
from arena.run.controller import Controller
from arena.run.mpirun import Restart
from arena.transport import Endpoint, Tag
from arena.transport.pickling import pack, unpack
from arena.transport.scheduler import RoleScheduler

if TYPE_CHECKING:
    from arena.roles.root.legs import NextStep
    from arena.run.lead import Leader, Present, RunCommand
    from arena.transport.mpi import World

_APPEAR_SECONDS = 10.0  # for a new file to appear on other hosts: network file systems remember what was not there
_LOCAL = {"btrfs", "ext2", "ext3", "ext4", "overlay", "ramfs", "tmpfs", "xfs"}  # file systems that remember nothing
_LOOK_SECONDS = 0.1
_ABORT_SECONDS = 5.0  # after which a failed process ends the run, if root or launcher have not done so


class Hosting(NamedTuple):
    """The roles of this process in a stage, connected to those of the other processes."""

    scheduler: RoleScheduler
    roles: tuple[Role, ...]
    communicator: Any = None  # of the workers of a policy, if each of them has a rank of its own; for `group.comm`


class Processes:
    """The processes of a run: those of a launcher, over the module `arena.transport.mpi`; None: this one alone."""

    def __init__(self, mpi: Any = None, world: World | None = None) -> None:
        self._mpi, self._world = mpi, world
        self.rank, self.size = (0, 1) if world is None else (world.rank, world.size)

    def share(self, value: Any) -> Any:
        """The `value` of rank 0. A collective."""
        if self._world is None:
            return value
        # MPI waits for a broadcast in a busy loop, which would take the cores from rank 0 while it prepares the run, or
        # while a program controls the run.
        self._world.wait_for_all()
        return unpack(self._world.broadcast(pack(value)))

    def collect(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order. A collective."""
        return [value] if self._world is None else self._world.collect(value)

    @contextmanager
    def hosting(self, run: Run) -> Iterator[Hosting]:
        """Inside this context, the roles of this process in a stage. A collective at its beginning and end."""
        if self._world is None or self.size == 1:
            yield Hosting(RoleScheduler(run.names(run.roles)), run.roles)
            return
        plan, roles = run.plan, run.plan.ranks[self.rank]
        color: int | None = None  # of a policy's workers, if each of them has a rank of its own
        if len(roles) == 1 and roles[0].kind is RoleKind.WORKER:
            name = plan.seat(roles[0]).policy
            ranks = [plan.rank_of(Role(RoleKind.WORKER, *worker)) for worker in plan.policies[name].workers]
            color = list(plan.policies).index(name) if all(len(plan.ranks[rank]) == 1 for rank in ranks) else None
        communicator = self._world.split(color)
        hosts, shared_memory = [plan.rank_of(role) for role in run.roles], plan.config.transport == "auto"
        with closing(self._mpi.MpiTransport(self._world, hosts, shared_memory=shared_memory)) as remote:
            scheduler = RoleScheduler(run.names(roles), remote, size=len(run.roles))
            with closing(scheduler.link_memory):
                yield Hosting(scheduler, roles, communicator)
                # MPI may deliver a rank's last messages only while it takes part, so all ranks leave together.
                self._world.wait_for_all()
                if communicator is not None:
                    communicator.Free()


def _seen_by_all(run: Run, processes: Processes, hosts: Sequence[str]) -> Run | Failed:
    """The run, or why it cannot begin: some hosts do not see its folder, in which nothing is left then. A collective.

    On a host that does not see it, checkpoints and logs would go into another folder of the same name. Rank 0 makes a
    file, whose name no process knows before, and every rank looks for it. `hosts`: of the ranks.
    """
    token, problem = run.folder.logs / f".{secrets.token_hex(8)}", ""
    if processes.rank == 0:
        try:
            with writing(token):
                os.close(private(str(token), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except WriteError as error:
            problem = str(error)
    token, problem = processes.share((token, problem))
    end = time.monotonic() + (0.0 if _file_system(token) in _LOCAL else _APPEAR_SECONDS)
    # `os.path`: False also after an error
    while not (is_there := bool(problem) or os.path.exists(token)) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    without = sorted({host for host, found in zip(hosts, processes.collect(is_there), strict=True) if not found})
    if without:
        problem = (
            f"host{'s' * (len(without) > 1)} {listed(without)} cannot see the run folder {run.path} of host "
            f"{hosts[0]}: every host needs it under the same path, on a file system that all share; name one with "
            "--run-dir, or start the arena there"
        )
    if processes.rank == 0:
        if os.path.exists(token):  # a file system that cannot be written refuses also this
            token.unlink()
        if problem:
            from arena.run.prepare import abandon

            abandon(run)
    return Failed(f"root, {place(0, hosts)}", problem, exit_code=MISTAKE) if problem else run


def _file_system(path: Path | str) -> str:
    """The type of the file system on which a path would be, as `ext4`; empty if not known."""
    with suppress(OSError):  # without `/proc`
        device = os.stat(next(folder for folder in Path(path).parents if folder.exists())).st_dev
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if line.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                return line.partition(" - ")[2].split()[0]
    return ""


class RunLoop:
    """Plays a run stage by stage; `run` is the run as it continues, `state` that of this process.

    `leader` is None at all ranks but 0. `fail` is called with an error of a role while the other processes play, and
    ends all of them; None: the error is raised.
    """

    def __init__(
        self,
        team: Processes,
        run: Run,
        state: RunState,
        leader: Leader | None,
        fail: Callable[[BaseException], NoReturn] | None = None,
    ) -> None:
        self._team, self.run, self.state, self._leader, self._fail = team, run, state, leader, fail

    def play(self) -> int:
        """Plays all stages; returns the exit status, 0 at all ranks but the first."""
        while (status := self.play_stage()) is None:
            pass
        return status

    def play_stage(self) -> int | None:
        """Plays what comes next; returns the exit status if the run is over then."""
        leader = self._leader
        played: Run | None = self._team.share(None if leader is None else leader.next_stage(self.run))
        if played is None:
            return 0 if leader is None else leader.conclude(self.run)
        self.run = played.evaluated or played
        outcome: Leg | int = 0
        with self._team.hosting(played) as hosting:
            log_roles(played, hosting.roles, self._team.rank)
            try:
                if leader is not None:
                    outcome = leader.play(hosting.scheduler, hosting.roles, played)
                else:
                    state = self.state if played.evaluated is None else RunState()
                    main = partial(_play_role, hosting, played, state)
                    hosting.scheduler.run({played.address(role): partial(main, role) for role in hosting.roles})
            except BaseException as error:
                if self._fail is not None:  # before what the processes share is closed
                    self._fail(error)
                raise
        outcome = self._team.share(outcome)
        if isinstance(outcome, int):
            return 0 if leader is None else outcome
        self.run = self.run.after(outcome)
        return None


def _play_role(hosting: Hosting, played: Run, state: RunState, role: Role, endpoint: Endpoint) -> None:
    """Plays a role of a rank that does not lead the run."""
    private, communicator = len(hosting.roles) == 1, hosting.communicator
    failure = run_role(endpoint, played, role, memory=state, communicator=communicator, private=private)
    if failure is not None:
        # The root shows the failure and ends all processes; if it does not, this process does.
        end = time.monotonic() + _ABORT_SECONDS
        while (left := end - time.monotonic()) > 0:
            endpoint.listen(0, Tag.FROM_ROOT, left)
        raise RoleFailed(failure)


def run_single_process(
    run: Run,
    present: Present = lambda _run, _scoreboard: None,
    display: Display | None = None,
    *,
    next_stage: Callable[[Run, RunState], Run | None] | None = None,
    output: Output = CONSOLE_OUTPUT,
    watched: bool = True,
    at_once: Collection[int] = (),
) -> int:
    """Plays a run in this process, and shows the result or the failure; returns the exit status. See `Leader`."""
    from arena.run.lead import Leader

    state = RunState()
    leader = Leader(
        state, present, display=display, next_stage=next_stage, output=output, watched=watched, at_once=at_once
    )
    loop = RunLoop(Processes(), run, state, leader)
    leader.listen(run)
    try:
        leader.begin(run)
        return loop.play()
    except BaseException as error:
        failure = leader.failure(loop.run, error)
    finally:
        state.release()
    output.fail(failure)
    return failure.exit_code


def in_one_process(run: Run, display: Display, state: RunState | None = None) -> NextStep:
    """Plays the legs of a run in this process, without what comes before and after them.

    The `stop` of `state`, the state of this process from before, says whether to end before the last tick. Raises
    `RoleFailed`, and `Deadlock` if every role waits for another one.
    """
    from arena.run.lead import play_legs

    kept = state or RunState()
    try:
        with Processes().hosting(run) as hosting:
            return play_legs(hosting.scheduler, hosting.roles, run, kept, display)
    finally:
        if state is None:
            kept.disconnect("over")


def run_rank(command: Callable[[], RunCommand]) -> int:
    """Takes this process's part in a run whose processes a launcher has started; returns the exit status.

    `command` makes what rank 0 needs, and is called only there.
    """
    die_with_parent()
    state = RunState()
    state.stop.note()
    mpirun.report_start(sys.stderr)
    signal.alarm(mpirun.START_SECONDS)  # MPI waits forever for a process that dies before it has joined
    try:
        from arena.transport import mpi
    except (ImportError, RuntimeError) as error:
        raise ConfigError(f"mpi4py finds no MPI library. {mpirun.NO_MPI}") from error
    mpirun.report(sys.stderr, joined=True)
    return Rank(mpi, command, state).take_part()


class Rank:
    """This process's part in a run whose processes a launcher has started.

    `mpi` is the module `arena.transport.mpi`, `command` makes what rank 0 needs; `state.stop` has noted the signals
    received so far.
    """

    def __init__(self, mpi: Any, command: Callable[[], RunCommand], state: RunState) -> None:
        self._mpi, self._command, self._state = mpi, command, state
        self._world: World = mpi.World(mpi.world())
        self._stderr = os.fdopen(os.dup(2), "w")  # the console of the user, though output may go to a log
        self._hosts: Sequence[str] = ()  # by rank, if there are several
        self._loop: RunLoop | None = None
        self._leader: Leader | None = None

    def take_part(self) -> int:
        """Plays until the run has ended; returns the exit status."""
        try:
            status = self._play()
        except BaseException as error:
            self._fail(error)
        self._state.release()
        if status == 0 and self._world.rank == 0:
            mpirun.report(self._stderr, ended=True)
        mpirun.leave()
        self._world.wait_for_all()  # no process ends before all are marked, else the launcher would take it for a death
        gc.freeze()  # skips the garbage collection at exit, which would traverse all objects
        return status

    def _play(self) -> int:
        first, state = self._world.rank == 0, self._state
        self._world = self._world.private()
        team = Processes(self._mpi, self._world)
        agreed: Run | Failed | None = None
        hosts = team.collect(os.uname().nodename)
        self._hosts = hosts if len(set(hosts)) > 1 else []
        if first:
            from arena.plan.build import on_hosts

            restart = Restart.take()
            try:
                command = self._command()
                agreed = command.prepare(team.size, restart)
                agreed = replace(agreed, plan=on_hosts(agreed.plan, hosts))
                made, begun = agreed.made_folder, agreed.begun
                mpirun.report(self._stderr, folder=str(agreed.path), made=made, begun=begun)
            except BaseException as error:
                agreed = failure_of(error, f"root, {place(0, self._hosts)}")
        run: Run | Failed = team.share(agreed)
        if not isinstance(run, Failed):
            run = _seen_by_all(run, team, hosts)
        if isinstance(run, Failed):
            if not first:
                return 0  # one status is enough: Open MPI's launcher may hang when many processes fail at once
            write_failure(run)
            return run.exit_code
        signal.alarm(0)
        if first:
            from arena.run.lead import Leader

            # `arena train` itself sends SIGUSR2; SIGTERM comes from the launcher when `arena train` has died.
            self._leader = Leader(
                state,
                command.present,
                display=command.display(),
                next_stage=command.next_stage,
                restart=restart,
                at_once={signal.SIGTERM} if mpirun.started_by_us() else (),
                answers=not mpirun.started_by_us(),
                end=self._world.abort,
            )
        self._loop = RunLoop(team, run, state, self._leader, self._fail)
        if self._leader is not None:
            state.controller = Controller() if run.controlled else None
            self._leader.listen(run)
            self._leader.begin(run)
        else:
            ignore_signals()
            direct_output(run.folder.log_path(team.rank))
            registry.import_plugins(run.plan.config.imports)
        return self._loop.play()

    def _fail(self, error: BaseException) -> NoReturn:
        """Ends all processes after an error of this one."""
        run = None if self._loop is None else self._loop.run
        failure: Failed | None
        if self._world.is_peer_failure(error):
            time.sleep(_ABORT_SECONDS)  # the launcher ends all processes; if it does not, this process does
            hint = "" if run is None else run.resume_hint(resumable=self._state.resumable)
            # A message would be a reason, after which `arena train` does not start the run again.
            failure = None if mpirun.started_by_us() else Failed("a process of it has died", hint, exit_code=1)
            self._state.lock = None  # the kernel releases it; its text is left, which shows that the run was killed
        elif self._leader is not None and run is not None:
            failure = self._leader.failure(run, error)
            if mpirun.started_by_us() and failure.exit_code == 128 + signal.SIGTERM:
                failure = None  # `arena train` writes why it ends all processes
        else:
            who, origin = place(self._world.rank, self._hosts), run.origin if run else Origin()
            failure = failure_of(error, who, origin, several_hosts=bool(self._hosts))
        if failure is not None:
            write_failure(failure, self._stderr)
        self._state.release()
        self._world.abort(1 if failure is None else failure.exit_code)
