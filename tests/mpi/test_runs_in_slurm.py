"""Runs in a real SLURM of two hosts of different sizes: requeued, resumed, without a lost host; a job array."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_experiments_for_real import left_by, trials_of, write
from test_several_hosts import config, made_hosts

import hosts
import slurm_cluster
from arena.records.journal import JournalReader
from run_cli import alone, differing, environment, newest_boundary, wait_for

LEGS = {"ticks": 600, "checkpoint_every": 100}


@pytest.fixture
def two() -> Iterator[hosts.Hosts]:
    """Two hosts with a SLURM: four slots on n0, three on n1."""
    slurm_cluster.require()
    with made_hosts(2) as made, slurm_cluster.slurm_cluster(made.folder / "slurm", made):
        yield made


def asked(cluster: hosts.Hosts, command: str) -> str:
    """What a command writes on the host of the controller."""
    # The agent of the stand-in for ssh would be asked in the place of srun.
    line = f"unset PRTE_MCA_plm_ssh_agent; SLURM_CONF={cluster.folder}/slurm/slurm.conf {command}"
    done = subprocess.run(
        cluster.command("n0", line), env=environment(), capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout.strip()


def state(cluster: hosts.Hosts, job: str) -> str:
    """The state of a job, empty when it has ended: on a lost host SLURM goes on to wait for it as COMPLETING."""
    return asked(cluster, f"squeue --noheader --states=PENDING,RUNNING --format=%T --jobs {job}")


@pytest.mark.long
@pytest.mark.openmpi
@pytest.mark.parametrize(("scale", "left"), [(False, 4), (True, 7)])
def test_requeued_run_goes_on_without_a_lost_host(scale: bool, left: int, two: hosts.Hosts, tmp_path: Path) -> None:
    played = config(0.01) | LEGS
    if scale:  # seven processes are two matches; so they must be again without n1
        played["scale"] = True
        del played["matches"][0]["copies"]
    file, run = write(two.folder, played, "config.yaml"), two.folder / "run"
    asked(two, f"arena slurm {file} --time 1h --nodes 2 --ranks 7 --uneven --run-dir run")
    job = asked(two, "sbatch --parsable duel.sbatch")
    output = two.folder / f"slurm-{job}.out"
    wait_for(lambda: newest_boundary(run) >= 100 or not state(two, job))
    asked(two, f"scancel --signal=USR1 --batch {job}")
    wait_for(lambda: state(two, job) in ("PENDING", ""))
    reached = newest_boundary(run)
    # Not `now`: a job that starts in the second of its requeue is refused by slurmd ("Job credential revoked").
    asked(two, f"scontrol update jobid={job} StartTime=now+3")
    wait_for(lambda: newest_boundary(run) > reached or not state(two, job))
    two.kill("n1")
    wait_for(lambda: not state(two, job))
    assert f"goes on at tick {reached}" in output.read_text(), output.read_text()
    (death,) = JournalReader(run / "faults.jsonl")
    assert death["done"].startswith(f"host n1 has been lost; started again with {left} processes"), death
    alone(tmp_path, config(0.0) | LEGS, "--ticks", str(reached))
    assert differing(run, alone(tmp_path, config(0.0) | LEGS, "--resume")) == []


@pytest.mark.long
@pytest.mark.openmpi
def test_job_array_on_uneven_hosts_leaves_the_bytes_of_one_host(two: hosts.Hosts) -> None:
    steps = {"envs.game.kwargs.max_steps": {"grid_search": [40, 50, 60]}}
    write(two.folder, {"run": config(0.0) | LEGS, "set": steps, "ranks": 3}, "sweep.yaml")
    asked(two, "arena slurm sweep.yaml --time 1h --array 2 --nodes 2 --ranks 3 --uneven --run-dir e")
    job = asked(two, "sbatch --parsable sweep.sbatch")
    wait_for(lambda: not state(two, job))
    trials = trials_of(two.folder / "e")
    assert len(trials) == 3, (two.folder / f"slurm-{job}_0.out").read_text()
    for number, (name, trial) in enumerate(trials.items()):
        output = (two.folder / f"slurm-{job}_{number}.out").read_text()
        assert "started on n0:2,n1:1" in output or "started on n0:1,n1:2" in output, output
        run = alone(two.folder, f"e/configs/{name[:4]}.yaml", run=f"alone-{number}")
        assert left_by(trial) == left_by(run), name
