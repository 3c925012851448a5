"""Hosting the roles of a run: all in this one process, or this rank's under MPI."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import IO, Any

from arena.comm import Endpoint
from arena.comm.host import Host
from arena.comm.waiting import wait_until
from arena.errors import ConfigError, Deadlock
from arena.launch import mpirun
from arena.launch.prepare import abandon, begin
from arena.launch.terminal import display_for, tell
from arena.messages import Failed, pack, unpack
from arena.plan import Role, RoleKind
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.root import RoleFailed, Root
from arena.roles.stage import failure_of, perform
from arena.roles.worker import seed_libraries
from arena.run import Run
from arena.screen.display import Display
from arena.screen.profile import profile_json

_ABORT_SECONDS = 5.0  # how long a failed process gives the root to end the run before it does so itself
_LAST_PAUSE = 0.05  # seconds between two looks whether all others are done as well
_MISTAKE = 2  # the exit status after a user's mistake
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_log = logging.getLogger("arena")  # and not the root logger: its name would be that of a role

Main = Callable[[Endpoint], Any]


def alone(run: Run, present: Callable[[Run, Scoreboard], None], display: Display | None = None) -> int:
    """Runs everything in this process and shows the result, or says why there is none; returns the exit status.

    Args:
        run: the run.
        present: shows the result.
        display: shows the progress; None: as it fits the terminal.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    _log_to(run, run.roles)
    try:
        present(run, in_one_process(run, display or display_for(run)))
        return 0
    except RoleFailed as error:
        failure = error.failure
    except Deadlock as error:
        failure = Failed("no role can go on", str(error), exit_code=1)
    except KeyboardInterrupt as error:
        failure = _interrupted(run, error)
    tell(failure)
    return failure.exit_code


def in_one_process(run: Run, display: Display) -> Scoreboard:
    """All roles as threads of this process, one at a time.

    Raises:
        RoleFailed: a role could not go on.
        Deadlock: every role waits for another one.
    """
    results: list[Scoreboard] = []
    seed_libraries(run.plan.seed)  # the roles share their streams, but take turns in the same order every time

    def main_of(role: Role) -> Main:
        if role.kind is RoleKind.ROOT:
            return lambda endpoint: results.append(_record(endpoint, run, display))
        return lambda endpoint: perform(endpoint, run, role, private=False)

    Host(_names(run, run.roles)).run({run.address(role): main_of(role) for role in run.roles})
    return results[0]


def _names(run: Run, roles: tuple[Role, ...]) -> Mapping[int, str]:
    return {run.address(role): run.describe(role) for role in roles}


def _record(endpoint: Endpoint, run: Run, display: Display) -> Scoreboard:
    root = Root(endpoint, run, display)
    try:
        root.gather()
    except RoleFailed as error:
        if error.failure.exit_code == _MISTAKE:
            abandon(run)
        raise
    begin(run)
    with Recorder(run.folder, resumed_at=run.start_tick or None) as recorder:
        root.record(recorder)
    if run.profile:
        run.folder.write_profile(profile_json(run.plan, root.profiles))
    return root.scoreboard


def in_the_world(prepare: Callable[[int], Run], present: Callable[[Run, Scoreboard], None]) -> int:
    """This rank's roles of a run whose processes a launcher has started. Returns the exit status.

    Args:
        prepare: makes the run for a number of ranks; called at rank 0 alone.
        present: shows the result; called at rank 0 alone.
    """
    mpirun.die_with_parent()
    mpi = _start_mpi()
    world = mpi.world()
    run = _agree(world, prepare)
    if isinstance(run, Failed):
        if world.rank == 0:
            tell(run)
        return run.exit_code
    if run.plan.processes == 1:
        return alone(run, present)
    console: IO[str] = sys.stderr
    try:
        if world.rank != 0:
            console = _speak_into(run.folder.log_path(world.rank))
        _take_part(mpi, world, run, present, console)
    except BaseException as error:
        tell(failure_of(error, f"rank {world.rank}", run.source), console)
        world.Abort(1)
    return 0


def _take_part(mpi: Any, world: Any, run: Run, present: Callable[[Run, Scoreboard], None], console: IO[str]) -> None:
    roles = run.plan.ranks[world.rank]
    if len(roles) > 1:
        seed_libraries(run.plan.seed)
    communicator = mpi.group_communicator(world, _color(run, roles))
    ranks = [run.plan.rank_of(role) for role in run.roles]
    outside = mpi.MpiOutside(world.Dup(), ranks, shared_memory=run.plan.transport == "auto")
    host = Host(_names(run, roles), outside, size=len(run.roles))
    if world.rank == 0:
        _host_root(world, host, run, present)
    else:
        _host_others(world, host, run, roles, communicator, console)
    # Nobody leaves before all are done: what one has sent last may still need its help to arrive.
    wait_until(world.Ibarrier().Test, longest_pause=_LAST_PAUSE)


