"""`arena completion`: a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse

from arena.terminal.output import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = 'For bash: eval "$(arena completion bash)", or write the output to a file of completions.'
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"), metavar="SHELL", help="bash, zsh or tcsh")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the script; returns the exit status."""
    import shtab

    from arena.cli.main import command_parser

    say(shtab.complete(command_parser(complete=True), arguments.shell).rstrip())
    return 0
