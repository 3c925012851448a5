"""Hosting the roles of a run where the root is one of them: all in this one process, or those of rank 0."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from arena.comm import Endpoint
from arena.comm.host import Host
from arena.errors import Deadlock
from arena.launch.console import log_beside_display, tell
from arena.launch.prepare import abandon, begin
from arena.launch.ranks import Main, names_of
from arena.launch.terminal import display_for
from arena.messages import Failed
from arena.plan import Role, RoleKind
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.libraries import seed_libraries
from arena.roles.root import RoleFailed, Root
from arena.roles.stage import failure_of, perform
from arena.run import Run
from arena.screen.display import Display
from arena.screen.profile import profile_json

_MISTAKE = 2  # the exit status after a user's mistake


def alone(run: Run, present: Callable[[Run, Scoreboard], None], display: Display | None = None) -> int:
    """Runs everything in this process and shows the result, or says why there is none; returns the exit status.

    Args:
        run: the run.
        present: shows the result.
        display: shows the progress; None: as it fits the terminal.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    log_beside_display(run, run.roles)
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

    Host(names_of(run, run.roles)).run({run.address(role): main_of(role) for role in run.roles})
    return results[0]


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


def lead(world: Any, host: Host, run: Run, present: Callable[[Run, Scoreboard], None]) -> None:
    """Rank 0's roles of a run that has other ranks.

    Args:
        world: the communicator of all ranks.
        host: of the roles of rank 0.
        run: the run.
        present: shows the result.
    """
    log_beside_display(run, run.plan.ranks[0])
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


def _interrupted(run: Run, error: KeyboardInterrupt) -> Failed:
    number: int = error.args[0] if error.args else signal.SIGINT
    go_on = ", --resume goes on with it" if run.episodes is None and run.folder.config.exists() else ""
    return Failed("root, rank 0", f"ended by a signal; what was played is in {run.path}{go_on}", 128 + number)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)
