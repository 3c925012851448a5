"""`arena tournament`: plays without learning until a ranking is decided. Rank 0's part is `TournamentRun`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from arena.cli.arguments import elo, names, positive_int, probability
from arena.cli.start import Processes, start

if TYPE_CHECKING:
    from arena.run.lead import RunCommand


class TournamentArgs(NamedTuple):
    """Which tournament.

    Args:
        targets: configurations and run folders, whose policies play.
        players: which of their policies play, as `blue` or `blue@5000`; none: all.
        checkpoints: of runs: `first`, `last`, or a number of ticks.
        episodes: at most so many games.
        error: how probable it may be that some two players are in the wrong order; None: 0.05, or with `resume` the
            value from before.
        elo: the difference that is to be resolved; None: 20, or with `resume` the value from before.
        greedy: the most likely actions rather than sampled ones.
        run_dir: the tournament's folder; None: `runs/<name>-tournament`, or the next free name.
        as_json: print the result as data.
        resume: go on with the tournament that is in the folder.
        untrained: take policies that learn and have no checkpoint with their first weights; otherwise they are refused.
    """

    targets: tuple[str, ...]
    players: tuple[str, ...]
    checkpoints: tuple[str, ...]
    episodes: int
    error: float | None
    elo: float | None
    greedy: bool
    run_dir: str | None
    as_json: bool
    resume: bool = False
    untrained: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.description = (
        "Policies of configurations and runs, frozen, meet on both sides; those first whose result would change the "
        "standings most."
    )
    parser.add_argument("targets", nargs="+", metavar="CONFIG_OR_RUN", help="whose policies play")
    parser.add_argument(
        "--episodes", type=positive_int, default=10_000, metavar="N", help="at most N games (default: 10000)"
    )
    parser.add_argument(
        "--error",
        type=probability,
        metavar="P",
        help="stop when some two players are in the wrong order with at most this probability (default: 0.05; with "
        "--resume what it was)",
    )
    parser.add_argument(
        "--elo",
        type=elo,
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
    """Takes this process's part in a tournament, or starts it. Returns the exit status.

    Raises:
        ConfigError: a mistake of the user; under a launcher rank 0 reports it and 2 is returned.
    """
    request = TournamentArgs(
        tuple(arguments.targets),
        tuple(arguments.players),
        tuple(arguments.checkpoints),
        arguments.episodes,
        arguments.error,
        arguments.elo,
        greedy=not arguments.sample,
        run_dir=arguments.run_dir,
        as_json=arguments.json,
        resume=arguments.resume,
        untrained=arguments.untrained,
    )
    return start(lambda: _rank0(request), lambda: _processes(request, arguments.ranks or 1))


def _rank0(request: TournamentArgs) -> RunCommand:
    from arena.cli.tournament_run import TournamentRun

    return TournamentRun(request)


def _processes(request: TournamentArgs, ranks: int) -> Processes:
    if ranks > 1:
        from arena.cli.tournament_run import opening

        opening(request)
    return Processes(ranks)
