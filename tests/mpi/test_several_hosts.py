"""Runs on several hosts, which namespaces of this machine stand in for; one survives the loss of a host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hosts
from arena.records.journal import JournalReader
from in_process import one_match
from run_cli import alone, differing, finish, newest_boundary, start, wait_for, write
from system_programs import executable, unavailable


def config(seconds: float) -> dict[str, Any]:
    """Two matches of a learner against random play."""
    game = {"make": "games:SlowTouchdown", "kwargs": {"max_steps": 60, "seconds": seconds}}
    policies = {"blue": {"algorithm": "learners:LearnerWithActor"}, "red": {"algorithm": "random"}}
    given = {"name": "duel", "seed": 4, "checkpoint_every": 300, "match": {"lanes": 4, "copies": 2}}
    return one_match(game, policies, ticks=900, **given)


@pytest.fixture
def three() -> Iterator[hosts.Hosts]:
    """Three hosts, in a folder with a short name: those of sockets have at most 107 characters."""
    for name in ("unshare", "nsenter", "ip"):
        executable("namespaces as hosts", name)
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], check=False).returncode:
        unavailable("the system permits no namespaces")
    with tempfile.TemporaryDirectory(prefix="hosts-") as folder:
        made = hosts.Hosts(Path(folder).resolve())
        try:
            made.begin(3)
            yield made
        finally:
            made.end()


def test_folder_that_a_host_does_not_see_is_refused(three: hosts.Hosts, tmp_path: Path) -> None:
    file = write(three.folder, config(0.0))
    line = f"arena train {file} --run-dir /tmp/run --ranks 3 --hosts n0:1,n1:1,n2:1"
    ended = finish(start([sys.executable, str(hosts.HERE), str(three.folder), "n0", line], tmp_path))
    assert ended.code == 2
    assert "hosts n1, n2 cannot see the run folder /tmp/run of host n0" in ended.err
    for host, first in three.first.items():
        assert not Path(f"/proc/{first}/root/tmp/run").exists(), f"{host} has a part of the run"
        assert three.processes(host, "arena train") == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("host", "host n1 has been lost; started again with 4 processes"),
        ("daemon", "an MPI daemon on n1 has died; started again with 6 processes"),
    ],
)
def test_run_goes_on_without_what_is_lost(lost: str, said: str, three: hosts.Hosts, tmp_path: Path) -> None:
    file, run = write(three.folder, config(0.01)), three.folder / "run"
    line = f"arena train {file} --run-dir run --ranks 6 --hosts n0:2,n1:2,n2:2"
    process = start([sys.executable, str(hosts.HERE), str(three.folder), "n0", line], tmp_path)
    wait_for(lambda: newest_boundary(run) >= 300 or process.poll() is not None)
    if lost == "host":
        three.kill("n1")
    else:
        for daemon in three.processes("n1", "prted"):
            os.kill(daemon, signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    (death,) = JournalReader(run / "faults.jsonl")
    assert death["done"].startswith(f"{said}, back to tick "), death
    assert differing(run, alone(tmp_path, config(0.0))) == []
    left = [host for host in ("n0", "n1", "n2") if host in three.first]
    wait_for(lambda: not any(three.processes(host, "arena train") or three.shared_memory(host) for host in left))
