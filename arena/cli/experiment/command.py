"""What `arena experiment` does: plans the experiment, drives it in its folder, and prints the outcome."""

from __future__ import annotations

import argparse
import json
import os
import sys

from arena.cli.experiment.lines import check_alone, head_line, plan_lines, tell_failures
from arena.errors import shown
from arena.experiment.checks import FirstMistake
from arena.experiment.config import read_experiment
from arena.experiment.display import Progress, display_for, outcome_lines
from arena.experiment.driver import Driver, opened
from arena.experiment.folder import ExperimentFolder, place_of
from arena.experiment.plan import ExperimentPlan, plan_experiment, slots_for
from arena.experiment.tables import FollowedExperiment, outcome_data
from arena.terminal.output import complain, say


def planned(arguments: argparse.Namespace, first_mistake: FirstMistake) -> ExperimentPlan:
    """The checked experiment.

    Raises:
        ConfigError: a mistake of the user.
    """
    file = read_experiment(
        arguments.file, overrides=arguments.overrides, repeat=arguments.repeat, at_once=arguments.at_once
    )
    plan = plan_experiment(file, first_mistake)
    if arguments.trial is not None:
        check_alone(plan, arguments.trial)
    return plan


def drive(plan: ExperimentPlan, arguments: argparse.Namespace) -> int:
    """Shows the trials, or runs them; returns the exit status.

    Raises:
        ConfigError: a mistake of the user.
    """
    config, alone = plan.file.config, arguments.trial is not None
    slots = slots_for(plan, arguments.hosts, os.environ, alone=alone)
    if arguments.plan:
        say("\n".join(plan_lines(plan, slots)))
        return 0
    folder = ExperimentFolder(place_of(plan.file.config.name, arguments.run_dir, resume=arguments.resume, shared=alone))
    stream = sys.stderr if arguments.json else sys.stdout
    display = display_for(Progress(plan.ticks, 1 if alone else plan.number, config.metric), stream)
    with opened(plan, folder, resume=arguments.resume, only=arguments.trial):
        display.message(
            f"{config.name}: {head_line(plan, slots, only=arguments.trial)}\nexperiment folder: {shown(folder.path)}"
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
        rows = [row for row in FollowedExperiment(folder, config).look() if row.wanted]
    tell_failures(folder, rows)
    if arguments.json:
        say(json.dumps(outcome_data(folder, config, rows)))
    elif arguments.trial is None:
        say("\n".join(outcome_lines(rows, config.metric)))
    if status > 1 or driver.requeue.exists():
        again = "--resume" if arguments.trial is None else f"--trial {arguments.trial}"
        complain(f"arena: stopped; {again} --run-dir {shown(folder.path)} goes on\n")
    return status
