"""`arena experiment`: many runs of one description; which combination of values is the best?"""

from __future__ import annotations

import argparse

from arena.cli.arguments import add_overrides, non_negative_int, positive_int
from arena.errors import ConfigError
from arena.experiment.checks import checking
from arena.run import mpirun


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs every combination of the values of an experiment file, several at the same time, and ranks them. Each "
        "trial is an ordinary run, which `arena train` repeats from the configuration in the folder."
    )
    parser.add_argument("file", metavar="FILE", help="an experiment: a YAML file with the key `run`")
    parser.add_argument("--run-dir", metavar="DIR", help="its folder (default: experiments/<name>, or the next free)")
    add_overrides(parser, "over the file's `set`, in every trial; may be given many times")
    parser.add_argument("--repeat", type=positive_int, metavar="N", help="trials of each combination, over the file's")
    parser.add_argument("--at-once", type=positive_int, metavar="N", help="trials at the same time, at most")
    parser.add_argument("--hosts", metavar="A:4,B:4", help="hosts and how many processes each takes")
    parser.add_argument("--resume", action="store_true", help="go on with the experiment in the folder")
    parser.add_argument("--retry-errors", action="store_true", help="with --resume: try trials in error again")
    parser.add_argument("--plan", action="store_true", help="show the trials, and start nothing")
    parser.add_argument("--trial", type=non_negative_int, metavar="N", help="run this trial alone")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    parser.set_defaults(command=run, plays=True)


def run(arguments: argparse.Namespace) -> int:
    """Runs the experiment; returns the exit status."""
    if mpirun.under_launcher():
        raise ConfigError(
            "an experiment starts its runs itself, with as many processes as each takes; leave mpirun or srun out"
        )
    if arguments.retry_errors and not arguments.resume:
        raise ConfigError("goes with --resume", path="--retry-errors")
    with checking() as first_mistake:
        from arena.cli.experiment.command import drive, planned  # while the process of the check imports, too

        plan = planned(arguments, first_mistake)
    return drive(plan, arguments)
