"""`arena watch`: shows how a run goes, by following the files of its folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from arena.experiment.folder import is_experiment
from arena.launch.console import terminal_columns
from arena.records.folder import RunFolder
from arena.terminal.watch import await_start, watch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.description = "Follows the files of a run until it ends; Ctrl-C ends it."
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or of an experiment")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Follows the run, or the experiment; returns the exit status."""
    try:
        await_start(RunFolder(Path(arguments.run)), else_begun=is_experiment)
    except KeyboardInterrupt:
        return 0
    if is_experiment(arguments.run):
        from arena.experiment.run import watch_experiment

        return watch_experiment(arguments.run, sys.stdout)
    return watch(arguments.run, columns=terminal_columns())
