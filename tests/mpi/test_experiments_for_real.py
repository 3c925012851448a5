"""Experiments with real processes: killed at any moment and resumed, with trials that fail, asked to end, alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.experiment import Experiment, Outcome, open_experiment, run_experiments
from arena.experiment.folder import ExperimentFolder
from arena.records.journal import JournalReader
from arena.records.result_file import CLOCK_KEYS
from run_cli import ARENA, Ended, arena, environment, finish, left_behind, living, start, wait_for

pytestmark = pytest.mark.mpi

RATE = "policies.a.options.leaves"


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


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


def sweep(**run: Any) -> dict[str, Any]:
    """Twelve trials: lengths of episodes and seeds."""
    lengths = {"envs.game.kwargs.length": {"grid_search": [3, 5, 7, 11]}}
    return {"run": run_of(**run), "set": lengths, "repeat": 3, "ranks": 1}


def left_by(run: Path) -> dict[str, Any]:
    """The files of a run that must be the same after any disturbance."""
    results = [{k: v for k, v in line.items() if k not in CLOCK_KEYS} for line in JournalReader(run / "result.json")]
    states = {str(path.relative_to(run)): path.read_bytes() for path in (run / "checkpoints").rglob("*.ckpt")}
    return {**states, "episodes": (run / "episodes.jsonl").read_bytes(), "results": results}


def trials_of(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted((folder / "trials").iterdir())}


def states_of(folder: Path) -> list[str]:
    return [record.state.value for record in ExperimentFolder(folder).read()]


def killed_and_resumed(cwd: Path, file: str, folder: str, *, kills: int, seed: int) -> int:
    """Kills the driver at random moments until it is done or the limit is reached; returns the number of kills."""
    rng = random.Random(seed)
    killed = 0
    while killed < kills:
        process = start([*ARENA, "experiment", file, "--run-dir", folder, "--resume"], cwd)
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
    ("kills", "ticks"), [(3, 40), pytest.param(20, 400, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_killed_experiment_leaves_the_bytes_of_an_undisturbed_one(tmp_path: Path, kills: int, ticks: int) -> None:
    # Two trials at a time sleep for 120 s in total; the 20 kills of the long case come within 62 s on average.
    data = {**sweep(ticks=ticks, every=ticks // 8, seconds=ticks / 8000), "at_once": 2}
    if kills < 20:
        data["repeat"] = 1
    file = write(tmp_path, data)
    calm = arena(tmp_path, "experiment", file, "--run-dir", "calm", "--set", "envs.game.kwargs.seconds=0")
    assert calm.code == 0, calm.err
    killed = killed_and_resumed(tmp_path, file, "wild", kills=kills, seed=kills)
    last = arena(tmp_path, "experiment", file, "--run-dir", "wild", "--resume")
    assert last.code == 0, last.err
    assert killed == kills or kills < 20
    assert {*states_of(tmp_path / "wild")} == {"terminated"}
    calm_trials, wild_trials = trials_of(tmp_path / "calm"), trials_of(tmp_path / "wild")
    assert calm_trials.keys() == wild_trials.keys(), "no trial was begun twice"
    for name, run in calm_trials.items():
        assert left_by(wild_trials[name]) == left_by(run), name
    values = [json.loads((tmp_path / folder / "best.json").read_text())["value"] for folder in ("calm", "wild")]
    assert values[0] == values[1]
    number = f"{len(calm_trials) - 1:04d}"
    by_hand = arena(tmp_path, "train", f"calm/configs/{number}.yaml", "--run-dir", "by-hand")
    assert by_hand.code == 0, by_hand.err
    assert left_by(tmp_path / "by-hand") == left_by(next(p for n, p in calm_trials.items() if n.startswith(number)))


def test_trials_that_fail_in_any_way_leave_the_others_alone(tmp_path: Path) -> None:
    variants: dict[str, Any] = {
        "good": {},
        "raises": {"envs.game": {"make": "faulty_games:Faulty", "kwargs": {"at": 20, "faulty": 99}}},
        "killed": {"policies.a.algorithm": "faulty_workers:KillsItself"},
        "hangs": {"envs.game": {"make": "hanging:Hangs", "kwargs": {"after": 20}}, "watchdog_s": 2},
        "full": {"policies.a": {"algorithm": "faulty_workers:GrowingStateOnSmallDisk", "options": {"by": 200}}},
        "fine": {"envs.game.kwargs.length": 4},
    }
    data = {"run": run_of(), "variants": {name: {"set": held} for name, held in variants.items()}, "ranks": 1}
    ended = arena(tmp_path, "experiment", write(tmp_path, data), "--run-dir", "e")
    records = {record.variant: record for record in ExperimentFolder(tmp_path / "e").read()}
    found = {name: (record.state.value, record.last.attempt) for name, record in records.items()}
    assert found == {
        "good": ("terminated", 1),
        "fine": ("terminated", 1),
        **dict.fromkeys(("raises", "killed", "hangs", "full"), ("error", 2)),
    }, ended.err
    assert ended.code == 1
    for name in ("raises", "killed", "hangs", "full"):
        assert f"{name}: error after 2 attempts" in ended.err
    assert "killed by SIGKILL" in ended.err


def test_a_signal_saves_all_trials_and_resume_goes_on(tmp_path: Path) -> None:
    file = write(tmp_path, {**sweep(ticks=400, every=400, seconds=0.01), "repeat": 1})
    process = start([*ARENA, "experiment", file, "--run-dir", "e"], tmp_path)
    folder = tmp_path / "e"
    wait_for(lambda: any((path / "lock").exists() for path in folder.glob("trials/*")))
    wait_for(lambda: any(path.stat().st_size for path in folder.glob("trials/*/episodes.jsonl")))
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 143, ended.err
    assert "paused" in states_of(folder) and "running" not in states_of(folder)
    assert "--resume --run-dir e goes on" in ended.err


def test_sigusr1_leaves_a_mark_for_the_queue(tmp_path: Path) -> None:
    file = write(tmp_path, {**sweep(ticks=200, every=50, seconds=0.01), "repeat": 1})
    process = start([*ARENA, "experiment", file, "--run-dir", "e"], tmp_path)
    folder = tmp_path / "e"
    wait_for(lambda: any(path.stat().st_size for path in folder.glob("trials/*/episodes.jsonl")))
    process.send_signal(signal.SIGUSR1)
    assert finish(process).code == 0
    assert (folder / "requeue").exists()
    assert arena(tmp_path, "experiment", file, "--run-dir", "e", "--resume").code == 0
    assert not (folder / "requeue").exists() and {*states_of(folder)} == {"terminated"}


def test_changed_file_adds_trials_and_keeps_finished_ones(tmp_path: Path) -> None:
    data = {**sweep(ticks=40, every=20), "repeat": 1}
    assert arena(tmp_path, "experiment", write(tmp_path, data), "--run-dir", "e").code == 0
    before = {name: left_by(run) for name, run in trials_of(tmp_path / "e").items()}
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "e" / "trials").rglob("*.jsonl")}
    data["set"]["envs.game.kwargs.length"]["grid_search"] = [13, 3, 7]
    ended = arena(tmp_path, "experiment", write(tmp_path, data), "--run-dir", "e", "--resume", "--json")
    outcome = json.loads(ended.out)
    lengths = {trial["number"]: trial["params"]["envs.game.kwargs.length"] for trial in outcome["trials"]}
    assert lengths == {0: 3, 2: 7, 4: 13}, "known trials keep their numbers, others count no more"
    assert outcome["states"] == {"terminated": 3}
    after = trials_of(tmp_path / "e")
    assert {name: left_by(after[name]) for name in before} == before
    assert {path: path.stat().st_mtime_ns for path in written} == written


def test_failed_trials_are_retried_only_on_request(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.touch()
    data = {
        "run": run_of(
            policies={"a": {"algorithm": "faulty_workers:FailsWhileFileExists", "options": {"path": str(broken)}}}
        )
    }
    file = write(tmp_path, {**data, "retries": 0, "ranks": 1})
    assert arena(tmp_path, "experiment", file, "--run-dir", "e").code == 1
    broken.unlink()
    assert arena(tmp_path, "experiment", file, "--run-dir", "e", "--resume").code == 1
    assert states_of(tmp_path / "e") == ["error"]
    assert arena(tmp_path, "experiment", file, "--run-dir", "e", "--resume", "--retry-errors").code == 0
    assert states_of(tmp_path / "e") == ["terminated"]


def test_trials_run_alone_give_the_outcome_of_the_driver(tmp_path: Path) -> None:
    file = write(tmp_path, {**sweep(ticks=40, every=20), "repeat": 1})
    together = arena(tmp_path, "experiment", file, "--run-dir", "together", "--json")
    processes = [
        start([*ARENA, "experiment", file, "--run-dir", "apart", "--trial", str(number)], tmp_path)
        for number in range(4)
    ]
    ended = [finish(process) for process in processes]
    assert [one.code for one in ended] == [0] * 4, [one.err for one in ended]
    last = arena(tmp_path, "experiment", file, "--run-dir", "apart", "--resume", "--json")

    def compared(found: Ended) -> Any:
        data = json.loads(found.out)
        return data["combinations"], data["best"], data["states"]

    assert compared(last) == compared(together)
    for name, run in trials_of(tmp_path / "together").items():
        assert left_by(tmp_path / "apart" / "trials" / name) == left_by(run)


def test_mistakes_start_nothing_and_leave_no_folder(tmp_path: Path) -> None:
    file = write(tmp_path, {**sweep(), "repeat": 1})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").touch()
    cases = {
        ("--trial", "4"): "--trial: got 4; the experiment has the trials 0 to 3",
        ("--trial", "1"): "--run-dir: a trial alone needs the folder that it shares with the others",
        ("--resume",): "experiments/sweep: there is no experiment to go on with",
        ("--retry-errors",): "--retry-errors: goes with --resume",
        ("--run-dir", "full"): "full: holds files already",
        ("--set", "ticks=0"): "--set ticks=0: ticks: found 0",
        ("--set", "ranks=2", "--hosts", "a:1,a:2"): "--hosts: expected hosts and slots",
    }
    for arguments, message in cases.items():
        ended = arena(tmp_path, "experiment", file, *arguments)
        assert ended.code == 2 and f"arena: error: {message}" in ended.err.replace(f"{file}: ", ""), ended.err
    assert not (tmp_path / "experiments").exists()
    launched = arena(tmp_path, "experiment", file, OMPI_COMM_WORLD_RANK="0")
    assert launched.code == 2 and "an experiment starts its runs itself" in launched.err


def test_a_folder_in_use_or_of_another_experiment_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, {**sweep(ticks=400, every=100, seconds=0.01), "repeat": 1})
    process = start([*ARENA, "experiment", file, "--run-dir", "e"], tmp_path)
    wait_for(lambda: (tmp_path / "e" / "experiment.yaml").exists())
    second = arena(tmp_path, "experiment", file, "--run-dir", "e", "--resume")
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130
    other = arena(tmp_path, "experiment", write(tmp_path, sweep(), "other.yaml"), "--run-dir", "e", "--resume")
    assert second.code == 2 and f"process {process.pid} on host" in second.err
    assert other.code == 2 and "holds the experiment 'sweep', not 'other'" in other.err


def test_a_damaged_state_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, {**sweep(ticks=20, every=20), "repeat": 1})
    assert arena(tmp_path, "experiment", file, "--run-dir", "e").code == 0
    path = tmp_path / "e" / "states" / "0002.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"time": "2')
    assert arena(tmp_path, "experiment", file, "--run-dir", "e", "--resume").code == 0, "a last line may be incomplete"
    path.write_text(whole + '{"time": 3}\n')
    ended = arena(tmp_path, "experiment", file, "--run-dir", "e", "--resume")
    lines = len(whole.splitlines()) + 1
    assert ended.code == 2 and f"0002.jsonl: line {lines}: is damaged" in ended.err


@pytest.mark.slow
def test_trials_of_several_processes_end_with_their_driver(tmp_path: Path) -> None:
    data = {**sweep(ticks=4000, every=50, seconds=0.005), "repeat": 1, "ranks": 2, "at_once": 1}
    file = write(tmp_path, data)
    process = start([*ARENA, "experiment", file, "--run-dir", "e"], tmp_path)
    wait_for(lambda: any(path.stat().st_size for path in (tmp_path / "e").glob("trials/*/episodes.jsonl")))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not living(tmp_path))
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def test_experiments_run_from_python_and_are_opened_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {**sweep(ticks=40, every=20), "repeat": 2, "name": "lengths"}
    data["set"]["envs.game.kwargs.length"]["grid_search"] = [3, 7]
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    with monkeypatch.context() as inside:
        inside.chdir(tmp_path)
        first, second = run_experiments([data, Experiment(**{**data, "name": "other", "repeat": 1})])
    assert (first.folder, second.folder) == (tmp_path / "experiments/lengths", tmp_path / "experiments/other")
    _check_outcome(first)


def _check_outcome(first: Outcome) -> None:
    again = open_experiment(first.folder)
    assert again.data() == first.data() and [*again.trials] == [0, 1, 2, 3]
    means = [each.mean for each in first.combinations]
    assert means == sorted((mean for mean in means if mean is not None), reverse=True)
    best, length = first.best, "envs.game.kwargs.length"
    assert best is not None and best.params == first.combinations[0].params
    trial = first.trials[3]
    assert (trial.state, trial.params, trial.seed) == ("terminated", {length: 7}, 4)
    assert trial.last is not None and trial.last["ticks"] == 40 and len(trial.results) == 2
    values = [result["episode_reward_mean"] for result in trial.results]
    assert trial.analysis["episode_reward_mean"] == {"max": max(values), "min": min(values), "last": values[-1]}
    assert [row[length] for row in first.rows()] == [3, 3, 7, 7]


def test_a_search_that_is_killed_and_resumed_suggests_the_same(tmp_path: Path) -> None:
    search = {"tpe": {"trials": 5, "n_startup_trials": 2}}
    space = {"envs.game.kwargs.length": {"integers": [2, 30]}, "envs.game.kwargs.seconds": {"uniform": [0.001, 0.005]}}
    data = {"run": run_of(ticks=150, every=50), "set": space, "search": search, "at_once": 1, "ranks": 1}
    file = write(tmp_path, data)
    assert arena(tmp_path, "experiment", file, "--run-dir", "calm").code == 0
    killed_and_resumed(tmp_path, file, "wild", kills=2, seed=3)
    assert arena(tmp_path, "experiment", file, "--run-dir", "wild", "--resume").code == 0
    calm, wild = (ExperimentFolder(tmp_path / folder).read() for folder in ("calm", "wild"))
    assert [record.params for record in calm] == [record.params for record in wild]
    assert len(calm) == 5 and len({str(record.params) for record in calm}) == 5
    for one, other in zip(trials_of(tmp_path / "calm").values(), trials_of(tmp_path / "wild").values(), strict=True):
        assert left_by(one) == left_by(other)


def test_unpromising_trial_is_pruned(tmp_path: Path) -> None:
    """Rewards are actions, so a long episode earns more; a slow trial of short ones is pruned before its end."""
    length, seconds = "envs.game.kwargs.length", "envs.game.kwargs.seconds"
    data = {
        "run": run_of(ticks=3000, every=50),
        "variants": {
            name: {"set": held}
            for name, held in {"a": {length: 25}, "b": {length: 24}, "c": {length: 2, seconds: 0.004}}.items()
        },
        "prune": {"median": {"n_startup_trials": 2, "n_warmup_steps": 1}},
        "metric": "episode_reward_mean",
        "at_once": 1,
        "ranks": 1,
    }
    ended = arena(tmp_path, "experiment", write(tmp_path, data), "--run-dir", "e", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["states"] == {"terminated": 2, "pruned": 1}
    assert json.loads(ended.out)["trials"][2]["ticks"] < 3000
    again = arena(tmp_path, "experiment", "sweep.yaml", "--run-dir", "e", "--resume", "--json")
    assert json.loads(again.out) == json.loads(ended.out), "it is not taken up again"
