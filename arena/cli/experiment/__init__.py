"""`arena experiment`: many runs of one description; which combination of values is the best?"""

from __future__ import annotations

import argparse
import json
import os
import sys

from arena.cli.arguments import non_negative_int, positive_int
from arena.cli.experiment.lines import check_alone, head_line, plan_lines, tell_failures
from arena.errors import ConfigError
from arena.experiment.config import read_experiment
from arena.experiment.display import outcome_lines
from arena.experiment.driver import Driver, opened
from arena.experiment.folder import ExperimentFolder
from arena.experiment.plan import plan_experiment, slots_for
from arena.experiment.run import display_for, place_of
from arena.experiment.tables import outcome_data, read_rows
from arena.launch import mpirun
from arena.terminal.output import complain, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.description = (
        "Runs every combination of the values of an experiment file, several at the same time, and ranks them. Each "
        "trial is an ordinary run, which `arena train` repeats from the configuration in the folder."
    )
    parser.add_argument("file", metavar="FILE", help="an experiment: a YAML file with the key `run`")
    parser.add_argument("--run-dir", metavar="DIR", help="its folder (default: experiments/<name>, or the next free)")
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY.PATH=VALUE",
        help="over the file's `set`, in every trial; may be given many times",
    )
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
    """Runs the experiment; returns the exit status.

    Raises:
        ConfigError: a mistake of the user.
    """
    if mpirun.under_launcher():
        raise ConfigError(
            "an experiment starts its runs itself, with as many processes as each takes; leave mpirun or srun out"
        )
    if arguments.retry_errors and not arguments.resume:
        raise ConfigError("goes with --resume", path="--retry-errors")
    file = read_experiment(
        arguments.file, overrides=arguments.overrides, repeat=arguments.repeat, at_once=arguments.at_once
    )
    plan = plan_experiment(file)
    alone = arguments.trial is not None
    slots = slots_for(plan, arguments.hosts, os.environ, alone=alone)
    if alone:
        check_alone(plan, arguments.trial)
    if arguments.plan:
        say("\n".join(plan_lines(plan, slots)))
        return 0
    folder = ExperimentFolder(place_of(plan, arguments.run_dir, resume=arguments.resume, shared=alone))
    stream = sys.stderr if arguments.json else sys.stdout
    display = display_for(plan, stream, alone=alone)
    with opened(plan, folder, resume=arguments.resume, only=arguments.trial):
        display.message(
            f"{plan.file.config.name}: {head_line(plan, slots, only=arguments.trial)}\nexperiment folder: {folder.path}"
        )
        driver = Driver(
            plan,
            folder,
            slots,
            display,
            hosts_given=not slots.crowding,
            retry_errors=arguments.retry_errors,
            only=arguments.trial,
        )
        status = driver.run()
        rows = [row for row in read_rows(folder, file.config) if row.wanted]
    tell_failures(folder, rows)
    if arguments.json:
        say(json.dumps(outcome_data(folder, file.config, rows)))
    elif arguments.trial is None:
        say("\n".join(outcome_lines(rows, file.config.metric)))
    if status > 1 or driver.requeue.exists():
        again = "--resume" if arguments.trial is None else f"--trial {arguments.trial}"
        complain(f"arena: stopped; {again} --run-dir {folder.path} goes on\n")
    return status
