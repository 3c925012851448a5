"""Experiments in a real SLURM of two nodes: trials on parts of the hosts, requeue, a job array."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_experiments_for_real import left_by, run_of, trials_of, write

import slurm_cluster
from arena.experiment.folder import ExperimentFolder
from arena.records.journal import JournalReader
from run_cli import ARENA, alone, environment, finish, start, wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    slurm_cluster.require()
    with slurm_cluster.slurm_cluster(tmp_path_factory.mktemp("slurm") / "home") as variables:
        yield variables


SWEEP = {
    "run": {**run_of(ticks=200, every=50, seconds=0.005), "loggers": []},
    "set": {"envs.game.kwargs.length": {"grid_search": [3, 5, 7, 11, 13]}},
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write(tmp_path, {**SWEEP, "ranks": 2})
    return tmp_path


def asked(home: Path, cluster: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        command, cwd=home, env=environment(**cluster), capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.strip()


def submitted(home: Path, cluster: dict[str, str], *arguments: str) -> str:
    """Writes a batch file and submits it; the number of the job."""
    command = [*ARENA, "slurm", "sweep.yaml", "--time", "1h", "--run-dir", "e", *arguments]
    assert finish(start(command, home, **cluster)).code == 0
    return asked(home, cluster, "sbatch", "--parsable", "sweep.sbatch")


def is_gone(home: Path, cluster: dict[str, str], job: str) -> bool:
    return asked(home, cluster, "squeue", "--noheader", "--jobs", job) == ""


def records(home: Path) -> list[Any]:
    return ExperimentFolder(home / "e").read()


def assert_as_alone(home: Path, name: str) -> None:
    """Checks that a trial has left the files of the same run without SLURM."""
    run = alone(home, f"e/configs/{name[:4]}.yaml", run=f"alone/{name}")
    assert left_by(run) == left_by(home / "e" / "trials" / name)


def test_a_requeued_experiment_fills_two_nodes_and_plays_every_tick_once(home: Path, cluster: dict[str, str]) -> None:
    job = submitted(home, cluster, "--nodes", "2", "--ranks-per-node", "4")
    wait_for(lambda: any(path.stat().st_size for path in (home / "e").glob("trials/*/episodes.jsonl")))
    asked(home, cluster, "scancel", "--signal=USR1", "--batch", job)
    wait_for(lambda: "PENDING" in asked(home, cluster, "squeue", "--noheader", "--format=%T", "--jobs", job))
    assert "paused" in {record.state.value for record in records(home)}
    # Not `now`: a job that starts in the second of its requeue is refused by slurmd ("Job credential revoked").
    asked(home, cluster, "scontrol", "update", f"jobid={job}", "StartTime=now+3")
    wait_for(lambda: is_gone(home, cluster, job))
    found = records(home)
    assert {record.state.value for record in found} == {"terminated"}, (home / f"slurm-{job}.out").read_text()
    states = [ExperimentFolder(home / "e").state_path(record.number) for record in found]
    lines = [line for path in states for line in JournalReader(path) if line["state"] == "running"]
    assert {line["hosts"] for line in lines} == {"a:2", "b:2"}
    first = sorted(lines, key=lambda line: line["time"])[:4]
    assert sorted(line["hosts"] for line in first) == ["a:2", "a:2", "b:2", "b:2"], "each on its own slots"
    trials = trials_of(home / "e")
    for path in trials.values():
        assert sum(line["length"] for line in JournalReader(path / "episodes.jsonl")) == 200
    assert_as_alone(home, max(trials))  # it was not stopped
    assert not (home / "e" / "requeue").exists()


@pytest.mark.long
def test_a_job_array_gives_the_bytes_and_the_outcome_of_the_driver(home: Path, cluster: dict[str, str]) -> None:
    job = submitted(home, cluster, "--array", "3")
    wait_for(lambda: is_gone(home, cluster, job))
    for name in trials_of(home / "e"):
        assert_as_alone(home, name)
    ended = finish(start([*ARENA, "experiment", "sweep.yaml", "--run-dir", "e", "--resume", "--json"], home))
    assert ended.code == 0 and '"states": {"terminated": 5}' in ended.out
    assert (home / "e" / "best.json").exists()
