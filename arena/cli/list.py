"""`arena list`: the built-in environments, connections, wrappers, algorithms, generators and rules; their options."""

from __future__ import annotations

import argparse

from arena import registry
from arena.terminal import reference, reference_pages
from arena.terminal.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="whose options to show: of one, or of all environments, connections, wrappers, algorithms, generators, "
        "rules",
    )
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        help="a module that registers names of your own, as under `imports` of a configuration",
    )
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="as a page: of NAMEs, of all keys (configuration), of all commands (commands); without a NAME of all "
        "algorithms",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the names, or the options of those that are named; returns the exit status."""
    registry.import_plugins(arguments.imports)
    if arguments.markdown:
        # A page of the documentation.
        if arguments.names == ["configuration"]:
            page = reference_pages.configuration()
        elif arguments.names == ["commands"]:
            from arena.cli.main import command_parser

            page = reference_pages.commands(command_parser(complete=True))
        else:
            page = reference.page(reference.named(arguments.names or ["algorithms"]))
        say(page.removesuffix("\n"))
        return 0
    described = [reference.lines(name) for name in reference.named(arguments.names)]  # all, before any is printed
    say("\n".join(line for lines in described or [reference.listing()] for line in lines))
    return 0
