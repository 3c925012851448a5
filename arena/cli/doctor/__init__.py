"""`arena doctor`: what a run needs of its machine, tried out for real, a line for each thing.

    finding     the result of a check; runs a command with a time limit
    software    Python and the packages, torch, its threads and the GPUs that it sees
    mpi         library and launcher: do they start processes, does a run survive the death of one
    memory      what the processes of a node share, and limits
    storage     the place of the run folders: writing, locks, space, clocks
    hosts       other hosts, with `--hosts`: environment, folder, clock, and how long messages take

Nothing here imports torch or starts MPI in this process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator

from arena.cli.doctor import memory, mpi, software, storage
from arena.cli.doctor.finding import Finding, Level, problem
from arena.cli.doctor.hosts import examine_hosts
from arena.errors import ConfigError
from arena.plan.hosts import parse_hosts
from arena.terminal.output import say

CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    *(software.python, software.packages, software.installed_packages),
    *(mpi.library, mpi.launcher, mpi.processes),
    *(
        memory.shared,
        memory.segments,
        memory.simulator_links,
        memory.leftovers,
        memory.handles,
        memory.limit,
        memory.open_files,
    ),
    *(storage.writing, storage.space, storage.clocks),
    *(software.torch, software.gpu),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Looks at Python, MPI, memory, disk, clock and torch; takes some seconds. Exit code 1: there is a problem."
    )
    parser.add_argument("--hosts", metavar="A,B", help="also looks at these hosts, from this one")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what every check finds; returns the exit status."""
    named = () if arguments.hosts is None else parse_hosts(arguments.hosts)

    def other_hosts() -> Iterable[Finding]:
        return examine_hosts(named) if named else ()

    findings = []
    for finding in examine_machine((*CHECKS, other_hosts)):
        findings.append(finding)
        if not arguments.json:
            say(finding.line)
    if arguments.json:
        say(json.dumps([finding._asdict() for finding in findings], indent=2))
    return 1 if any(finding.level is Level.PROBLEM for finding in findings) else 0


def examine_machine(checks: Iterable[Callable[[], Iterable[Finding]]] = CHECKS) -> Iterator[Finding]:
    """What every check finds, as soon as it is known; a check that fails is a finding too."""
    for check in checks:
        try:
            yield from check()
        except (ImportError, OSError, ValueError, subprocess.SubprocessError, ConfigError) as error:
            subject = check.__name__.replace("_", " ")
            yield problem(subject, f"could not be looked at: {type(error).__name__}: {error}")
