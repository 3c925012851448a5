"""`arena watch`: shows how a run goes, by following the files of its folder."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from arena.experiment.folder import ExperimentFolder, is_experiment
from arena.records.folder import RunFolder, not_a_run
from arena.run.console import terminal_columns
from arena.terminal.output import say
from arena.terminal.watch import LOOK_EVERY, watch

_START_LOOKS = 60  # for a run whose processes are starting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's part of the command line."""
    parser.description = "Follows the files of a run until it ends; waits up to a minute for a run to begin."
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or of an experiment")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Follows the run, or the experiment; returns the exit status. Ctrl-C ends it, and does nothing to the run."""
    try:
        await_start(Path(arguments.run))
        if is_experiment(arguments.run):
            from arena.experiment.display import watch_experiment

            return watch_experiment(arguments.run, sys.stdout)
        return watch(arguments.run, columns=terminal_columns())
    except KeyboardInterrupt:
        return 0


def await_start(path: Path, *, wait: Callable[[float], None] = time.sleep) -> None:
    """Waits for the configuration of a run, which is written when all its processes are ready, or of an experiment.

    Args:
        path: of the folder.
        wait: for so many seconds.

    Raises:
        ConfigError: the folder holds something else, or nothing has begun in it for a minute.
    """
    folder, experiment = RunFolder(path), ExperimentFolder(path)
    for look in range(_START_LOOKS):
        may_begin = folder.may_be_starting or experiment.is_unbegun  # first: it may begin while this is read
        if folder.config.is_file() or is_experiment(path):
            return
        if not may_begin:
            raise not_a_run(path)
        if look == 0:
            say(f"{path}: no run or experiment has begun here yet; waiting for one, Ctrl-C ends it")
        wait(LOOK_EVERY)
    raise not_a_run(path, f" (nothing has begun in {_START_LOOKS * LOOK_EVERY:.0f} s)")
