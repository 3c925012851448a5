"""What leads a training run: it reads the configuration, says what begins, and shows how it went."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from arena.cli.train import TrainArgs
from arena.config import load_with_origin
from arena.errors import ConfigError, pluralize
from arena.launch.leader import Rank0Base
from arena.records.faults import losses
from arena.records.scoreboard import Scoreboard
from arena.run.prepare import prepare
from arena.run.run import Run
from arena.terminal.display import fault_lines, summary_lines
from arena.terminal.profile import profile_lines
from arena.terminal.text import processes_words

if TYPE_CHECKING:
    from arena.plan.plan import Plan

_INTOLERANT = (
    "found on, but this MPI ends all processes when one dies: start the run with `arena train` and Open MPI 5, or with "
    "`mpirun --with-ft ulfm`; `auto` goes on where it can"
)


class TrainRun(Rank0Base):
    """Rank 0's part of a training run, or all of it where there is no other rank.

    Args:
        request: what to train.
    """

    def __init__(self, request: TrainArgs) -> None:
        self._request = request

    def prepare(self, ranks: int, *, tolerant: bool = False) -> Run:
        """Reads the configuration and claims the run folder, for so many ranks.

        Raises:
            ConfigError: a mistake in the configuration.
        """
        asked = self._request
        config, origin = load_with_origin(asked.path, asked.overrides)
        with origin.located():
            if config.fault_tolerance == "on" and not tolerant:
                raise ConfigError(_INTOLERANT, path="fault_tolerance")
            run = prepare(config, ranks=ranks, run_dir=asked.run_dir, resume=asked.resume)
        run = replace(
            run,
            source=asked.path,
            overridden=origin.overridden,
            profile=asked.profile,
            allow_unproved=asked.allow_unproved,
        )
        return announced(run, ranks_said=asked.ranks_said)

    def present(self, run: Run, scoreboard: Scoreboard) -> None:
        """Shows where everything is and how the policies fared."""
        present(run, scoreboard)


def announced(run: Run, *, ranks_said: bool = False) -> Run:
    """Says what begins; where its folder is, is told when everybody is ready.

    Args:
        run: that begins.
        ranks_said: whether the user has asked for so many processes.
    """
    plan = run.plan
    lines = [f"{plan.name}: {_extent(plan)}, {processes_words(plan.processes, len(plan.roles()))}"]
    if run.resumed:
        lines += [f"goes on at tick {run.leg.start}", *run.words]
    if plan.packed and plan.processes > 1 and not ranks_said:
        lines.append(f"{len(plan.roles())} processes would give each role its own")
    idle = len(plan.idle_ranks) - plan.spares
    if idle > 0:
        lines.append(f"{idle} of the processes are idle: the plan has no role for them")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
    return run


def _extent(plan: Plan) -> str:
    """How much is played."""
    matches = pluralize(len(plan.matches), "match", "matches")
    if plan.rounds == 1:
        return f"{matches} of {pluralize(plan.ticks, 'tick')}"
    return f"{plan.rounds} rounds of {pluralize(plan.horizon // plan.rounds, 'tick')}, the first one {matches}"


def present(run: Run, scoreboard: Scoreboard) -> None:
    """Shows where everything is and how the policies fared."""
    lines = [*summary_lines(scoreboard, run.path), *_standings(run), *fault_lines(losses(run.folder.faults))]
    if run.profile:
        lines += ["where the time went:", *profile_lines(run.folder.read_profile())]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _standings(run: Run) -> list[str]:
    """Who is best at the end of a league, if two players were rated; and who has won its knockouts."""
    if run.plan.rounds == 1:
        return []
    from arena.run import rounds
    from arena.terminal import standings as show

    found = rounds.league_standings(run)
    won = show.champion_lines(rounds.league_champions(run))
    if len(found.rows) < 2:
        return [*found.without_winner, *show.outdated_lines(found.outdated), *won]
    return [
        *show.standings_lines(found.rows, most=show.MOST, always=rounds.config_of(run).policies),
        *found.without_winner,
        *show.outdated_lines(found.outdated),
        *show.equal_lines(found.equal),
        *show.prior_lines(prior=found.prior),
        *show.curtailed_lines(found.curtailed),
        *(() if found.caution is None else show.caution_lines(found.caution, run.path)),
        *won,
    ]
