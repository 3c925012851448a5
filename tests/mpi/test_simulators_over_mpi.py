"""External simulators under real mpirun: nothing is left when a process dies or the run is interrupted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from run_cli import ARENA, PATIENCE, finish, left_behind, living, ranks_in, start, wait_for, write

PROGRAMS = str(Path(__file__).parents[1] / "support" / "link_programs.py")
FOREIGN = Path(__file__).parents[1] / "support" / "foreign_peer.c"
GROUPS = {
    "walker": {"agents": 3, "observations": [[3], [2, 2]], "continuous": 2},
    "chooser": {"agents": 2, "observations": [[2], [1]], "branches": [3, 2]},
}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))
    wait_for(lambda: not list(tmp_path.glob("mpi-policy-arena-*/*")))


def config(folder: Path, kind: str = "plays", **changes: Any) -> dict[str, Any]:
    kwargs = {"command": [sys.executable, PROGRAMS, kind], "groups": GROUPS, "folder": str(folder), "close_s": 1.0}
    return {
        "name": "simulated",
        "ticks": 100000,
        "checkpoint_every": 100,
        "envs": {"world": {"make": "shared_memory", "kwargs": {**kwargs, **changes}}},
        "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "world", "seats": ["blue", "red"], "lanes": 5}],
    }


def boundaries(run: Path) -> int:
    return len(list((run / "boundaries").glob("*.json")))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled `foreign_peer.c`."""
    program = tmp_path_factory.mktemp("program") / "foreign_peer"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["cc", *flags, "-o", str(program), str(FOREIGN), "-lm"], check=True)
    return program


