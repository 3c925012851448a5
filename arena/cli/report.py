"""`arena report`: one HTML page of a run, written or served."""

from __future__ import annotations

import argparse
import re
from urllib.parse import quote

from arena.cli.arguments import non_negative_int, port
from arena.cli.board import PORT, serve
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError, shown
from arena.experiment.folder import is_experiment
from arena.records.folder import RunFolder
from arena.report.page import write_report
from arena.terminal.output import say

_COMPARISON = "comparison.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "One HTML file that opens offline: standings, curves, plan, time, faults, replays. The run may be under way. "
        "Replays are played again, so that the run's games must be there."
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="the folder of a run, or of an experiment; of several runs: means over seeds",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help=f"the page (default: report.html in the run's folder, of several runs {_COMPARISON} here)",
    )
    parser.add_argument(
        "--replays", type=non_negative_int, default=3, metavar="N", help="show at most N replays (default: 3)"
    )
    parser.add_argument(
        "--episode",
        type=_place,
        action="append",
        default=[],
        metavar="R/M/L/E",
        help="show the replay of this episode instead: round/match/lane/episode, as the page lists it",
    )
    parser.add_argument(
        "--serve",
        type=port,
        nargs="?",
        const=PORT,
        metavar="PORT",
        help=f"serve the page on this machine, as `arena board`, and keep it up to date (default: port {PORT}; 0: any)",
    )
    parser.set_defaults(command=run)


def _place(text: str) -> tuple[int, int, int, int]:
    if not re.fullmatch(r"(\d{1,12}/){3}\d{1,12}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected round/match/lane/episode, as 0/1/0/12")
    number, match, lane, episode = map(int, text.split("/"))
    return number, match, lane, episode


def run(arguments: argparse.Namespace) -> int:
    """Writes the page, or serves it until Ctrl-C; returns the exit status."""
    several, (path, *_) = len(arguments.runs) > 1, arguments.runs
    if arguments.serve is not None:
        if several or arguments.episode or arguments.output is not None:
            raise ConfigError("serves all of one run, or of one experiment; leave the other option out", path="--serve")
        kind = "experiment" if is_experiment(path) else "run"
        folder = anchored(path).resolve() if kind == "experiment" else RunFolder.existing(path).path.resolve()
        return serve(folder.parent, port=arguments.serve, page=f"/{kind}/{quote(folder.name)}", option="--serve")
    if several:
        if arguments.episode:
            raise ConfigError("a page of several runs has no replays; leave it out, or name one run", path="--episode")
        from arena.report.comparison import write_comparison

        page = write_comparison(arguments.runs, arguments.output or _COMPARISON)
    elif is_experiment(path):
        from arena.experiment.page import write_page

        page = write_page(path, arguments.output)
    else:
        page = write_report(path, arguments.output, replays=arguments.replays, episodes=arguments.episode)
    say(f"{shown(page)}: {page.stat().st_size / 1e6:.1f} MB")
    return 0
