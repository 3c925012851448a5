"""`arena train`: in one process, as one rank under a launcher, or by starting the launcher.

A hundred processes may come through here at once. Each of the three ways imports what it needs, and inside the
function that takes it: a launcher needs no NumPy, and of the ranks the first alone needs to read a configuration.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from arena.launch import mpirun
from arena.registry import uncollected

if TYPE_CHECKING:
    from arena.cli.leading import TrainRun
    from arena.plan.process_count import RanksWanted


class TrainArgs(NamedTuple):
    """What to train: the arguments of `train` that say so."""

    path: str
    overrides: tuple[str, ...]
    run_dir: str | None
    resume: bool
    profile: bool
    allow_unproved: bool = False
    ranks_said: bool = False  # whether the user has said how many processes there are


def train(
    path: str,
    *,
    overrides: Sequence[str] = (),
    run_dir: str | None = None,
    ticks: int | None = None,
    resume: bool = False,
    ranks: RanksWanted | None = None,
    profile: bool = False,
    allow_unproved: bool = False,
) -> int:
    """Takes this process's part in a run, or starts the run. Returns the exit status.

    Args:
        path: the configuration file.
        overrides: `key.path=value` each.
        run_dir: the run folder, None: `runs/<name>`, or the next free name.
        ticks: over the configuration's.
        resume: go on with the run that is in the folder.
        profile: measure where every role's time goes.
        allow_unproved: start also what can deadlock.
        ranks: how many processes to start; None: as the configuration's `ranks` says; 1: none, everything in this one.

    Raises:
        ConfigError: a mistake in the configuration; under a launcher it is told here, once, and 2 is returned.
    """
    said = (*overrides, *((f"ticks={ticks}",) if ticks is not None else ()))
    known = ranks is not None or mpirun.started_by_us()
    request = TrainArgs(path, said, run_dir, resume, profile, allow_unproved, known)
    if mpirun.under_launcher():
        return _as_rank(request)
    # SIGUSR1 would end a process that is not yet ready for it; `Stop.listen` or `mpirun.run` receives it later.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        return _alone(request) if ranks == 1 else _start(request, ranks)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _alone(request: TrainArgs) -> int:
    leader = _leader(request)
    return leader.alone(leader.prepare(1))


def _as_rank(request: TrainArgs) -> int:
    with uncollected():
        from arena.launch.rank import run_rank
    return run_rank(lambda: _leader(request))


def _leader(request: TrainArgs) -> TrainRun:
    with uncollected():
        from arena.cli.leading import TrainRun
    return TrainRun(request)


def _start(request: TrainArgs, ranks: RanksWanted | None) -> int:
    from arena.config import load_with_origin
    from arena.plan.process_count import process_count
    from arena.run.planning import checked_plan

    config, origin = load_with_origin(request.path, request.overrides)
    with origin.located():  # a mistake is reported once, before any process starts
        plan = checked_plan(config, ranks=process_count(config, ranks, os.environ).number)
    if plan.processes == 1:
        return _alone(request._replace(ranks_said=True))
    program = [sys.executable, "-m", "arena", *sys.argv[1:]]
    return mpirun.run(plan.processes, program, tolerant=plan.fault_tolerance != "off")
