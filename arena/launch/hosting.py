"""Hosting the roles of a run where the root is one of them: all in this one process, or those of rank 0."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import Any

from arena.comm import Endpoint
from arena.comm.host import Host
from arena.errors import Deadlock, PeerLost
from arena.launch.console import log_beside_display, tell
from arena.launch.prepare import abandon, begin
from arena.launch.ranks import Main, names_of
from arena.launch.sentry import Sentry
from arena.launch.terminal import display_for
from arena.memory import Memory
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
        present(run, in_one_process(run, display or display_for(run), watched=True))
        return 0
    except RoleFailed as error:
        failure = error.failure
    except Deadlock as error:
        failure = Failed("no role can go on", str(error), exit_code=1)
    except KeyboardInterrupt as error:
        failure = _interrupted(run, error)
    tell(failure)
    return failure.exit_code


def in_one_process(run: Run, display: Display, *, watched: bool = False) -> Scoreboard:
    """All roles as threads of this process, one at a time.

    Args:
        run: the run.
        display: shows the progress.
        watched: whether a role that hangs ends this process; an error cannot end it.

    Raises:
        RoleFailed: a role could not go on.
        Deadlock: every role waits for another one.
    """
    results: list[Scoreboard] = []
    seed_libraries(run.plan.seed)  # the roles share their streams, but take turns in the same order every time

    def main_of(role: Role) -> Main:
        if role.kind is RoleKind.ROOT:
            return lambda endpoint: results.append(_record(endpoint, run, display, Memory()))
        return lambda endpoint: perform(endpoint, run, role, private=False)

    host = Host(names_of(run, run.roles))
    with Sentry(host, run) if watched else nullcontext():
        host.run({run.address(role): main_of(role) for role in run.roles})
    return results[0]


def _record(endpoint: Endpoint, run: Run, display: Display, memory: Memory) -> Scoreboard:
    root = Root(endpoint, run, display, memory)
    try:
        root.gather()
    except RoleFailed as error:
        if error.failure.exit_code == _MISTAKE:
            abandon(run)
        raise
    if not run.begun:
        begin(run)
    with Recorder(run.folder, root.ticks, resumed_at=run.leg.start if run.resumed else None) as recorder:
        root.record(recorder)
    if run.profile:
        run.folder.write_profile(profile_json(run.plan, root.profiles))
    return root.scoreboard


def lead(team: Any, host: Host, run: Run, memory: Memory, present: Callable[[Run, Scoreboard], None]) -> None:
    """Rank 0's roles of a run that has other ranks.

    Args:
        team: all processes.
        host: of the roles of rank 0.
        run: the run.
        memory: keeps what they know, should the run have to be repaired.
        present: shows the result.

    Raises:
        PeerLost: a process of the run has died.
    """
    log_beside_display(run, run.plan.ranks[0])
    signal.signal(signal.SIGTERM, _interrupt)
    results: list[Scoreboard] = []

    def main_of(role: Role) -> Main:
        if role.kind is RoleKind.ROOT:
            return lambda endpoint: results.append(_record(endpoint, run, display_for(run), memory))
        return lambda endpoint: perform(endpoint, run, role, memory=memory, private=False)

    try:
        with Sentry(host, run):
            host.run({run.address(role): main_of(role) for role in run.plan.ranks[0]})
        present(run, results[0])
    except KeyboardInterrupt as error:
        failure = _interrupted(run, error)
        tell(failure)
        # The launcher is ending all processes already; MPI has nothing to add, and may hang.
        os._exit(failure.exit_code)
    except BaseException as error:
        if team.mourns(error):
            raise PeerLost(str(error)) from error
        failure = error.failure if isinstance(error, RoleFailed) else failure_of(error, "root, rank 0")
        tell(failure)
        team.abort(failure.exit_code)


def _interrupted(run: Run, error: KeyboardInterrupt) -> Failed:
    number: int = error.args[0] if error.args else signal.SIGINT
    go_on = ", --resume goes on with it" if run.episodes is None and run.folder.config.exists() else ""
    return Failed("root, rank 0", f"ended by a signal; what was played is in {run.path}{go_on}", 128 + number)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)
