"""`arena board`: runs and experiments in a browser."""

from __future__ import annotations

import argparse

from arena.board.server import PORT, serve
from arena.cli.arguments import port
from arena.terminal.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serves pages on this machine alone: all runs and experiments in a folder, live. The address that is printed "
        "has a key. Needs the extra `board`; Ctrl-C ends it."
    )
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="runs", help="where the runs are (default: runs)"
    )
    parser.add_argument(
        "--port", type=port, default=PORT, metavar="PORT", help=f"at which it listens (default: {PORT}; 0: any)"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until Ctrl-C; returns the exit status."""
    return serve(arguments.folder, port=arguments.port, say=say)
