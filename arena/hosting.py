"""Hosting the roles of a run: all in this one process, or this rank's under MPI."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from arena import mpirun
from arena.comm import Endpoint, Tag
from arena.comm.local import LocalWorld
from arena.display import Display, make_display
from arena.errors import ConfigError, Deadlock
from arena.messages import Failed, Goodbye, expect, pack, unpack
from arena.plan import Role, RoleKind
from arena.recorder import Recorder
from arena.root import RoleFailed, Root
from arena.run import Run
from arena.scoreboard import Scoreboard
from arena.stage import failure_of, perform

_ABORT_SECONDS = 5.0  # how long a failed process gives the root to end the run before it does so itself
_INTERRUPTED = 128 + signal.SIGINT
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def alone(run: Run, present: Callable[[Run, Scoreboard], None]) -> int:
    """Runs everything in this process and shows the result, or says why there is none; returns the exit status."""
    try:
        present(run, in_one_process(run, display_for(run)))
        return 0
    except RoleFailed as error:
        failure = error.failure
    except Deadlock as error:
        failure = Failed("no role can go on", str(error), exit_code=1)
    except KeyboardInterrupt:
        failure = _interrupted(run)
    tell(failure)
    return failure.exit_code


def in_one_process(run: Run, display: Display) -> Scoreboard:
    """All roles as threads of this process, one at a time.

    Raises:
        RoleFailed: a role could not go on.
        Deadlock: every role waits for another one.
    """
    results: list[Scoreboard] = []

    def main_of(role: Role) -> Callable[[Endpoint], Any]:
        if role.kind is RoleKind.ROOT:
            return lambda endpoint: results.append(_record(endpoint, run, display))
        return lambda endpoint: perform(endpoint, run, role, private=False)

    world = LocalWorld([run.describe(role) for role in run.roles])
    world.run([main_of(role) for role in run.roles])
    return results[0]


def _record(endpoint: Endpoint, run: Run, display: Display) -> Scoreboard:
    with Recorder(run.folder, resumed_at=run.start_tick or None) as recorder:
        root = Root(endpoint, run, recorder, display)
        root.watch()
        return root.scoreboard


def in_the_world(prepare: Callable[[int], Run], present: Callable[[Run, Scoreboard], None]) -> int:
    """This rank's role of a run whose processes a launcher has started. Returns the exit status.

    Args:
        prepare: makes the run for a number of ranks; called at rank 0 alone.
        present: shows the result; called at rank 0 alone.
    """
    mpirun.die_with_parent()
    world = _start_mpi()
    run = _agree(world, prepare)
    if isinstance(run, Failed):
        if world.rank == 0:
            tell(run)
        return run.exit_code
    if run.plan.processes == 1:
        return alone(run, present)
    from arena.comm.mpi import MpiEndpoint

    endpoint = MpiEndpoint(world.Dup())
    role = next(iter(run.plan.ranks[world.rank]), None)
    communicator = endpoint.group_communicator(_color(run, role))
    if role is not None and role.kind is RoleKind.ROOT:
        return _host_root(world, endpoint, run, present)
    return _host(world, endpoint, run, role, communicator)


def _start_mpi() -> Any:
    try:
        from arena.comm import mpi
    except (ImportError, RuntimeError) as error:  # mpi4py finds no MPI library
        raise ConfigError(f"mpi4py finds no MPI library. {mpirun.NO_MPI}") from error
    return mpi.world()


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


def _color(run: Run, role: Role | None) -> int | None:
    """Workers of one policy have the same color; nobody else has one."""
    if role is None or role.kind is not RoleKind.WORKER:
        return None
    return list(run.plan.policies).index(run.plan.seat(role).policy)


def _host_root(world: Any, endpoint: Endpoint, run: Run, present: Callable[[Run, Scoreboard], None]) -> int:
    logging.basicConfig(filename=run.folder.log_path(0), level=logging.INFO, format=_LOG_FORMAT)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        present(run, _record(endpoint, run, display_for(run)))
    except KeyboardInterrupt:
        tell(_interrupted(run))
        os._exit(_INTERRUPTED)  # the launcher is ending all processes already; MPI has nothing to add, and may hang
    except BaseException as error:
        failure = error.failure if isinstance(error, RoleFailed) else failure_of(error, "root, rank 0")
        tell(failure)
        world.Abort(failure.exit_code)
    return 0


def _interrupted(run: Run) -> Failed:
    return Failed("root, rank 0", f"interrupted; what was played is in {run.path}", _INTERRUPTED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _host(world: Any, endpoint: Endpoint, run: Run, role: Role | None, communicator: Any) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the root's to handle; the launcher ends us
    console = _speak_into(run.folder.log_path(world.rank))
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_LOG_FORMAT)
    if role is None:
        logging.info("idle: the plan has no role for this process")
        expect(Goodbye, endpoint.receive(0, Tag.FROM_ROOT))
        return 0
    logging.info("%s", run.describe(role))
    failure = perform(endpoint, run, role, communicator=communicator, private=True)
    if failure is not None:
        time.sleep(_ABORT_SECONDS)  # the root has the failure, shows it and aborts us all; if not, we do
        os.write(console, f"arena: {failure.who}\n{failure.message}\n".encode())
        world.Abort(failure.exit_code)
    return 0


def _speak_into(log: Path) -> int:
    """Sends what this process prints, its libraries' C code included, to its log; returns the console's descriptor."""
    sys.stdout.flush()
    sys.stderr.flush()
    console = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.close(file)
    return console


def tell(failure: Failed) -> None:
    """Says on stderr why a run has ended."""
    if failure.exit_code == 2:
        text = f"arena: error: {failure.message}"
    else:
        text = f"arena: the run has ended: {failure.who}\n{failure.message}"
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def display_for(run: Run) -> Display:
    """The live panel where a person's terminal is at the end of stdout, else plain lines."""
    columns = terminal_columns()
    return make_display(
        sys.stdout,
        terminal=columns > 0,
        width=columns or None,
        total_ticks=run.plan.ticks * len(run.plan.matches),
        colors={name: policy.color for name, policy in run.plan.policies.items()},
    )


def terminal_columns() -> int:
    """The width of the user's terminal; 0 where stdout does not end at one."""
    told = os.environ.get(mpirun.TERMINAL_VARIABLE, "")
    if told.isdigit():
        return int(told)
    if mpirun.under_launcher():
        return 80 if _launcher_has_terminal() else 0
    return os.get_terminal_size().columns if sys.stdout.isatty() else 0


def _launcher_has_terminal() -> bool:
    """Where the launcher's own stdout ends: ours ends at the launcher, which may even give us a pseudo-terminal."""
    target = Path(f"/proc/{os.getppid()}/fd/1")
    try:
        return target.is_char_device() and os.readlink(target).startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False
