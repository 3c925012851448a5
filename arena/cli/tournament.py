"""`arena tournament`: plays without learning until a ranking is decided, and prints it."""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import partial
from typing import TYPE_CHECKING

from arena.cli.arguments import RemovedOption, add_overrides, number_up_to, positive_int
from arena.cli.start import Processes, start
from arena.errors import shown
from arena.records.figures import repetition_text
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.run.evaluation import alike

if TYPE_CHECKING:
    from arena.roles.run import Run
    from arena.run.lead import RunCommand
    from arena.run.tournament import Entry, Outcome, ReturnsOutcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Policies of configurations and runs, frozen, meet on both sides; those first whose result would change the "
        "standings most. In a game of one team, or of one seat, each plays the same games alone, and their returns are "
        "compared."
    )
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="PLAYERS",
        help="RUN:POLICY@TICK; or a run or configuration, all of whose policies play; an experiment's folder stands "
        "for the runs of its trials",
    )
    add_overrides(
        parser,
        "change one value of each configuration, such as envs.duel.outcome=zero_sum; may be given many times",
    )
    parser.add_argument(
        "--episodes",
        type=positive_int,
        metavar="N",
        help="at most N games (default: 10000); without opponents at least N games of each player (default: 100)",
    )
    parser.add_argument(
        "--error",
        type=number_up_to(0.5),
        metavar="P",
        help="stop when some two players are in the wrong order with at most this probability (default: 0.05; with "
        "--resume what it was)",
    )
    parser.add_argument(
        "--elo",
        type=number_up_to(4000.0),
        metavar="D",
        help="differences below D do not count (default: 20; with --resume what it was)",
    )
    parser.add_argument("--players", action=RemovedOption, instead="name each as RUN:POLICY@TICK")
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        default=["last"],
        metavar="WHICH",
        help="of players without @TICK: first, last, best, or numbers of ticks (default: last)",
    )
    parser.add_argument(
        "--untrained",
        action="store_true",
        help="take policies of configurations that learn and `load:` no checkpoint with their first weights",
    )
    parser.add_argument("--sample", action="store_true", help="sampled actions instead of the most likely ones")
    parser.add_argument(
        "--ranks", type=positive_int, metavar="N", help="processes (default: 1, everything in this one)"
    )
    parser.add_argument("--run-dir", metavar="DIR", help="its folder (default: runs/<name>-tournament)")
    parser.add_argument("--resume", action="store_true", help="go on with the one in its folder")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=run, plays=True)


def run(arguments: argparse.Namespace) -> int:
    """Takes this process's part in a tournament, or starts it. Returns the exit status."""

    def entry() -> Entry:
        from arena.experiment.folder import runs_of
        from arena.run.tournament import Entry

        targets = [run for target in arguments.targets for run in runs_of(target)]
        fields = "overrides", "episodes", "error", "elo", "checkpoints", "untrained", "run_dir", "resume"
        return Entry(targets, **{name: getattr(arguments, name) for name in fields}, greedy=not arguments.sample)

    def rank0() -> RunCommand:
        from arena.run.tournament import TournamentRun

        def progress(message: str) -> None:  # with --json stdout is for the result alone
            print(message, file=sys.stderr if arguments.json else sys.stdout, flush=True)

        return TournamentRun(entry(), progress, partial(_present, as_json=arguments.json))

    def processes() -> Processes:
        if arguments.ranks is not None and arguments.ranks > 1:
            from arena.run.tournament import opening

            opening(entry())
        return Processes(arguments.ranks or 1)

    return start(rank0, processes)


def _present(run: Run, outcome: Outcome | ReturnsOutcome, *, as_json: bool) -> None:
    """Prints the table, as text or JSON."""
    from arena.league.tournament import every_meeting
    from arena.run.tournament import ReturnsOutcome
    from arena.terminal import standings

    if isinstance(outcome, ReturnsOutcome):
        same = alike(run)
        data = {"players": outcome.rows, "decided": outcome.decided, "alike": same, "run_dir": str(run.path)}
        lines = [*standings.returns_lines(outcome.rows), *repetition_text(same, remedy="--sample")]
        text = "\n".join([*lines, f"run folder: {shown(run.path)}"])
        sys.stdout.write(f"{json.dumps(data, indent=2) if as_json else text}\n")
        sys.stdout.flush()
        return

    found, played, _, rule, sides = outcome
    lines_of_games = JournalReader(run.folder.episodes).lines(EpisodeRecord, missing_ok=True)
    interrupted = sum(line.round >= outcome.batches and not line.cut for line in lines_of_games)
    uncounted = {"without_winner": played.unrated, "cut_short": played.aborted, "interrupted": interrupted}
    if as_json:
        text = json.dumps(
            {
                "players": standings.table_data(found.tables),
                "decided": found.decided,
                "error": rule.error,
                "elo": rule.elo,
                "games": played.results.games,
                "not_counted": uncounted,
                "without_winner": played.without_winner,
                "prior": found.prior,
                "alike": alike(run),
                "contradictions": [pair._asdict() for pair in found.contradictions],
                "unmet": found.unmet,
                "neighbors": [{**doubt._asdict(), "open": doubt in found.open} for doubt in found.doubts],
                "run_dir": str(run.path),
            },
            indent=2,
        )
    else:
        lines = [*standings.table_lines(found.tables), *standings.prior_lines(prior=found.prior)]
        pairs = len(every_meeting(sides)) if sides else math.comb(len(found.rows), 2)
        lines += standings.unmet_lines(found.unmet, pairs=pairs)
        lines += standings.contradiction_lines(found.contradictions)
        reasons = "without a winner", "cut short", "of the batch that was interrupted"
        message = [f"{games} {reason}" for games, reason in zip(uncounted.values(), reasons, strict=True) if games]
        lines += [
            *standings.verdict_lines(found, rule, played.results.games),
            *([f"not counted: {', '.join(message)}"] if message else []),
        ]
        lines += played.without_winner
        lines += repetition_text(alike(run), remedy="--sample")
        text = "\n".join([*lines, f"run folder: {shown(run.path)}"])
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
