"""The folder of an experiment: concurrent processes in it, and the records of its trials."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from arena.cli.watch import await_start
from arena.config.yaml import dump
from arena.errors import ConfigError
from arena.experiment import display, driver, open_experiment
from arena.experiment.config import parse_experiment
from arena.experiment.display import PlainExperimentDisplay, Progress, watch_experiment
from arena.experiment.driver import Driver, opened
from arena.experiment.folder import ExperimentFolder, StateLine, now, read_record, trial_lock, write_state
from arena.experiment.page import page_data
from arena.experiment.plan import ExperimentPlan, plan_experiment
from arena.experiment.scheduler import State
from arena.experiment.slots import Slots
from arena.experiment.tables import FollowedExperiment
from arena.plan.hosts import Host
from arena.records.lock import RunLock
from experiment_folders import RATE, RUN, write_experiment


@pytest.fixture
def plan() -> ExperimentPlan:
    return plan_experiment(parse_experiment({"name": "sweep", "run": RUN, "repeat": 3}))


def test_single_trials_share_a_folder_and_lock_out_the_driver(plan: ExperimentPlan, tmp_path: Path) -> None:
    folder = ExperimentFolder(tmp_path / "e")
    with opened(plan, folder, resume=False, only=0), opened(plan, folder, resume=False, only=2):
        refuse(plan, folder, "another process runs this trial", only=2)
        refuse(plan, folder, "such as a trial of an experiment that is run alone", only=None)
    with opened(plan, folder, resume=True):
        refuse(plan, folder, f"process {os.getpid()} on host", only=0)
    with opened(plan, folder, resume=False, only=0):
        refuse(plan, folder, "another process runs this trial", only=0)


def refuse(plan: ExperimentPlan, folder: ExperimentFolder, words: str, *, only: int | None) -> None:
    with pytest.raises(ConfigError, match=words), opened(plan, folder, resume=True, only=only):
        pytest.fail("it was opened")


def test_single_trial_may_join_a_folder_that_is_being_created(plan: ExperimentPlan, tmp_path: Path) -> None:
    folder, other = ExperimentFolder(tmp_path / "e"), ExperimentFolder(tmp_path / "e")

    class Late(ExperimentFolder):
        """Checks the folder just after the other process has begun it."""

        @property
        def is_unbegun(self) -> bool:
            stack.enter_context(opened(plan, other, resume=False, only=1))
            return super().is_unbegun

    with ExitStack() as stack, opened(plan, Late(folder.path), resume=False, only=0):
        assert folder.config.is_file()


def test_experiment_is_running_while_a_single_trial_is_played(tmp_path: Path) -> None:
    folder = ExperimentFolder(write_experiment(tmp_path / "e", {"run": RUN, "repeat": 2}, lambda *_: 0.0, results=1))
    path = folder.state_path(1)
    write_state(path, [StateLine(now(), State.RUNNING)])
    assert not folder.is_going_on, "its process was killed"
    with trial_lock(path):
        assert folder.is_going_on, "also before its run holds the lock of the run folder"
        write_state(path, [StateLine(now(), State.PENDING)])
        assert folder.is_going_on, "also between two attempts"
        write_state(path, [StateLine(now(), State.TERMINATED)])
        assert not folder.is_going_on, "it is over"


def test_trial_seconds_exclude_time_without_a_driver(tmp_path: Path) -> None:
    """Three days pass between the death of a driver and the start of the next, which finds the trial ended."""
    changes = [(0, State.RUNNING, None), (10, State.PENDING, 9.5), (15, State.RUNNING, None), (40, State.PAUSED, 25.0)]
    changes += [(50, State.RUNNING, None), (259_200, State.TERMINATED, None)]
    begun = datetime(2026, 1, 1, tzinfo=timezone.utc)
    lines = [
        StateLine((begun + timedelta(seconds=at)).isoformat(), state, seconds=seconds, digest="d", folder="f")
        for at, state, seconds in changes
    ]
    write_state(path := tmp_path / "0000.jsonl", lines)
    record = read_record(0, path)
    assert record is not None and record.seconds == 9.5 + 25


def test_failing_driver_leaves_no_process_of_a_trial(plan: ExperimentPlan, tmp_path: Path) -> None:
    class Broken(PlainExperimentDisplay):
        """Fails as soon as a trial has started."""

        def message(self, text: str) -> None:
            raise RuntimeError(text)

    folder, broken = ExperimentFolder(tmp_path / "e"), Broken(io.StringIO(), Progress(10, 3, plan.file.config.metric))
    with opened(plan, folder, resume=False), pytest.raises(RuntimeError, match="started on here"):
        Driver(plan, folder, Slots([Host("here", 1)]), broken).run()
    (started,) = [record.last.pid for record in folder.read() if record.state is State.RUNNING]
    assert not Path(f"/proc/{started}").exists(), "it was killed and reaped"


def test_trials_of_variants_get_processes_by_their_own_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Over:
        """The process of a trial that has ended as soon as it has started."""

        pid, exit, seconds = 0, 0, 0.0

        def __init__(self, arguments: Sequence[str], log: Path, *, devices: Sequence[str] | None = None) -> None:
            started.append((log.stem, next(each for each in arguments if each.startswith("--ranks="))))

    monkeypatch.setattr(driver, "TrialProcess", Over)
    variants = {
        "duel": {"set": {}},
        "duels": {"set": {"matches[0].copies": 3}},
        "two": {"set": {"matches[0].copies": 2}},
    }
    plan = plan_experiment(parse_experiment({"run": RUN, "variants": variants}))
    folder, shown = ExperimentFolder(tmp_path / "e"), Progress(10, 3, plan.file.config.metric)
    with opened(plan, folder, resume=False):
        status = Driver(plan, folder, Slots([Host("here", 24)]), PlainExperimentDisplay(io.StringIO(), shown)).run()
    assert status == 0
    # Their roles: 4, 10 and 7; a third of the slots: 8.
    assert started == [("0000", "--ranks=4"), ("0001", "--ranks=8"), ("0002", "--ranks=7")]


@pytest.mark.parametrize(
    ("kind", "keys", "number", "asked_in", "status"),
    [
        ("tpe", {}, signal.SIGINT, 1, 130),
        ("qmc", {}, signal.SIGTERM, 1, 143),
        ("gp", {}, signal.SIGINT, 1, 130),
        ("tpe", {"repeat": 2}, signal.SIGINT, 1, 130),
        ("tpe", {"prune": {"median": {}}}, signal.SIGTERM, 1, 143),
        ("qmc", {}, signal.SIGUSR1, 1, 0),
        ("qmc", {}, signal.SIGINT, 3, 0),
        ("random", {}, signal.SIGINT, 1, 130),
    ],
)
def test_suggestions_that_are_not_made_yet_are_left_after_a_signal(
    kind: str,
    keys: dict[str, Any],
    number: signal.Signals,
    asked_in: int,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trial that runs is asked to end when it has no ticks left; in the last trial nothing is left."""
    repeat = keys.get("repeat", 1)

    class AtItsEnd:
        """The process of a trial that comes to its end; with one of them comes the signal."""

        pid, exit, seconds = os.getpid(), 0, 0.0

        def __init__(self, arguments: Sequence[str], log: Path, *, devices: Sequence[str] | None = None) -> None:
            if int(log.stem) == asked_in:
                signal.raise_signal(number)

        def ask(self) -> None:
            """Does nothing: it is over."""

    monkeypatch.setattr(driver, "TrialProcess", AtItsEnd)
    data = {"run": RUN, "set": {RATE: {"loguniform": [1e-4, 1e-2]}}, "at_once": 1, **keys}
    plan = plan_experiment(parse_experiment({**data, "search": {kind: {"trials": 4 // repeat}}}))

    def status_of(*, resume: bool) -> int:
        shown = PlainExperimentDisplay(io.StringIO(), Progress(10, 4, plan.file.config.metric))
        with opened(plan, folder, resume=resume):
            return Driver(plan, folder, Slots([Host("here", 1)]), shown).run()

    folder = ExperimentFolder(tmp_path / "e")
    assert status_of(resume=False) == status
    assert folder.requeue.exists() == (number is signal.SIGUSR1), "a mark for the queue"
    assert [record.state for record in folder.read()].count(State.TERMINATED) == asked_in + 1
    assert status_of(resume=True) == 0
    assert [record.state for record in folder.read()] == [State.TERMINATED] * 4


def test_trials_that_the_file_no_longer_has_are_counted_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AtItsEnd:
        """The process of a trial that comes to its end; with the fourth one comes Ctrl-C."""

        pid, exit, seconds = os.getpid(), 0, 2.0

        def __init__(self, arguments: Sequence[str], log: Path, *, devices: Sequence[str] | None = None) -> None:
            if log.stem == "0003":
                signal.raise_signal(signal.SIGINT)

        def ask(self) -> None:
            """Does nothing: it is over."""

    monkeypatch.setattr(driver, "TrialProcess", AtItsEnd)
    folder = ExperimentFolder(tmp_path / "e")
    for trials, status in (12, 130), (6, 0):
        data = {"run": RUN, "set": {RATE: {"loguniform": [1e-4, 1e-2]}}, "search": {"random": {"trials": trials}}}
        plan = plan_experiment(parse_experiment(data))
        shown = PlainExperimentDisplay(io.StringIO(), Progress(10, trials, plan.file.config.metric))
        with opened(plan, folder, resume=trials == 6):
            assert Driver(plan, folder, Slots([Host("here", 1)]), shown).run() == status
    assert len(folder.read()) == 12, "they stay on the disk"
    followed = FollowedExperiment(folder, folder.read_config())
    rows, wanted = followed.look(), [*range(6)]
    assert [row.number for row in rows] == wanted
    data = page_data(folder, followed, rows)
    assert ([row.number for row in data.trials], data.states) == (wanted, {"terminated": 6})
    outcome = open_experiment(folder.path)
    assert [row["number"] for row in outcome.rows()] == [*outcome.trials] == wanted
    assert [trial["number"] for trial in outcome.data()["trials"]] == wanted
    assert [line.partition(",")[0] for line in folder.table.read_text().splitlines()[1:]] == [*map(str, wanted)]
    watch_experiment(folder.path, seen := io.StringIO())
    assert seen.getvalue().startswith("6 terminated\n") and "pending" not in seen.getvalue()


def test_watching_may_begin_before_the_experiment(tmp_path: Path) -> None:
    path, shown = tmp_path / "e", io.StringIO()
    data = {"run": RUN}
    steps = [
        ExperimentFolder(path).make,
        lambda: ExperimentFolder(path).write_config(dump(data)),
        lambda: write_experiment(path, data, lambda *_: 0.0, results=1, errors=False),
    ]
    await_start(path, wait=lambda _: steps.pop(0)())
    assert len(steps) == 1
    watch_experiment(path, shown, wait=lambda _: steps.pop(0)())  # no trial has begun yet
    assert shown.getvalue().startswith("1 terminated; best so far: ")


def test_watching_drops_trials_that_are_no_longer_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LINE_EVERY", 0.0)  # a line at every check
    path = write_experiment(tmp_path / "e", {"run": RUN, "repeat": 3}, lambda *_: 0.0, results=1, errors=False)
    folder, shown = ExperimentFolder(path), io.StringIO()
    driver = RunLock.take(path)

    def change(_: float) -> None:
        write_state(folder.state_path(2), [StateLine(now(), State.TERMINATED, wanted=False)])
        driver.release()

    watch_experiment(path, shown, wait=change)
    assert [line.partition(";")[0] for line in shown.getvalue().splitlines()[:2]] == ["3 terminated", "2 terminated"]
