"""`arena train`: runs a configuration. Rank 0's part is `TrainRun`, which the other ranks do not import."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from arena.cli.arguments import add_config, add_ranks, add_run
from arena.cli.start import Processes, start
from arena.errors import ConfigError
from arena.plan.hosts import parse_hosts

if TYPE_CHECKING:
    from arena.run.lead import RunCommand


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Under mpirun or srun: takes its roles in the run. Otherwise: starts mpirun itself with as many processes as "
        "--ranks or the configuration says; by default one for each core, at least 2, at most one for each role."
    )
    add_config(parser)
    add_run(parser, folder="runs/<name>, or the next free one; with --resume the newest")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoints of the run's folder")
    parser.add_argument(
        "--continue",
        dest="earlier",
        metavar="RUN",
        help="begin with the policies, snapshots and ratings of an earlier run",
    )
    add_ranks(parser)
    parser.add_argument(
        "--hosts",
        metavar="A:4,B:4",
        help="hosts, and the most processes of each (default: the allocation's)",
    )
    parser.set_defaults(command=run, plays=True)


def run(arguments: argparse.Namespace) -> int:
    """Takes this process's part in a run, or starts the run. Returns the exit status."""
    if arguments.earlier is not None and arguments.resume:
        raise ConfigError(
            "a run that continues another one is resumed from the configuration in its folder, as "
            "`arena train runs/new/config.yaml --resume --run-dir runs/new`",
            path="--continue",
        )
    if arguments.ticks is not None:
        arguments.overrides = [*arguments.overrides, f"ticks={arguments.ticks}"]

    def rank0() -> RunCommand:
        from arena.cli.train_run import TrainRun

        return TrainRun(arguments)

    def processes() -> Processes:
        hosts = () if arguments.hosts is None else parse_hosts(arguments.hosts)
        if arguments.ranks == 1:
            return Processes(1, hosts=hosts)
        from arena.config import load_with_origin
        from arena.plan.process_count import process_count
        from arena.run.planning import checked_plan

        config, origin = load_with_origin(arguments.config, arguments.overrides)
        with origin.located():  # a mistake is reported once, before any process starts
            number = process_count(config, arguments.ranks, os.environ, hosts=hosts).number
            plan = checked_plan(config, ranks=number)
        return Processes(plan.processes, config.restarts, config.scale, hosts)

    return start(rank0, processes)