def _start_mpi() -> Any:
    try:
        from arena.comm import mpi
    except (ImportError, RuntimeError) as error:  # mpi4py finds no MPI library
        raise ConfigError(f"mpi4py finds no MPI library. {mpirun.NO_MPI}") from error
    return mpi


def _agree(world: Any, prepare: Callable[[int], Run]) -> Run | Failed:
    """Rank 0 reads and prepares; everybody gets the run, or the reason why there is none."""
    prepared: Run | Failed | None = None
    if world.rank == 0:
        try:
            prepared = prepare(world.size)
        except BaseException as error:
            prepared = failure_of(error, "root, rank 0")
    agreed: Run | Failed = unpack(world.bcast(pack(prepared), root=0))
    return agreed


def _color(run: Run, roles: tuple[Role, ...]) -> int | None:
    """Workers of one policy have the same color, if each has a rank of its own; nobody else has one."""
    if len(roles) != 1 or roles[0].kind is not RoleKind.WORKER:
        return None
    name = run.plan.seat(roles[0]).policy
    ranks = (run.plan.rank_of(Role(RoleKind.WORKER, *worker)) for worker in run.plan.policies[name].workers)
    if any(len(run.plan.ranks[rank]) > 1 for rank in ranks):
        return None  # a communicator of some of the workers would be no group's
    return list(run.plan.policies).index(name)


def _host_root(world: Any, host: Host, run: Run, present: Callable[[Run, Scoreboard], None]) -> None:
    _log_to(run, run.plan.ranks[0])
    signal.signal(signal.SIGTERM, _interrupt)
    results: list[Scoreboard] = []

    def main_of(role: Role) -> Main:
        if role.kind is RoleKind.ROOT:
            return lambda endpoint: results.append(_record(endpoint, run, display_for(run)))
        return lambda endpoint: perform(endpoint, run, role, private=False)

    try:
        host.run({run.address(role): main_of(role) for role in run.plan.ranks[0]})
        present(run, results[0])
    except KeyboardInterrupt as error:
        failure = _interrupted(run, error)
        tell(failure)
        # The launcher is ending all processes already; MPI has nothing to add, and may hang.
        os._exit(failure.exit_code)
    except BaseException as error:
        failure = error.failure if isinstance(error, RoleFailed) else failure_of(error, "root, rank 0")
        tell(failure)
        world.Abort(failure.exit_code)


def _log_to(run: Run, roles: tuple[Role, ...]) -> None:
    """Rank 0 has the console for its display, so its log is a file."""
    logging.basicConfig(filename=run.folder.log_path(0), level=logging.INFO, format=_LOG_FORMAT, force=True)
    _say_roles(run, roles)


def _say_roles(run: Run, roles: tuple[Role, ...]) -> None:
    _log.info("hosts %s", ", ".join(map(run.describe, roles)) or "nothing: the plan has no role for this process")


def _interrupted(run: Run, error: KeyboardInterrupt) -> Failed:
    number: int = error.args[0] if error.args else signal.SIGINT
    go_on = ", --resume goes on with it" if run.episodes is None and run.folder.config.exists() else ""
    return Failed("root, rank 0", f"ended by a signal; what was played is in {run.path}{go_on}", 128 + number)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _host_others(
    world: Any, host: Host, run: Run, roles: tuple[Role, ...], communicator: Any, console: IO[str]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the root's to handle; the launcher ends us
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)
    _say_roles(run, roles)

    def main_of(role: Role) -> Main:
        def main(endpoint: Endpoint) -> None:
            failure = perform(endpoint, run, role, communicator=communicator, private=len(roles) == 1)
            if failure is not None:
                time.sleep(_ABORT_SECONDS)  # the root has the failure, shows it and aborts us all; if not, we do
                tell(failure, console)
                world.Abort(failure.exit_code)

        return main

    if roles:
        host.run({run.address(role): main_of(role) for role in roles})


def _speak_into(log: Path) -> IO[str]:
    """Sends what this process prints, its libraries' C code included, to its log; returns the console."""
    sys.stdout.flush()
    sys.stderr.flush()
    console = os.fdopen(os.dup(2), "w")
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.close(file)
    return console
