"""The three ways in which a command that plays starts its run: as one rank, in this process, or under a launcher.

A hundred processes may come through here at once. Each way imports what it needs and nothing else: a launcher needs no
NumPy, and rank 0 alone needs to read a configuration.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from arena.plan.hosts import Host
from arena.registry import uncollected
from arena.run import mpirun

if TYPE_CHECKING:
    from arena.run.lead import RunCommand


class Processes(NamedTuple):
    """How many processes a run gets, how often they are started again, and the hosts that the user names."""

    number: int
    restarts: int = 0  # after how many deaths per leg they are started again
    scale: bool = False  # whether their number decides what is played
    hosts: tuple[Host, ...] = ()  # as `--hosts` has them


def start(rank0: Callable[[], RunCommand], processes: Callable[[], Processes], *, has_resume: bool = True) -> int:
    """Takes this process's part in a run that a launcher has started, or starts the run. Returns the exit status.

    Args:
        rank0: makes what leads the run; called in the process that leads it, and nowhere else.
        processes: called where no launcher has started this process. It finds a user's mistake before any process is
            started, so that the mistake is reported once.
        has_resume: whether the command has a `--resume`.
    """

    def imported() -> RunCommand:
        with uncollected():
            return rank0()

    if mpirun.under_launcher():
        with uncollected():
            from arena.run.loop import run_rank
        return run_rank(imported)
    # SIGUSR1 would end a process that is not yet ready for it; `Stop.listen` or `mpirun.run` receives it later.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        needed = processes()
        if needed.number > 1 or needed.hosts:  # a single process may have to run on another host
            program = [sys.executable, "-m", "arena", *sys.argv[1:]]
            number, *how = needed
            more: dict[str, Any] = dict(zip(needed._fields[1:], how, strict=True))
            return mpirun.run(number, program, has_resume=has_resume, **more)
        command = imported()
        from arena.run.loop import run_single_process

        run = command.prepare(1)
        return run_single_process(run, command.present, command.display(), next_stage=command.next_stage)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
