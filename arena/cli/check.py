"""`arena check`: validates a configuration, its environments and its algorithms."""

from __future__ import annotations

import argparse
import os

from arena.cli.arguments import add_config
from arena.config import load_with_origin
from arena.plan.build import make_plan
from arena.plan.deadlock import waiting_text
from arena.plan.process_count import process_count
from arena.preflight.outcomes import rule_lines
from arena.run.api import preflight
from arena.terminal.display import processes_text
from arena.terminal.output import say
from arena.terminal.rounds import gate_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what was checked; returns the exit status."""
    config, origin = load_with_origin(arguments.config, arguments.overrides)
    with origin.located():
        plan = make_plan(config, ranks=process_count(config, None, os.environ).number)
        findings = preflight(plan, config, conformance=True)
    waiting, refused = waiting_text(plan, findings.schedules)
    for line in (
        *findings.lines,
        *findings.hints.values(),
        *rule_lines(plan),
        *gate_lines(config),
        f"schedule: {waiting}",
    ):
        say(line)
    say(f"plan: {processes_text(plan.processes, len(plan.roles()))}")
    but = "; `arena train` refuses it, as it can deadlock" if refused else ""
    say(f"configuration {arguments.config}: valid{but}")
    return 0
