"""`arena train`: in one process, as one rank under a launcher, or by starting the launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from arena.config import Config, load_config
from arena.errors import located
from arena.launch import hosting, mpirun
from arena.launch.prepare import checked_plan, prepare
from arena.records.scoreboard import Scoreboard
from arena.run import Run
from arena.screen.display import summary_lines
from arena.screen.profile import profile_lines
from arena.screen.words import counted, processes_words


def train(
    path: str,
    *,
    overrides: Sequence[str] = (),
    run_dir: str | None = None,
    ticks: int | None = None,
    resume: bool = False,
    ranks: int | None = None,
    profile: bool = False,
) -> int:
    """Takes this process's part in a run, or starts the run. Returns the exit status.

    Args:
        path: the configuration file.
        overrides: `key.path=value` each.
        run_dir: the run folder, None: `runs/<name>`, or the next free name.
        ticks: over the configuration's.
        resume: go on with the run that is in the folder.
        profile: measure where every role's time goes.
        ranks: how many processes to start; None: one for each role; 1: none, everything in this one.

    Raises:
        ConfigError: a mistake in the configuration; under a launcher it is told here, once, and 2 is returned.
    """
    overrides = [*overrides, *([f"ticks={ticks}"] if ticks is not None else [])]

    def config() -> Config:
        return load_config(path, overrides)

    def prepared(size: int | None) -> Run:
        with located(source=path):
            run = prepare(config(), ranks=size, run_dir=run_dir, resume=resume)
        return announced(replace(run, source=path, profile=profile))

    if mpirun.under_launcher():
        return hosting.in_the_world(prepared, present)
    if ranks == 1:
        return alone(prepared(1))
    with located(source=path):  # a mistake is said once, before any process starts
        plan = checked_plan(config(), ranks=ranks)
    return mpirun.run(plan.processes, [sys.executable, "-m", "arena", *sys.argv[1:]])


def alone(run: Run) -> int:
    """Runs everything in this process and shows the result; returns the exit status."""
    return hosting.alone(run, present)


def announced(run: Run) -> Run:
    """Says what begins."""
    plan = run.plan
    lines = [
        f"{plan.name}: {counted(len(plan.matches), 'match', 'matches')} of {counted(plan.ticks, 'tick')}, "
        f"{processes_words(plan.processes, len(plan.roles()))}"
    ]
    if run.start_tick:
        lines += [f"goes on at tick {run.start_tick}", *run.past.words]
    if plan.packed and plan.processes > 1:
        lines.append(f"{len(plan.roles())} processes would give each role its own")
    if plan.idle_ranks:
        lines.append(f"{len(plan.idle_ranks)} of the processes are idle: the plan has no role for them")
    sys.stdout.write("\n".join([*lines, f"run folder: {run.path}"]) + "\n")
    sys.stdout.flush()
    return run


def present(run: Run, scoreboard: Scoreboard) -> None:
    """Shows where everything is and how the policies fared."""
    lines = summary_lines(scoreboard, run.path)
    if run.profile:
        lines += ["where the time went:", *profile_lines(run.folder.read_profile())]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
