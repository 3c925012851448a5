"""Experiments with real processes: killed at any moment and resumed, with trials that fail, asked to end, alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.experiment import Experiment, open_experiment, run_experiments
from arena.experiment.folder import ExperimentFolder
from arena.records.journal import JournalReader
from arena.records.result_file import CLOCK_KEYS
from run_cli import ARENA, alone, environment, finish, has_played, living, start, wait_for
from run_cli import left_by as run_left_by
from working_folder import working_directory

LENGTH = "envs.game.kwargs.length"


def run_of(*, ticks: int = 120, every: int = 30, seconds: float = 0.0, **policies: Any) -> dict[str, Any]:
    """A game of one, whose learner needs no torch."""
    return {
        "seed": 3,
        "ticks": ticks,
        "checkpoint_every": every,
        "results": {"every": every},
        "envs": {"game": {"make": "games:Slow", "kwargs": {"length": 7, "seconds": seconds}}},
        "policies": {"a": {"algorithm": "learners:GymLearner"}},
        "matches": [{"env": "game", "seats": ["a"]}],
        **policies,
    }


def write(cwd: Path, data: dict[str, Any], name: str = "sweep.yaml") -> str:
    (cwd / name).write_text(yaml.safe_dump(data))
    return name


def sweep(*lengths: int, **run: Any) -> dict[str, Any]:
    """A trial for each length of episodes."""
    return {"run": run_of(**run), "set": {LENGTH: {"grid_search": [*(lengths or (3, 7))]}}, "ranks": 1}


def experiment(cwd: Path, data: dict[str, Any], folder: str, *more: str) -> int:
    """The exit status of an experiment whose driver is this process; its trials are others."""
    with working_directory(cwd), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        return main(["experiment", write(cwd, data), "--run-dir", folder, *more])


def left_by(run: Path) -> dict[str, Any]:
    """The files of a run that must be the same after any disturbance."""
    results = [{k: v for k, v in line.items() if k not in CLOCK_KEYS} for line in JournalReader(run / "result.json")]
    return {**run_left_by(run), "results": results}


def trials_of(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted((folder / "trials").iterdir())}


def assert_same(folder: Path, other: Path) -> None:
    """Checks that two experiments have the same trials with the same files."""
    one, two = trials_of(folder), trials_of(other)
    assert one.keys() == two.keys(), "no trial was begun twice"
    assert [name for name in one if left_by(one[name]) != left_by(two[name])] == []


def states_of(folder: Path) -> list[str]:
    return [record.state.value for record in ExperimentFolder(folder).read()]


def plays(folder: Path) -> bool:
    """Whether a trial has ended an episode."""
    return any(has_played(run) for run in folder.glob("trials/*"))


def resume(folder: Path) -> list[str]:
    """The option, if there is an experiment to go on with."""
    return ["--resume"] * (folder / "experiment.yaml").is_file()


def killed_and_resumed(cwd: Path, file: str, folder: str, *, kills: int, seed: int) -> int:
    """Kills the driver at random moments until it is done or the limit is reached; returns the number of kills."""
    rng = random.Random(seed)
    killed = 0
    while killed < kills:
        process = start([*ARENA, "experiment", file, "--run-dir", folder, *resume(cwd / folder)], cwd)
        try:
            process.wait(timeout=rng.uniform(0.2, 6.0))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            killed += 1
            wait_for(lambda: not living(cwd))
        finally:
            for stream in (process.stdout, process.stderr):
                assert stream is not None
                stream.close()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
    return killed


@pytest.mark.parametrize(
    ("kills", "ticks"), [(2, 40), pytest.param(20, 400, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_killed_experiment_leaves_the_bytes_of_an_undisturbed_one(tmp_path: Path, kills: int, ticks: int) -> None:
    # Two trials at a time sleep for 120 s in total; the 20 kills of the long case come within 62 s on average.
    data = {**sweep(3, 5, 7, 11, ticks=ticks, every=ticks // 8, seconds=ticks / 8000), "at_once": 2}
    data["repeat"] = 3 if kills == 20 else 1
    assert experiment(tmp_path, data, "calm", "--set", "envs.game.kwargs.seconds=0") == 0
    killed = killed_and_resumed(tmp_path, "sweep.yaml", "wild", kills=kills, seed=kills)
    assert experiment(tmp_path, data, "wild", *resume(tmp_path / "wild")) == 0
    assert killed == kills or kills < 20
    assert {*states_of(tmp_path / "wild")} == {"terminated"}
    assert_same(tmp_path / "wild", tmp_path / "calm")
    values = [json.loads((tmp_path / folder / "best.json").read_text())["value"] for folder in ("calm", "wild")]
    assert values[0] == values[1]
    *_, last = trials_of(tmp_path / "calm").values()
    assert left_by(alone(tmp_path, f"calm/configs/{last.name[:4]}.yaml")) == left_by(last)


@pytest.mark.long
def test_a_search_that_is_killed_and_resumed_suggests_the_same(tmp_path: Path) -> None:
    space = {LENGTH: {"integers": [2, 30]}, "envs.game.kwargs.seconds": {"uniform": [0.001, 0.005]}}
    search = {"tpe": {"trials": 5, "n_startup_trials": 2}}
    data = {"run": run_of(ticks=150, every=50), "set": space, "search": search, "at_once": 1, "ranks": 1}
    assert experiment(tmp_path, data, "calm") == 0
    killed_and_resumed(tmp_path, "sweep.yaml", "wild", kills=2, seed=3)
    assert experiment(tmp_path, data, "wild", *resume(tmp_path / "wild")) == 0
    calm, wild = (ExperimentFolder(tmp_path / folder).read() for folder in ("calm", "wild"))
    assert [record.params for record in calm] == [record.params for record in wild]
    assert len(calm) == 5 and len({str(record.params) for record in calm}) == 5
    assert_same(tmp_path / "wild", tmp_path / "calm")


def test_trials_that_fail_in_any_way_leave_the_others_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disk = {"algorithm": "faulty_workers:GrowingStateOnSmallDisk", "options": {"by": 200}}
    variants: dict[str, Any] = {
        "good": {},
        "raises": {"envs.game": {"make": "faulty_games:Faulty", "kwargs": {"at": 20, "faulty": 99}}},
        "killed": {"policies.a.algorithm": "faulty_workers:KillsItself"},
        "hangs": {"envs.game": {"make": "hanging:Hangs", "kwargs": {"after": 20}}, "watchdog_s": 2},
        "full": {"policies.a": disk},
    }
    data = {"run": run_of(), "variants": {name: {"set": keys} for name, keys in variants.items()}, "ranks": 1}
    assert experiment(tmp_path, data, "e") == 1
    records = {record.variant: record for record in ExperimentFolder(tmp_path / "e").read()}
    found = {name: (record.state.value, record.last.attempt) for name, record in records.items()}
    assert found.pop("good") == ("terminated", 1)
    assert found == dict.fromkeys(("raises", "killed", "hangs", "full"), ("error", 2))
    reported = capsys.readouterr().err
    for name in found:
        assert f"{name}: error after 2 attempts" in reported
    assert "killed by SIGKILL" in reported


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 0)])
def test_a_signal_saves_all_trials_and_resume_goes_on(number: signal.Signals, status: int, tmp_path: Path) -> None:
    data, folder = sweep(ticks=200, every=200, seconds=0.01), tmp_path / "e"
    process = start([*ARENA, "experiment", write(tmp_path, data), "--run-dir", "e"], tmp_path)
    wait_for(lambda: plays(folder))
    process.send_signal(number)
    ended = finish(process)
    assert ended.code == status, ended.err
    assert "paused" in states_of(folder) and "running" not in states_of(folder)
    assert (folder / "requeue").exists() == (number is signal.SIGUSR1), "a mark for the queue"
    assert "--resume --run-dir e goes on" in ended.err or not status
    if number is signal.SIGUSR1:
        assert experiment(tmp_path, data, "e", "--resume") == 0
        assert not (folder / "requeue").exists() and {*states_of(folder)} == {"terminated"}


def test_changed_file_adds_trials_and_keeps_finished_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "e"
    assert experiment(tmp_path, sweep(3, 5, 7, ticks=40, every=20), "e") == 0
    before = {name: left_by(run) for name, run in trials_of(folder).items()}
    written = {path: path.stat().st_mtime_ns for path in (folder / "trials").rglob("*.jsonl")}
    capsys.readouterr()
    assert experiment(tmp_path, sweep(13, 3, 7, ticks=40, every=20), "e", "--resume", "--json") == 0
    outcome = json.loads(capsys.readouterr().out)
    lengths = {trial["number"]: trial["params"][LENGTH] for trial in outcome["trials"]}
    assert lengths == {0: 3, 2: 7, 3: 13}, "known trials keep their numbers, others count no more"
    assert outcome["states"] == {"terminated": 3}
    after = trials_of(folder)
    assert {name: left_by(after[name]) for name in before} == before
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_failed_trials_are_retried_only_on_request(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    fails = {"algorithm": "faulty_workers:FailsWhileFileExists", "options": {"path": str(broken)}}
    data = {"run": run_of(policies={"a": fails}), "retries": 0, "ranks": 1}
    assert experiment(tmp_path, data, "e") == 1
    broken.unlink()
    assert experiment(tmp_path, data, "e", "--resume") == 1
    assert states_of(tmp_path / "e") == ["error"]
    assert experiment(tmp_path, data, "e", "--resume", "--retry-errors") == 0
    assert states_of(tmp_path / "e") == ["terminated"]


def test_trials_run_alone_give_the_outcome_of_the_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = sweep(ticks=40, every=20)
    alone = [
        start([*ARENA, "experiment", write(tmp_path, data), "--run-dir", "alone", "--trial", str(number)], tmp_path)
        for number in range(2)
    ]
    ended = [finish(process) for process in alone]
    assert [one.code for one in ended] == [0] * 2, [one.err for one in ended]
    found = []
    for more in (["alone", "--resume"], ["together"]):
        capsys.readouterr()
        assert experiment(tmp_path, data, *more, "--json") == 0
        outcome = json.loads(capsys.readouterr().out)
        found.append((outcome["combinations"], outcome["best"], outcome["states"]))
    assert found[0] == found[1]
    assert_same(tmp_path / "alone", tmp_path / "together")


def test_mistakes_start_nothing_and_leave_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, sweep())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    cases = {
        ("--trial", "2"): "--trial: got 2; the experiment has the trials 0 to 1",
        ("--trial", "1"): "--run-dir: a trial alone needs the folder that it shares with the others",
        ("--resume",): "experiments/sweep: there is no experiment to go on with",
        ("--resume", "--run-dir", "gone"): "gone: not the folder of an experiment: it does not exist",
        ("--retry-errors",): "--retry-errors: goes with --resume",
        ("--run-dir", "full"): "full: holds files already",
        ("--set", "ticks=0"): "--set ticks=0: ticks: found 0",
        ("--set", "ranks=2", "--hosts", "a:1,a:2"): "--hosts: host a is named twice",
    }
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    with working_directory(tmp_path):
        for arguments, message in cases.items():
            assert main(["experiment", file, *arguments]) == 2
            assert f"arena: error: {message}" in capsys.readouterr().err.replace(f"{file}: ", "")
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
        assert main(["experiment", file]) == 2
        assert "an experiment starts its runs itself" in capsys.readouterr().err
    assert not (tmp_path / "experiments").exists()


def test_a_folder_in_use_or_of_another_experiment_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = sweep(ticks=400, every=100, seconds=0.01)
    process = start([*ARENA, "experiment", write(tmp_path, data), "--run-dir", "e"], tmp_path)
    wait_for(lambda: (tmp_path / "e" / "experiment.yaml").exists())
    assert experiment(tmp_path, data, "e", "--resume") == 2
    assert f"process {process.pid} on host" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    assert experiment(tmp_path, {**data, "name": "other"}, "e", "--resume") == 2
    assert "holds the experiment 'sweep', not 'other'" in capsys.readouterr().err


def test_a_damaged_state_file_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = sweep(ticks=20, every=20)
    assert experiment(tmp_path, data, "e") == 0
    path = tmp_path / "e" / "states" / "0001.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"time": "2')
    assert experiment(tmp_path, data, "e", "--resume") == 0, "a last line may be incomplete"
    path.write_text(whole + '{"time": 3}\n')
    assert experiment(tmp_path, data, "e", "--resume") == 2
    assert "0001.jsonl: was changed or damaged" in capsys.readouterr().err
    (path.parent / "checksums" / path.name).unlink()
    assert experiment(tmp_path, data, "e", "--resume") == 2
    assert f"0001.jsonl: line {len(whole.splitlines()) + 1}: is damaged" in capsys.readouterr().err


def test_trials_of_several_processes_end_with_their_driver(tmp_path: Path) -> None:
    data = {**sweep(ticks=4000, every=50, seconds=0.005), "ranks": 2, "at_once": 1}
    process = start([*ARENA, "experiment", write(tmp_path, data), "--run-dir", "e"], tmp_path)
    wait_for(lambda: plays(tmp_path / "e"))
    os.kill(process.pid, signal.SIGKILL)
    finish(process)  # and nothing is left behind


def test_experiments_run_from_python_and_are_opened_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {**sweep(ticks=40, every=20), "repeat": 2, "name": "lengths"}
    other = Experiment(**{**data, "name": "other", "repeat": 1})
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    with working_directory(tmp_path):
        first, second = run_experiments([data, other])
    assert (first.folder, second.folder) == (tmp_path / "experiments/lengths", tmp_path / "experiments/other")
    again = open_experiment(first.folder)
    assert again.data() == first.data() and [*again.trials] == [0, 1, 2, 3]
    means = [each.mean for each in first.combinations]
    assert means == sorted((mean for mean in means if mean is not None), reverse=True)
    best = first.best
    assert best is not None and best.params == first.combinations[0].params
    trial = first.trials[3]
    assert (trial.state, trial.params, trial.seed) == ("terminated", {LENGTH: 7}, 4)
    assert trial.last is not None and trial.last["ticks"] == 40 and len(trial.results) == 2
    values = [result["episode_reward_mean"] for result in trial.results]
    assert trial.analysis["episode_reward_mean"] == {"max": max(values), "min": min(values), "last": values[-1]}
    assert [row[LENGTH] for row in first.rows()] == [3, 3, 7, 7]


def test_unpromising_trial_is_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rewards are actions, so a long episode earns more; a slow trial of short ones is pruned before its end."""
    slow = {LENGTH: 2, "envs.game.kwargs.seconds": 0.01}
    data = {
        "run": run_of(ticks=1000, every=50),
        "variants": {"a": {"set": {LENGTH: 25}}, "b": {"set": {LENGTH: 24}}, "c": {"set": slow}},
        "prune": {"median": {"n_startup_trials": 2, "n_warmup_steps": 1}},
        "metric": "episode_reward_mean",
        "at_once": 1,
        "ranks": 1,
    }
    outcomes = []
    for more in ([], ["--resume"]):  # it is not taken up again
        assert experiment(tmp_path, data, "e", "--json", *more) == 0
        outcomes.append(json.loads(capsys.readouterr().out))
    assert outcomes[0]["states"] == {"terminated": 2, "pruned": 1}
    assert outcomes[0]["trials"][2]["ticks"] < 1000
    assert outcomes[0] == outcomes[1]


def test_trials_are_stopped_and_pruned_by_request(tmp_path: Path) -> None:
    data, folder = sweep(3, 7, 9, ticks=200, every=200, seconds=0.01) | {"at_once": 1}, ExperimentFolder(tmp_path / "e")
    process = start([*ARENA, "experiment", write(tmp_path, data), "--run-dir", "e"], tmp_path)
    wait_for(lambda: plays(folder.path))
    folder.request_path(0, "stop").touch()  # it runs
    folder.request_path(2, "prune").touch()  # it waits
    assert finish(process).code == 0
    assert states_of(folder.path) == ["paused", "terminated", "pruned"]
    assert [record.last.why for record in folder.read()] == [
        "stopped; --resume goes on with it",
        "",
        "pruned by request",
    ]
    folder.request_path(1, "prune").touch()  # of an experiment that is over: forgotten
    assert experiment(tmp_path, data, "e", "--resume") == 0
    assert states_of(folder.path) == ["terminated", "terminated", "pruned"] and folder.requested() == []
