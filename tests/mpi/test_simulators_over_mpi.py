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
from in_process import one_match
from run_cli import PATIENCE, finish, left_behind, living, ranks_in, started, train, wait_for

PROGRAMS = str(Path(__file__).parents[1] / "support" / "link_programs.py")
FOREIGN = Path(__file__).parents[1] / "support" / "foreign_peer.c"
GROUPS = {
    "walker": {"agents": 3, "observations": [[3], [2, 2]], "continuous": 2},
    "chooser": {"agents": 2, "observations": [[2], [1]], "branches": [3, 2]},
}


@pytest.fixture(autouse=True)
def _no_link_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path) and not list(tmp_path.glob("mpi-policy-arena-*/*")))


def config(folder: Path, kind: str = "plays", **changes: Any) -> dict[str, Any]:
    kwargs = {"command": [sys.executable, PROGRAMS, kind], "groups": GROUPS, "folder": str(folder), "close_s": 1.0}
    game, random = {"make": "shared_memory", "kwargs": {**kwargs, **changes}}, {"algorithm": "random"}
    policies = {"blue": random, "red": random}
    return one_match(game, policies, ticks=100000, match={"lanes": 5}, name="simulated", checkpoint_every=100)


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
    written["envs"]["game"]["kwargs"] = {
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


@pytest.mark.parametrize("ticks", [1_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_foreign_program_finds_no_fault_and_records_the_same(ticks: int, foreign: Path, tmp_path: Path) -> None:
    process = started(tmp_path, foreign_config(foreign, tmp_path, ticks), ranks=3)
    ended = finish(process, timeout=PATIENCE + ticks / 20)
    assert ended.code == 0, ended.err
    *lives, (handovers, faults) = (line.split() for line in (tmp_path / "books0").read_text().splitlines())
    assert int(faults) == 0
    assert ticks < int(handovers) < ticks + 20, "a hand-over without rows is no tick"
    known = {name: (int(length), float(total), truncated == "1") for name, length, total, truncated, _ in lives}
    last = {name for name, *_, handover in lives if int(handover) >= int(handovers) - 1}
    recorded = {}
    for line in JournalReader(tmp_path / "run" / "episodes.jsonl"):
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
    process = started(tmp_path, written, ranks=4)
    wait_for(lambda: (tmp_path / "run" / "games.jsonl").exists())
    programs = programs_in(tmp_path)
    os.kill(programs[3], signal.SIGSTOP)
    process.send_signal(asked)
    wait_for(lambda: not programs_in(tmp_path))  # also of the one that is stopped
    ended = finish(process)
    assert len(programs) == 8
    assert ended.code in (130, 143), ended.err
    assert "Traceback" not in ended.err, ended.err


VICTIMS = ("environment", "simulator", "worker", "simulator")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 9))])
def test_nothing_is_left_when_processes_are_killed_at_any_moments(seed: int, foreign: Path, tmp_path: Path) -> None:
    """Four deaths at random moments; then the command is killed, or interrupted, or the run ends."""
    end, random_moment = ("killed", "interrupted", "whole")[seed % 3], random.Random(seed)
    ticks = 6_000 if end == "whole" else 3_000_000
    process = started(tmp_path, foreign_config(foreign, tmp_path, ticks, simulators=2, restarts=9), ranks=4)
    for victim in [*random_moment.sample(VICTIMS, len(VICTIMS)), "command"]:
        wait_for(lambda: len(programs_in(tmp_path)) == 2 or process.poll() is not None)
        time.sleep(random_moment.uniform(0.0, 1.5))
        ranks = ranks_in(tmp_path)
        pids = {
            "environment": ranks.get(1),
            "worker": ranks.get(2),
            "simulator": next(iter(programs_in(tmp_path)), None),
        }
        with suppress(ProcessLookupError):  # it has ended, and another one comes into its place
            if victim != "command" and (pid := pids[victim]) is not None:
                os.kill(pid, signal.SIGKILL)
    if end != "whole":
        process.send_signal(signal.SIGKILL if end == "killed" else signal.SIGINT)
    ended = finish(process)
    assert ended.code == {"killed": -signal.SIGKILL, "interrupted": 130, "whole": 0}[end], ended.err


def test_a_program_that_starts_slowly_is_waited_for(tmp_path: Path) -> None:
    written = {**config(tmp_path, "late"), "ticks": 50, "watchdog_s": 1.0}
    written["envs"]["game"]["kwargs"]["command"].append("4")
    ended = train(tmp_path, written, ranks=2)
    assert ended.code == 0, ended.err


def test_a_simulator_that_fails_ends_the_run_with_one_message(tmp_path: Path) -> None:
    ended = train(tmp_path, config(tmp_path, "killed"), ranks=2)
    assert ended.code == 1
    assert "was killed by SIGKILL after 5 hand-overs" in ended.err
    assert "Traceback" not in ended.err
