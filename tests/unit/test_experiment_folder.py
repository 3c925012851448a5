"""The folder of an experiment: which processes may be at work in it together, and what is on record of its trials."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from arena.errors import ConfigError
from arena.experiment.config import parse_experiment
from arena.experiment.driver import opened
from arena.experiment.folder import ExperimentFolder, StateLine, now, read_record, write_state
from arena.experiment.plan import ExperimentPlan, plan_experiment
from arena.experiment.scheduler import State
from arena.records.lock import RunLock
from experiment_folders import RUN, write_experiment


@pytest.fixture
def plan() -> ExperimentPlan:
    return plan_experiment(parse_experiment({"name": "sweep", "run": RUN, "repeat": 3}), examined=False)


def test_trials_alone_share_a_folder_and_keep_the_driver_of_all_from_it(plan: ExperimentPlan, tmp_path: Path) -> None:
    folder = ExperimentFolder(tmp_path / "e")
    with opened(plan, folder, resume=False, only=0), opened(plan, folder, resume=False, only=2):
        refuse(plan, folder, "another process runs this trial", only=2)
        refuse(plan, folder, "or several that share it", only=None)
    with opened(plan, folder, resume=True):
        refuse(plan, folder, f"process {os.getpid()} on host", only=0)
    with opened(plan, folder, resume=False, only=0):
        refuse(plan, folder, "another process runs this trial", only=0)


def refuse(plan: ExperimentPlan, folder: ExperimentFolder, words: str, *, only: int | None) -> None:
    with pytest.raises(ConfigError, match=words), opened(plan, folder, resume=True, only=only):
        pytest.fail("it was opened")


def test_trial_alone_is_let_into_a_folder_that_another_one_begins(plan: ExperimentPlan, tmp_path: Path) -> None:
    folder, other = ExperimentFolder(tmp_path / "e"), ExperimentFolder(tmp_path / "e")

    class Late(ExperimentFolder):
        """Looks at the folder when the other process has begun it, a moment ago."""

        @property
        def is_unbegun(self) -> bool:
            stack.enter_context(opened(plan, other, resume=False, only=1))
            return super().is_unbegun

    with ExitStack() as stack, opened(plan, Late(folder.path), resume=False, only=0):
        assert folder.config.is_file()


def test_experiment_goes_on_while_a_trial_alone_is_played(tmp_path: Path) -> None:
    folder = ExperimentFolder(write_experiment(tmp_path / "e", {"run": RUN, "repeat": 2}, lambda *_: 0.0, results=1))
    run = folder.run_folder(folder.read()[1])
    with RunLock.take(run.path):
        assert not folder.is_going_on, "that trial is over: another command goes on with its run"
        write_state(folder.state_path(1), [StateLine(now(), State.RUNNING)])
        assert folder.is_going_on
    assert not folder.is_going_on


def test_seconds_of_a_trial_are_those_of_its_attempts(tmp_path: Path) -> None:
    changes = [(0, State.PENDING), (5, State.RUNNING), (15, State.PENDING), (20, State.RUNNING), (30, State.PAUSED)]
    changes += [(500, State.RUNNING), (600, State.RUNNING), (603.5, State.TERMINATED)]  # a driver was killed after 500
    begun = datetime(2026, 1, 1, tzinfo=timezone.utc)
    lines = [
        StateLine((begun + timedelta(seconds=at)).isoformat(), state, digest="d", folder="f") for at, state in changes
    ]
    write_state(path := tmp_path / "0000.jsonl", lines)
    record = read_record(0, path)
    assert record is not None and record.seconds == 10 + 10 + 3.5
