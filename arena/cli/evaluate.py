"""`arena evaluate`: plays without learning, with the weights of a run's checkpoints, and prints the results."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import replace

from arena.cli.arguments import positive_int
from arena.config.fields import OutcomeRule
from arena.errors import shown
from arena.experiment.folder import runs_of
from arena.league.sources import split
from arena.preflight.examine import make_game
from arena.preflight.outcomes import outcome_rule
from arena.records.folder import RunFolder
from arena.records.outcome import without_winner_text
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Failed
from arena.roles.run import Run
from arena.run.console import Output, write_failure
from arena.run.evaluate import EvaluationMatch, matches_of, play
from arena.run.evaluation import against_itself, alike_text, measured, measured_text, result_text
from arena.terminal.output import complain, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Plays in this one process."
    parser.add_argument(
        "target",
        metavar="RUN_OR_CONFIG",
        help="a run's folder, or a configuration file; an experiment's folder stands for the runs of its trials",
    )
    parser.add_argument(
        "--episodes",
        type=positive_int,
        default=100,
        metavar="N",
        help="at least N episodes: every lane plays the same number (default: 100)",
    )
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        metavar="WHICH",
        help="of a run: first, last, best, or a number of ticks (default: last)",
    )
    parser.add_argument(
        "--against",
        metavar="POLICY",
        help="what takes all other seats: a policy, as blue, blue@5000 or runs/a:blue@best, or an algorithm",
    )
    parser.add_argument("--sample", action="store_true", help="sampled actions instead of the most likely ones")
    parser.add_argument(
        "--run-dir", metavar="DIR", help="below which the records go (default: its evaluations/, or runs/)"
    )
    parser.set_defaults(command=run, plays=True)


def run(arguments: argparse.Namespace) -> int:
    """Plays, prints one line per policy and checkpoint, and where the records are; returns the exit status."""
    played: list[str] = []
    target = arguments.target
    runs = [target] if split(target)[1] else runs_of(target)  # `matches_of` refuses RUN:POLICY
    for name in runs:
        if len(runs) > 1:
            say(f"{shown(name)}:")
        for match in matches_of(name, arguments.checkpoints, arguments.against, arguments.run_dir):
            greedy = not arguments.sample
            records, status = play(match, arguments.episodes, _present, greedy=greedy, output=_ErrorsInOneLine())
            if status == 1:
                complain(f"its log is {shown(RunFolder(records).log_path(0))}\n")
            if status != 0:
                return status
            played.append(shown(records))
    say(f"records: {', '.join(played)}")
    return 0


class _ErrorsInOneLine(Output):
    """Shows an error in code of the user with its key, file and line; the log has its traceback."""

    def fail(self, failure: Failed) -> None:
        brief = f"{failure.key}: {failure.brief}"
        write_failure(replace(failure, message=brief) if failure.key and failure.brief else failure)


def _present(evaluation: EvaluationMatch, run: Run, scoreboard: Scoreboard) -> None:
    for policy, title in evaluation.titles.items():
        say(f"{title}: {result_text(scoreboard.policies[policy], against_itself(run, policy))}")
    for name, values in sorted(measured(run).items()):
        for policy in (one for one in evaluation.titles if one in values):
            say(measured_text(f"{name} of {policy}", values[policy]))
    rules: dict[str, OutcomeRule | None] = {}  # of games that do not say themselves that they have no winners
    decided = any(score.games.count for score in scoreboard.policies.values())
    for match in run.plan.matches:
        if len(match.seats) > 1 and match.env not in rules and not decided:
            with closing(make_game(match, 1)) as game:
                rule = outcome_rule(match, game.interface)
            rules |= {} if rule == "none" else {match.env: rule}
    scores = {policy: scoreboard.policies[policy] for policy in evaluation.titles}
    for line in [*without_winner_text(rules), *alike_text(run, scores, remedy="--sample")]:
        say(line)
