"""The command line: `arena COMMAND ...`. Each command is a module of this package.

Exit codes: 0 done, 1 a run that failed, 2 a user's mistake, 130 Ctrl-C, 141 the reader of stdout closed the pipe.

A command's module is imported when the command is used: `arena --help` starts neither MPI nor torch.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from arena import __version__
from arena.cli.arguments import Parser
from arena.diagnostics.start_folder import started_here
from arena.errors import ConfigError, LinkError, Start, WriteError
from arena.registry import hidden_packages
from arena.roles.stop import number_of, restored_handlers
from arena.terminal.output import complain, complain_of, guarded_output, present_streams

_DESCRIPTION = "Many policies learning with and against each other, in many copies of many games, over MPI."
_EXIT_CODES = (
    "Exit codes: 0 done, 1 the run failed, 2 a mistake in the configuration or on the command line (the message begins "
    "with `arena: error:`, or follows the usage), 129 ended by SIGHUP, 130 by Ctrl-C (SIGINT), 143 by SIGTERM, 0 ended "
    "by SIGUSR1, 141 the reader of a command that only prints has closed the pipe. Under an mpirun or srun of your own "
    "the exit code is the launcher's."
)
_COMMANDS = {
    "new": "write a folder with a game, a configuration and a test to begin with",
    "example": "print a configuration that comes with the arena",
    "train": "run a configuration",
    "experiment": "run many configurations of one description, and rank them",
    "plan": "show which rank does what, without starting anything",
    "check": "validate a configuration, its environments and its algorithms, and play its first ticks",
    "evaluate": "play without learning",
    "play": "take a seat yourself, in the terminal",
    "tournament": "play without learning until the ranking is decided",
    "serve": "answer games that ask for actions",
    "fake": "a stand-in for one side of an external game, to test the other one",
    "inspect": "show a file that a simulator shares with the arena",
    "exploit": "how much can be won from a policy?",
    "replay": "play recorded episodes again",
    "export": "write a policy's network for other runtimes, verified and timed",
    "board": "runs, live, in a browser",
    "report": "make a page of a run",
    "standings": "show who is best in a run",
    "watch": "show how a run goes",
    "slurm": "write a batch file for SLURM",
    "doctor": "is this machine ready?",
    "completion": "a script that completes commands and options in a shell",
    "list": "the built-in environments, connections, wrappers, algorithms, generators of matches and rules, or options",
}
_SIGPIPE = 128 + 13  # as of a program that SIGPIPE ends


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; a usage error of argparse exits with 2 by itself.

    Signal handlers are restored afterwards. Outside of the main thread no signal ends a run gracefully.
    """
    present_streams()
    if argv is None:
        sys.excepthook = complain_of
    arguments = argparse.Namespace(plays=False)
    with started_here(), restored_handlers(), guarded_output(lasts=False):
        try:
            from arena.run import mpirun

            if not mpirun.under_launcher():  # once, not by every rank
                for line in hidden_packages():
                    complain(f"arena: warning: {line}\n")
            parser = command_parser()
            if not (sys.argv[1:] if argv is None else argv):
                parser.print_help(sys.stderr)
                return 2
            parser.parse_args(argv, arguments)
            with guarded_output(lasts=arguments.plays):
                mpirun.settle()  # before NumPy is imported: with --ranks 1 no launcher of ours has done so
                # So that a configuration can name a user's own `my_module:MyWorker`; also one that lies where only the
                # program that has started this process looks. Last, where it hides no other module.
                for folder in (Start.folder, *os.environ.get(mpirun.MODULES_VARIABLE, "").split(os.pathsep)):
                    if folder and folder not in sys.path:
                        sys.path.append(folder)
                status = int(arguments.command(arguments))
                sys.stdout.flush()  # here an error can still be reported
                return status
        except ConfigError as error:
            complain(f"arena: error: {error}\n")
            return 2
        except (LinkError, WriteError) as error:  # not `error:`, from which `arena train` would conclude exit code 2
            complain(f"arena: failed: {error}\n")
            return 1
        except BrokenPipeError:  # the reader, such as `head`, has seen enough
            if arguments.plays:
                raise  # not of stdout, which a command that plays does without
            return _SIGPIPE
        except KeyboardInterrupt as error:  # outside of a run, for instance while modules are imported
            return 128 + number_of(error)


class _CommandParser(Parser):
    """The parser of one command; the command's module is imported, and adds its arguments, at the first use."""

    def __init__(self, *, command: str, **settings: Any) -> None:
        super().__init__(**settings)
        self._command: str | None = command

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As of any parser."""
        self.fill()
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """As of any parser."""
        self.fill()
        return super().format_help()

    def fill(self) -> None:
        """Adds the command's arguments."""
        if self._command is not None:
            command, self._command = self._command, None
            import_module(f"arena.cli.{command}").add_arguments(self)


def command_parser(*, complete: bool = False) -> argparse.ArgumentParser:
    """The parser of the whole command line; complete: with the arguments of all commands, which imports them."""
    parser = Parser(prog="arena", description=_DESCRIPTION, epilog=_EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"arena {__version__}")
    # `plays`: whether the command goes on after the reader of its output has left.
    parser.set_defaults(plays=False)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_CommandParser)
    for name, help_line in _COMMANDS.items():
        command = commands.add_parser(name, help=help_line, command=name)
        if complete:
            command.fill()
    return parser
