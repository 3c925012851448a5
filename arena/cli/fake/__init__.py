"""`arena fake`: stand-ins for each side of a connection to external games, to test the other side alone."""

from __future__ import annotations

import argparse

from arena.cli.arguments import Parser
from arena.cli.fake import http, simulators


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "No side needs a policy or a run. `actor` needs the extra `http`."
    sides = parser.add_subparsers(title="sides", required=True, metavar="SIDE", parser_class=Parser)
    http.add_side(sides)
    simulators.add_sides(sides)
