"""`arena tournament`: plays without learning until a ranking is decided. Rank 0's part is `TournamentRun`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from arena.cli.arguments import add_overrides, names, number_up_to, positive_int
from arena.cli.start import Processes, start

if TYPE_CHECKING:
    from arena.run.lead import RunCommand


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Policies of configurations and runs, frozen, meet on both sides; those first whose result would change the "
        "standings most."
    )
    parser.add_argument("targets", nargs="+", metavar="CONFIG_OR_RUN", help="whose policies play")
    add_overrides(
        parser,
        "change one value of each configuration, such as envs.duel.outcome=zero_sum; may be given many times",
    )
    parser.add_argument(
        "--episodes", type=positive_int, default=10_000, metavar="N", help="at most N games (default: 10000)"
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
    parser.add_argument(
        "--players", type=names, default=[], metavar="A,B", help="these alone, as blue or blue@5000 (default: all)"
    )
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        default=["last"],
        metavar="WHICH",
        help="of runs: first, last, best, or numbers of ticks (default: last)",
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

    def rank0() -> RunCommand:
        from arena.cli.tournament.tournament_run import TournamentRun

        return TournamentRun(arguments)

    def processes() -> Processes:
        if arguments.ranks is not None and arguments.ranks > 1:
            from arena.cli.tournament.tournament_run import opening

            opening(arguments)
        return Processes(arguments.ranks or 1)

    return start(rank0, processes)