def foreign_config(program: Path, folder: Path, ticks: int, **kwargs: Any) -> dict[str, Any]:
    """A run with `foreign_peer`, whose books are files of the folder."""
    written = {**config(folder), "ticks": ticks, "checkpoint_every": ticks // 3, "seed": 11}
    written["envs"]["world"]["kwargs"] = {
        "command": [str(program), "--books", f"{folder}/books{{number}}", "--seed", "{seed}"],
        "groups": {
            "walker": {"agents": 8, "observations": [[3]], "continuous": 2},
            "chooser": {"agents": 6, "observations": [[2]], "branches": [3, 2]},
        },
        "folder": str(folder),
        **kwargs,
    }
    written["matches"][0]["lanes"] = 14
    return written


@pytest.mark.parametrize("ticks", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_foreign_program_finds_no_fault_and_records_the_same(ticks: int, foreign: Path, tmp_path: Path) -> None:
    file, run = write(tmp_path, foreign_config(foreign, tmp_path, ticks)), tmp_path / "run"
    process = start([*ARENA, "train", file, "--run-dir", "run", "--ranks", "3"], tmp_path)
    ended = finish(process, timeout=PATIENCE + ticks / 20)
    assert ended.code == 0, ended.err
    *lives, (handovers, faults) = (line.split() for line in (tmp_path / "books0").read_text().splitlines())
    assert int(faults) == 0
    assert ticks < int(handovers) < ticks + 20, "a hand-over without rows is no tick"
    known = {name: (int(length), float(total), truncated == "1") for name, length, total, truncated, _ in lives}
    last = {name for name, *_, handover in lives if int(handover) >= int(handovers) - 1}
    recorded = {}
    for line in JournalReader(run / "episodes.jsonl"):
        (seat,) = line["seats"]
        recorded[line["game"]] = (line["length"], seat["return"], line["truncated"])
    assert set(known) - last <= set(recorded) <= set(known)
    assert {name: known[name] for name in recorded} == recorded
    assert len(recorded) > ticks / 10


def programs_in(folder: Path) -> list[int]:
    """The processes of `foreign_peer` in this folder."""
    found = []
    for pid in living(folder):
        with suppress(OSError):  # it has ended
            if "foreign_peer" in os.readlink(f"/proc/{pid}/exe"):
                found.append(pid)
    return found


@pytest.mark.parametrize("asked", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_eight_simulators_end_in_time_also_when_one_hangs(asked: int, foreign: Path, tmp_path: Path) -> None:
    written = foreign_config(foreign, tmp_path, 300_000, simulators=8, close_s=1.0)
    written["matches"][0]["lanes"] = 56
    process = start([*ARENA, "train", write(tmp_path, written), "--run-dir", "run", "--ranks", "4"], tmp_path)
    wait_for(lambda: (tmp_path / "run" / "games.jsonl").exists())
    programs = programs_in(tmp_path)
    os.kill(programs[3], signal.SIGSTOP)
    process.send_signal(asked)
    wait_for(lambda: not programs_in(tmp_path))  # also of the one that is stopped
    ended = finish(process)
    assert len(programs) == 8
    assert ended.code in (130, 143), ended.err
    assert "Traceback" not in ended.err, ended.err


VICTIMS = ("simulator", "environment", "worker", "launcher")
CASES = [
    pytest.param(victim, seed, marks=[pytest.mark.long] * (seed > 0 or victim == "worker"))
    for victim in VICTIMS
    for seed in range(50)
]


@pytest.mark.parametrize(("victim", "seed"), CASES)
def test_nothing_is_left_when_a_process_is_killed_at_any_moment(
    victim: str, seed: int, foreign: Path, tmp_path: Path
) -> None:
    written = foreign_config(foreign, tmp_path, 6_000, simulators=2, restarts=1)
    process = start([*ARENA, "train", write(tmp_path, written), "--run-dir", "run", "--ranks", "4"], tmp_path)
    wait_for(lambda: len(programs_in(tmp_path)) == 2)
    time.sleep(random.Random(seed).uniform(0.0, 3.0))
    ranks = ranks_in(tmp_path)
    pids = {"launcher": process.pid, "environment": ranks[1], "worker": ranks[2]}
    os.kill(pids[victim] if victim in pids else programs_in(tmp_path)[seed % 2], signal.SIGKILL)
    ended = finish(process)
    assert ended.code == (-signal.SIGKILL if victim == "launcher" else 0), ended.err
    wait_for(lambda: not left_behind(tmp_path) and not list(tmp_path.glob("mpi-policy-arena-*/*")))


@pytest.mark.parametrize(
    "rank", [pytest.param(1, id="environment"), pytest.param(2, id="worker", marks=pytest.mark.long)]
)
def test_a_restarted_run_goes_on_and_an_interrupt_ends_all_programs(rank: int, tmp_path: Path) -> None:
    command = [*ARENA, "train", write(tmp_path, config(tmp_path)), "--run-dir", "run", "--ranks", "4"]
    process = start(command, tmp_path)
    wait_for(lambda: boundaries(tmp_path / "run") >= 1)
    os.kill(ranks_in(tmp_path)[rank], signal.SIGKILL)
    faults = tmp_path / "run" / "faults.jsonl"
    wait_for(lambda: faults.exists() and faults.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert [line["kind"] for line in JournalReader(faults)] == ["process"]


def test_a_program_that_starts_slowly_is_waited_for(tmp_path: Path) -> None:
    written = {**config(tmp_path, "late"), "ticks": 50, "watchdog_s": 1.0}
    written["envs"]["world"]["kwargs"]["command"].append("4")
    process = start([*ARENA, "train", write(tmp_path, written), "--run-dir", "run", "--ranks", "2"], tmp_path)
    ended = finish(process)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("killed", "was killed by SIGKILL after 5 hand-overs"),
        pytest.param("cuts", "found the end of the file at 200", marks=pytest.mark.long),
        pytest.param("closes", "has closed the link after 5 hand-overs", marks=pytest.mark.long),
    ],
)
def test_a_simulator_that_fails_ends_the_run_with_one_message(kind: str, message: str, tmp_path: Path) -> None:
    written = config(tmp_path, kind)
    if kind == "cuts":
        written["envs"]["world"]["kwargs"]["command"].append("200")
    process = start([*ARENA, "train", write(tmp_path, written), "--run-dir", "run", "--ranks", "2"], tmp_path)
    ended = finish(process)
    assert ended.code == 1
    assert message in ended.err
    assert "Traceback" not in ended.err
