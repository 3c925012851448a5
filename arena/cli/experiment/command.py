"""What `arena experiment` does: plans the experiment, drives it in its folder, and prints the outcome."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from arena.errors import ConfigError, pluralize, shown
from arena.experiment.checks import FirstMistake
from arena.experiment.config import read_experiment
from arena.experiment.display import Progress, display_for, outcome_lines
from arena.experiment.driver import Driver, opened
from arena.experiment.folder import ExperimentFolder, place_of
from arena.experiment.plan import ExperimentPlan, plan_experiment, slots_for
from arena.experiment.process import last_lines
from arena.experiment.scheduler import State
from arena.experiment.slots import Slots
from arena.experiment.tables import FollowedExperiment, outcome_data
from arena.terminal.output import complain, say

_LOG_LINES = 5  # of a trial that has failed


def planned(arguments: argparse.Namespace, first_mistake: FirstMistake) -> ExperimentPlan:
    """The checked experiment."""
    file = read_experiment(
        arguments.file, overrides=arguments.overrides, repeat=arguments.repeat, at_once=arguments.at_once
    )
    plan = plan_experiment(file, first_mistake)
    if arguments.trial is not None:
        check_alone(plan, arguments.trial)
    return plan


def drive(plan: ExperimentPlan, arguments: argparse.Namespace) -> int:
    """Shows the trials, or runs them; returns the exit status."""
    config, alone = plan.file.config, arguments.trial is not None
    slots = slots_for(plan, arguments.hosts, os.environ, alone=alone)
    if arguments.plan:
        width = max(4, len(str(max(plan.number - 1, 0))))
        lines = [f"{config.name}: {_head_line(plan, slots)}"]
        for number, trial in enumerate(plan.known):
            text = plan.trials.text(trial.variant, trial.params).replace(",", " ")
            seed = "" if "seed" in trial.params else f"seed={trial.seed}"
            count = pluralize(plan.processes(slots, roles=trial.roles), "process", "processes")
            lines.append(f"{number:{width}}  {'  '.join(filter(None, [text, seed, count]))}")
        if plan.search is not None and plan.search.adaptive:
            varied = ", ".join(plan.trials.labels.values())
            lines.append(f"{plan.search.kind} suggests {varied} from what earlier trials have reached")
        say("\n".join(lines))
        return 0
    folder = ExperimentFolder(place_of(plan.file.config.name, arguments.run_dir, resume=arguments.resume, shared=alone))
    stream = sys.stderr if arguments.json else sys.stdout
    display = display_for(Progress(plan.ticks, 1 if alone else plan.number, config.metric), stream)
    with opened(plan, folder, resume=arguments.resume, only=arguments.trial):
        display.message(
            f"{config.name}: {_head_line(plan, slots, only=arguments.trial)}\nexperiment folder: {shown(folder.path)}"
        )
        driver = Driver(
            plan,
            folder,
            slots,
            display,
            names_hosts=not slots.crowding,
            retry_errors=arguments.retry_errors,
            only=arguments.trial,
        )
        status = driver.run()
        rows = FollowedExperiment(folder, config).look()
    for row in rows:
        if row.state == State.ERROR.value:
            log = folder.log_path(row.number)
            last = "".join(f"    {line}\n" for line in last_lines(log, _LOG_LINES))
            tried = pluralize(row.attempts, "attempt")
            complain(f"trial {Path(row.folder).name}: error after {tried}: {row.why}; its log: {log}\n{last}")
    if arguments.json:
        say(json.dumps(outcome_data(folder, config, rows)))
    elif arguments.trial is None:
        say("\n".join(outcome_lines(rows, config.metric)))
    if status > 1 or driver.requeue.exists():
        again = "--resume" if arguments.trial is None else f"--trial {arguments.trial}"
        complain(f"arena: stopped; {again} --run-dir {shown(folder.path)} goes on\n")
    return status


def _head_line(plan: ExperimentPlan, slots: Slots, *, only: int | None = None) -> str:
    """How many trials there are, with how many processes each, and how many run together; or of trial `only`."""
    hosts = "" if len(slots.hosts) == 1 else f" on {len(slots.hosts)} hosts"
    if only is not None:
        processes = plan.processes(slots, roles=plan.known[only].roles, alone=True)
        each = pluralize(processes, "process", "processes")
        return f"trial {only} of {pluralize(plan.number, 'trial')}, {each}{hosts}"
    each = pluralize(plan.processes(slots), "process", "processes")
    at_once, wanted, gpus = plan.at_once(slots), min(plan.number, plan.file.config.at_once or 0), plan.file.config.gpus
    limit = pluralize(slots.total, "core" if slots.crowding else "slot") + (f", gpus: {gpus:g}" if gpus else "")
    less = f" (not {wanted}: {limit})" if at_once < wanted else ""
    line = f"{pluralize(plan.number, 'trial')} of {each}, {at_once} at the same time{less}{hosts}"
    return f"{line}\n{plan.never_prunes}" if plan.never_prunes else line


def check_alone(plan: ExperimentPlan, trial: int, *, option: str = "--trial") -> None:
    """Refuses `--trial N` where the experiment has no such trial, or no trial of its own."""
    config = plan.file.config
    if config.prune is not None or (plan.search is not None and plan.search.adaptive):
        key = "prune" if config.prune is not None else "search"
        raise ConfigError(f"a trial depends on the others, by `{key}`; leave {option} out", path=option)
    if trial >= plan.number:
        raise ConfigError(
            f"got {trial}; the experiment has the trials 0 to {plan.number - 1}",
            path="--trial",
            source=plan.file.source,
        )
