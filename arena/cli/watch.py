"""`arena watch`: shows how a run goes, by following the files of its folder."""

from __future__ import annotations

import argparse

from arena.launch.console import terminal_columns
from arena.terminal.watch import watch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.description = "Follows the files of a run until it ends; Ctrl-C ends it."
    parser.add_argument("run", metavar="RUN", help="a run's folder")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Follows the run; returns the exit status."""
    return watch(arguments.run, columns=terminal_columns())
