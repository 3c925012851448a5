"""Rank 0's part of a training run: reads the configuration, announces the run, and shows its result."""

from __future__ import annotations

import argparse
from dataclasses import replace

from arena.config import load_with_origin
from arena.errors import pluralize
from arena.records.faults import losses
from arena.records.formats import ProfileFile, read_document, rules_of
from arena.records.scoreboard import Scoreboard
from arena.roles.run import Run
from arena.run import mpirun
from arena.run.controller import is_controlled
from arena.run.lead import RunCommand
from arena.run.mpirun import Restart
from arena.run.prepare import prepare, restarted
from arena.terminal.display import fault_lines, processes_text, profile_lines, summary_lines
from arena.terminal.output import say


class TrainRun(RunCommand):
    """Rank 0's part of a training run, or all of it if there is no other rank; `arguments` of `arena train`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments

    def prepare(self, ranks: int, restart: Restart | None = None) -> Run:
        """Reads the configuration and claims the run folder, for so many ranks."""
        arguments = self._arguments
        run = None if restart is None else restarted(restart, ranks=ranks, resume=arguments.resume)
        if run is None:
            config, origin = load_with_origin(arguments.config, arguments.overrides)
            text: list[str] = []
            with origin.located():
                if arguments.earlier is not None:
                    from arena.run.continued import continued  # it reads games, ratings and checkpoints

                    config, text = continued(config, arguments.earlier)
                place = arguments.run_dir if restart is None else restart.folder
                run = prepare(config, ranks=ranks, run_dir=place, resume=arguments.resume)
            made = run.made_folder if restart is None else restart.made
            run = replace(run, source=arguments.config, overridden=origin.overridden, made_folder=made)
            run = replace(run, text=(*text, *run.text))
        run = replace(run, profile=arguments.profile, controlled=is_controlled())
        if restart is not None:
            return run
        return announced(run, ranks_chosen=arguments.ranks is not None or mpirun.started_by_us())

    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        """Prints where the records are, and the results of the policies."""
        lines = summary_lines(scoreboard, run.path, run.plan.config)
        if run.plan.config.round_count > 1:
            from arena.opened import Run as OpenedRun
            from arena.opened import rated
            from arena.run import rounds
            from arena.terminal import standings

            found = rated(OpenedRun(run.path)).table
            # Frozen policies may be many: the snapshots that `--continue` has taken over.
            always = [name for name, policy in run.plan.config.policies.items() if not policy.frozen]
            league = standings.league_lines(found, most=standings.MOST, always=always)
            lines += [*(league if found.tables else found.without_winner)]
            lines += [*rounds.decided_lines(run), *standings.champion_lines(rounds.league_champions(run))]
        else:
            played = [score for score in scoreboard.policies.values() if score.episodes]
            if played and not any(score.games.count for score in played) and "info" in rules_of(run.folder).values():
                from arena.league import read_results

                lines += read_results.read(run.folder).without_winner  # no outcome was stated, or none that fits
        lines += fault_lines(losses(run.folder.faults))
        if run.profile:
            lines += ["where the time went:", *profile_lines(read_document(run.folder.profile, ProfileFile))]
        say("\n".join(lines))


def announced(run: Run, *, ranks_chosen: bool = False) -> Run:
    """Prints what begins; the folder is printed when all roles are ready. Returns the run.

    `ranks_chosen`: whether the user has given the number of processes.
    """
    plan = run.plan
    matches = pluralize(len(plan.matches), "match", "matches")
    if plan.config.round_count == 1:
        extent = f"{matches} of {pluralize(plan.ticks, 'tick')}"
    else:
        ticks = pluralize(plan.horizon // plan.config.round_count, "tick")
        extent = f"{plan.config.round_count} rounds of {ticks}, the first one {matches}"
    lines = [f"{plan.config.name}: {extent}, {processes_text(plan.processes, len(plan.roles()))}"]
    if run.resumed:
        lines.append(f"goes on at tick {run.leg.start}")
    lines += run.text
    if plan.packed and plan.processes > 1 and not ranks_chosen:
        lines.append(f"{len(plan.roles())} processes would give each role its own")
    idle = len(plan.idle_ranks)
    if idle > 0:
        lines.append(f"{idle} of the processes are idle: the plan has no role for them")
    say("\n".join(lines))
    return run
