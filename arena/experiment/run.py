"""Running an experiment from Python or the command line: its folder, its display, its driver."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from arena.errors import ConfigError
from arena.experiment.display import LiveExperimentDisplay, PlainExperimentDisplay, Progress
from arena.experiment.driver import ExperimentDisplay
from arena.experiment.folder import free_folder, newest_folder
from arena.experiment.plan import ExperimentPlan
from arena.launch.console import terminal_columns

HOME = Path("experiments")
"""Where experiments get their folders."""


def place_of(plan: ExperimentPlan, run_dir: str | Path | None, *, resume: bool, shared: bool = False) -> Path:
    """The folder of an experiment: the one that was named, else `experiments/<name>`, or the newest one to go on with.

    Args:
        plan: of the experiment.
        run_dir: as the user gave it.
        resume: go on with an experiment.
        shared: run a trial in a folder that others may use too.

    Raises:
        ConfigError: there is nothing to go on with; or a shared folder has no name.
    """
    if run_dir is not None:
        return Path(run_dir)
    place = HOME / plan.file.config.name
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


def display_for(plan: ExperimentPlan, stream: IO[str]) -> ExperimentDisplay:
    """The display that fits the stream: a live table on a terminal, else lines."""
    progress = Progress(plan.ticks, plan.number, plan.file.config.metric)
    columns = terminal_columns() if stream.isatty() else 0
    if columns:
        return LiveExperimentDisplay(stream, progress, width=columns)
    return PlainExperimentDisplay(stream, progress)
