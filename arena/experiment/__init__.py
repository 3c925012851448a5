"""Experiments: many runs of one description, several at the same time; which combination of values is the best?

    config, variation, trials    the file; the values that vary; the trials made of them, and their digests
    plan, checks                 all trials checked before anything starts
    scheduler, slots             which trial runs when and where: pure, events in, instructions out
    searching                    random search; Optuna's samplers and pruners by ask and tell
    folder, values, tables       the files of an experiment, and what trials have reached
    outcome                      combinations ranked, with intervals and paired comparisons
    driver, process              starts `arena train` for each trial, follows it, and survives being killed
    display, page                the console, and the page of `arena report`
    experiment                   experiments in Python

An experiment writes configurations, starts `arena train`, and reads the run folders; nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.experiment.experiment import Experiment, Outcome, Trial, open_experiment, run_experiments
from arena.experiment.outcome import Combination

__all__ = ["Combination", "Experiment", "Outcome", "Trial", "open_experiment", "run_experiments"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("arena.experiment.experiment"), name)
