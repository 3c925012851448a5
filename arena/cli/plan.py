"""`arena plan`: which rank does what, without starting anything."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from arena.cli.arguments import add_config, add_ranks
from arena.config import Config, load_with_origin
from arena.errors import ConfigError, Origin
from arena.league.custom import check_custom
from arena.plan.build import make_plan
from arena.plan.hosts import Host, allocated, parse_hosts, shares
from arena.plan.plan import Plan
from arena.plan.process_count import process_count
from arena.preflight.examine import Preflight, examine
from arena.preflight.external import external_kinds
from arena.preflight.later_seats import later_plans
from arena.preflight.outcomes import require_rules
from arena.records.formats import document_text, plan_file
from arena.terminal.output import say
from arena.terminal.plan import dot, host_line, plan_text
from arena.terminal.rounds import rounds_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    add_config(parser)
    add_ranks(parser)
    parser.add_argument(
        "--hosts", metavar="A:4,B:4", help="hosts and how many processes each takes (default: those of the allocation)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--dot", action="store_true", help="as a drawing for Graphviz")
    form.add_argument(
        "--probe", action="store_true", help="play the first match for two seconds, and predict memory and ticks/s"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the plan; returns the exit status."""
    config, origin = load_with_origin(arguments.config, arguments.overrides)
    hosts = () if arguments.hosts is None else parse_hosts(arguments.hosts)
    count = process_count(config, arguments.ranks, os.environ, hosts=hosts)
    with origin.located():
        plan = make_plan(config, ranks=count.number)
    rounds = rounds_lines(config)
    findings = preflight(plan, config, origin)
    host_lines = _host_lines(plan, hosts)
    if arguments.json:
        say(document_text(plan_file(plan, external_kinds(plan))))
    elif arguments.dot:
        say(dot(plan, rounds=rounds))
    else:
        text = plan_text(
            plan,
            findings,
            config=arguments.config,
            arguments=[
                *(part for text in arguments.overrides for part in ("--set", text)),
                *(("--hosts", arguments.hosts) if hosts else ()),
            ],
            hosts=host_lines,
            rounds=rounds,
            evaluation=config.evaluation,
            ranks=count.words,
        )
        say(text)
    if arguments.probe:
        from arena.cli.probe import probe, probe_text

        say(f"\n{probe_text(plan, probe(plan))}")
    return 0


def preflight(
    plan: Plan, config: Config, origin: Origin, *, conformance: Callable[[str], None] | None = None
) -> Preflight:
    """Checks that every policy can fill all seats that it may ever get.

    Args:
        plan: of the first round.
        config: of the run.
        origin: where it comes from.
        conformance: see `examine`.

    Raises:
        ConfigError: some policy cannot.
    """
    with origin.located():
        check_custom(config)
        later = later_plans(config)
        found = examine(plan, later=later, conformance=conformance)
        require_rules(config, plan, *later)
        return found


def _host_lines(plan: Plan, given: Sequence[Host]) -> Sequence[str]:
    """One line for each host that the user names or SLURM has allocated; none if there are neither."""
    hosts = given or allocated(os.environ)
    try:
        return [host_line(plan, share) for share in shares(hosts, plan.processes)] if hosts else []
    except ConfigError as error:
        if given:
            raise
        return [f"this allocation: {error.message}"]
