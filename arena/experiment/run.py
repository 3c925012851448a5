"""Running an experiment from Python or the command line: its folder, its display, its driver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from arena.config.load import load_config
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.experiment.display import LiveExperimentDisplay, PlainExperimentDisplay, Progress, outcome_lines
from arena.experiment.driver import ExperimentDisplay
from arena.experiment.folder import ExperimentFolder, free_folder, newest_folder
from arena.experiment.plan import ExperimentPlan
from arena.experiment.tables import FollowedExperiment
from arena.run.status import planned_ticks

_LOOK_SECONDS = 1.0
_PATIENCE = 5  # looks: an experiment that has just begun has no trials yet
HOME = Path("experiments")
"""Where experiments get their folders."""


def place_of(plan: ExperimentPlan, run_dir: str | Path | None, *, resume: bool, shared: bool = False) -> Path:
    """The folder of an experiment: the one that was named, else `experiments/<name>`, or the newest one to go on with.

    Raises:
        ConfigError: there is nothing to go on with; or a shared folder has no name.
    """
    if run_dir is not None:
        return anchored(run_dir)
    place = anchored(HOME) / plan.file.config.name
    if shared:
        raise ConfigError("a trial alone needs the folder that it shares with the others", path="--run-dir")
    if not resume:
        return free_folder(place)
    found = newest_folder(place)
    if found is None:
        raise ConfigError(
            "there is no experiment to go on with; name its folder with --run-dir, or leave --resume out",
            source=str(place),
        )
    return found


def display_for(plan: ExperimentPlan, stream: IO[str], *, alone: bool = False) -> ExperimentDisplay:
    """The display that fits the stream: a live table on a terminal, else lines."""
    return _display(Progress(plan.ticks, 1 if alone else plan.number, plan.file.config.metric), stream)


def _display(progress: Progress, stream: IO[str], *, at_once: bool = False) -> ExperimentDisplay:
    if stream.isatty() and (columns := os.get_terminal_size(stream.fileno()).columns):
        return LiveExperimentDisplay(stream, progress, width=columns)
    return PlainExperimentDisplay(stream, progress, at_once=at_once)


def watch_experiment(path: str | Path, stream: IO[str], *, wait: Callable[[float], None] = time.sleep) -> int:
    """Shows an experiment from its files until no process writes into its folder; returns the exit status.

    Raises:
        ConfigError: this is not the folder of an experiment, or it is damaged.
    """
    folder = ExperimentFolder.existing(path)
    config = folder.read_config()
    followed = FollowedExperiment(folder, config)
    for _ in range(_PATIENCE):
        if folder.read():
            break
        wait(_LOOK_SECONDS)
    planned = min(folder.configs.glob("*.yaml"), default=None)
    ticks = None if planned is None else planned_ticks(load_config(planned))
    display = _display(Progress(ticks, 0, config.metric), stream, at_once=True)
    display.start()
    try:
        while True:
            going = folder.is_going_on  # first: the last look takes what was written last
            rows = followed.look()
            display.update(rows)
            if not going:
                break
            wait(_LOOK_SECONDS)
    finally:
        display.stop()
    display.message("\n".join(outcome_lines(rows, config.metric)))
    return 0
