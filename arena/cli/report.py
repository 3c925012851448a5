"""`arena report`: one HTML page of a run, written or served."""

from __future__ import annotations

import argparse
from pathlib import Path

from arena.cli.arguments import non_negative_int, port
from arena.errors import ConfigError
from arena.experiment.folder import is_experiment
from arena.report.page import write_report
from arena.terminal.output import say

_PORT = 8000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.description = (
        "One HTML file that opens offline: standings, curves, plan, time, faults, replays. The run may be under way. "
        "Replays are played again, so that the run's games must be there."
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or of an experiment")
    parser.add_argument("--output", metavar="FILE", help="the page (default: report.html in the folder)")
    parser.add_argument(
        "--replays", type=non_negative_int, default=3, metavar="N", help="show at most N replays (default: 3)"
    )
    parser.add_argument(
        "--serve",
        type=port,
        nargs="?",
        const=_PORT,
        metavar="PORT",
        help=f"serve the page on this machine and keep it up to date (default: port {_PORT}; 0: any)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the page, or serves it until Ctrl-C; returns the exit status."""
    if is_experiment(arguments.run):
        if arguments.serve is not None:
            raise ConfigError("serves the page of a run; this is an experiment, leave it out", path="--serve")
        from arena.experiment.page import write_page

        page = write_page(arguments.run, arguments.output)
        say(f"{page}: {page.stat().st_size / 1e6:.1f} MB")
        return 0
    if arguments.serve is None:
        page = write_report(arguments.run, arguments.output, replays=arguments.replays)
        say(f"{page}: {page.stat().st_size / 1e6:.1f} MB")
        return 0
    if arguments.output is not None:
        raise ConfigError("a page that is served is not written; leave one of the two out", path="--output, --serve")
    from arena.report.live import serve

    return serve(Path(arguments.run), port=arguments.serve, replays=arguments.replays, say=say)
