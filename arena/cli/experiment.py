"""`arena experiment`: many runs of one description; which combination of values is the best?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from arena.cli.arguments import non_negative_int, positive_int
from arena.errors import ConfigError, pluralize
from arena.experiment.config import read_experiment
from arena.experiment.display import outcome_lines
from arena.experiment.driver import Driver, opened
from arena.experiment.folder import ExperimentFolder
from arena.experiment.plan import ExperimentPlan, plan_experiment, slots_for
from arena.experiment.process import last_lines
from arena.experiment.run import display_for, place_of
from arena.experiment.scheduler import State
from arena.experiment.slots import Slots
from arena.experiment.tables import outcome_data, read_rows
from arena.experiment.values import TrialRow
from arena.launch import mpirun
from arena.terminal.output import complain, say

_LOG_LINES = 5  # of a trial that has failed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.description = (
        "Runs every combination of the values of an experiment file, several at the same time, and ranks them. Each "
        "trial is an ordinary run: `arena train configs/NNNN.yaml` of its folder gives the same bytes."
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
    slots = slots_for(plan, arguments.hosts, os.environ)
    if arguments.trial is not None:
        check_alone(plan, arguments.trial)
    if arguments.plan:
        say("\n".join(plan_lines(plan, slots)))
        return 0
    folder = ExperimentFolder(
        place_of(plan, arguments.run_dir, resume=arguments.resume, shared=arguments.trial is not None)
    )
    stream = sys.stderr if arguments.json else sys.stdout
    display = display_for(plan, stream)
    with opened(plan, folder, resume=arguments.resume, shared=arguments.trial is not None):
        display.message(
            f"{plan.file.config.name}: {'; '.join(head_lines(plan, slots))}\nexperiment folder: {folder.path}"
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
    _tell_failures(folder, rows)
    if arguments.json:
        say(json.dumps(outcome_data(folder, file.config, rows)))
    elif arguments.trial is None:
        say("\n".join(outcome_lines(rows, file.config.metric)))
    if status > 1 or folder.requeue.exists():
        complain(f"arena: stopped; --resume --run-dir {folder.path} goes on\n")
    return status


def check_alone(plan: ExperimentPlan, trial: int) -> None:
    """Refuses `--trial N` where the experiment has no such trial, or no trial of its own.

    Raises:
        ConfigError: trials depend on each other, or there are fewer.
    """
    config = plan.file.config
    if config.prune is not None or (plan.search is not None and plan.search.adaptive):
        key = "prune" if config.prune is not None else "search"
        raise ConfigError(f"a trial depends on the others, by `{key}`; leave --trial out", path="--trial")
    if trial >= plan.number:
        raise ConfigError(
            f"got {trial}; the experiment has the trials 0 to {plan.number - 1}",
            path="--trial",
            source=plan.file.source,
        )


def head_lines(plan: ExperimentPlan, slots: Slots) -> list[str]:
    """How many trials there are, with how many processes each, and how many run at the same time here."""
    processes = plan.processes(slots.total)
    together = max(1, min(slots.total // processes, plan.number, plan.file.config.at_once or plan.number))
    hosts = "" if len(slots.hosts) == 1 else f" on {len(slots.hosts)} hosts"
    each = pluralize(processes, "process", "processes")
    return [f"{pluralize(plan.number, 'trial')} of {each}, {together} at the same time{hosts}"]


def plan_lines(plan: ExperimentPlan, slots: Slots) -> list[str]:
    """The trials: number, what varies and seed; and how many run at the same time here."""
    lines = [f"{plan.file.config.name}: {head_lines(plan, slots)[0]}"]
    processes = plan.processes(slots.total)
    width = len(str(max(plan.number - 1, 0)))
    for number, trial in enumerate(plan.known):
        words = plan.trials.words(trial.variant, trial.params).replace(",", " ")
        count = pluralize(min(processes, trial.roles), "process", "processes")
        lines.append(f"{number:{max(4, width)}}  {'  '.join(filter(None, [words, f'seed={trial.seed}', count]))}")
    if plan.search is not None and plan.search.adaptive:
        varied = ", ".join(plan.trials.labels.values())
        lines.append(f"{plan.search.kind} suggests {varied} from what earlier trials have reached")
    return lines


def _tell_failures(folder: ExperimentFolder, rows: Sequence[TrialRow]) -> None:
    """Shows the last lines of each trial in error, and where its log is."""
    for row in rows:
        if row.state == State.ERROR.value:
            log = folder.log_path(row.number)
            lines = "".join(f"    {line}\n" for line in last_lines(log, _LOG_LINES))
            tried = pluralize(row.attempts, "attempt")
            complain(f"trial {Path(row.folder).name}: error after {tried}: {row.why}; its log: {log}\n{lines}")
