"""One rank's part in a run whose processes a launcher has started.

agreed     rank 0 has read and prepared, everybody has the run, or the reason why there is none
hosting    the rank's roles play; rank 0 leads: it records, shows, and tells how it went
over       everybody has said so; nobody leaves before

A hundred of these may start on a few cores, so this module imports what every rank needs and nothing else: what rank 0
needs beyond it comes with its `Leader`.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, Protocol

from arena.comm import Endpoint
from arena.comm.host import Host
from arena.comm.waiting import wait_until
from arena.errors import ConfigError
from arena.launch import mpirun
from arena.launch.console import log_to_stderr, speak_into, tell
from arena.messages import Failed, pack, unpack
from arena.plan import Role, RoleKind
from arena.roles.libraries import seed_libraries
from arena.roles.stage import failure_of, perform
from arena.run import Run

_ABORT_SECONDS = 5.0  # how long a failed process gives the root to end the run before it does so itself
_LAST_PAUSE = 0.05  # seconds between two looks whether all others are done as well

Main = Callable[[Endpoint], Any]


class Leader(Protocol):
    """What rank 0 does beyond its roles."""

    def prepare(self, ranks: int) -> Run:
        """Makes the run for a number of ranks."""

    def alone(self, run: Run) -> int:
        """Plays a run that has no other rank; returns the exit status."""

    def lead(self, world: Any, host: Host, run: Run) -> None:
        """Plays rank 0's roles, the root among them, and shows the result."""


def in_the_world(leader: Callable[[], Leader]) -> int:
    """This rank's roles of a run whose processes a launcher has started. Returns the exit status.

    Args:
        leader: makes what rank 0 needs; called at rank 0 alone.
    """
    mpirun.die_with_parent()
    mpi = _start_mpi()
    world = mpi.world()
    run = _agree(world, leader)
    if isinstance(run, Failed):
        if world.rank == 0:
            tell(run)
        return run.exit_code
    if run.plan.processes == 1:
        return leader().alone(run)
    console: IO[str] = sys.stderr
    try:
        if world.rank != 0:
            console = speak_into(run.folder.log_path(world.rank))
        _take_part(mpi, world, run, leader, console)
    except BaseException as error:
        tell(failure_of(error, f"rank {world.rank}", run.source), console)
        world.Abort(1)
    gc.freeze()  # Python's last look for garbage would go through all that is left, which goes with the process anyway
    return 0


def _take_part(mpi: Any, world: Any, run: Run, leader: Callable[[], Leader], console: IO[str]) -> None:
    roles = run.plan.ranks[world.rank]
    if len(roles) > 1:
        seed_libraries(run.plan.seed)
    communicator = mpi.group_communicator(world, _color(run, roles))
    ranks = [run.plan.rank_of(role) for role in run.roles]
    outside = mpi.MpiOutside(world.Dup(), ranks, shared_memory=run.plan.transport == "auto")
    host = Host(names_of(run, roles), outside, size=len(run.roles))
    if world.rank == 0:
        leader().lead(world, host, run)
    else:
        _host_roles(world, host, run, roles, communicator, console)
    # Nobody leaves before all are done: what one has sent last may still need its help to arrive.
    wait_until(world.Ibarrier().Test, longest_pause=_LAST_PAUSE)


def names_of(run: Run, roles: tuple[Role, ...]) -> Mapping[int, str]:
    """Roles in words, by their addresses."""
    return {run.address(role): run.describe(role) for role in roles}


def _start_mpi() -> Any:
    try:
        from arena.comm import mpi
    except (ImportError, RuntimeError) as error:  # mpi4py finds no MPI library
        raise ConfigError(f"mpi4py finds no MPI library. {mpirun.NO_MPI}") from error
    return mpi


def _agree(world: Any, leader: Callable[[], Leader]) -> Run | Failed:
    """Rank 0 reads and prepares; everybody gets the run, or the reason why there is none."""
    prepared: Run | Failed | None = None
    if world.rank == 0:
        try:
            prepared = leader().prepare(world.size)
        except BaseException as error:
            prepared = failure_of(error, "root, rank 0")
    # A broadcast is waited for without a pause; those who wait would take the cores from the one who prepares.
    wait_until(world.Ibarrier().Test)
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


def _host_roles(world: Any, host: Host, run: Run, roles: tuple[Role, ...], communicator: Any, console: IO[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the root's to handle; the launcher ends us
    log_to_stderr(run, roles)

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
