"""Every process of a run is killed in mid-leg, and the run is resumed: it leaves the bytes of an undisturbed run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from run_cli import ARENA, TESTS, arena, finish, left_behind, start, wait_for, write


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def ppo(n_steps: int) -> dict[str, Any]:
    return {"algorithm": "ppo", "options": {"n_steps": n_steps, "minibatch_size": 64, "hidden_sizes": [16]}}


def duel(*, ticks: int, every: int, **policies: Any) -> dict[str, Any]:
    """Two matches of two learners: seven roles."""
    return {
        "name": "duel",
        "seed": 4,
        "ticks": ticks,
        "checkpoint_every": every,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 60}}},
        "policies": {"blue": ppo(32), "red": ppo(48), **policies},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 4, "copies": 2}],
    }


def left_by(run: Path) -> dict[str, Any]:
    """The files that must be equal. Policies learn in parallel, so updates are compared per policy."""
    states = {str(path.relative_to(run)): path.read_bytes() for path in (run / "checkpoints").rglob("*.ckpt")}
    updates: dict[str, list[Any]] = {}
    for line in JournalReader(run / "metrics.jsonl"):
        updates.setdefault(line["policy"], []).append({**line, "seconds": 0})
    return {**states, "episodes": (run / "episodes.jsonl").read_bytes(), "updates": updates}


def processes_in(cwd: Path) -> list[int]:
    """All processes with this working folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.path.realpath(entry / "cwd") == os.path.realpath(cwd):
                found.append(int(entry.name))
        except OSError:
            continue  # gone, or of another user
    return found


def kill_all(cwd: Path) -> int:
    """Sends SIGKILL to all processes at once, so that none sees another one die; returns their number."""
    victims = processes_in(cwd)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in victims:
            with suppress(ProcessLookupError):  # one that has come to its end meanwhile
                os.kill(pid, number)
    return len(victims)


def newest_boundary(run: Path) -> int:
    return max((int(path.stem) for path in run.glob("boundaries/[0-9]*.json")), default=0)


@pytest.mark.long
def test_run_killed_twice_is_bit_equal_after_resume(tmp_path: Path) -> None:
    config = write(tmp_path, duel(ticks=2400, every=300))
    run = tmp_path / "run"
    undisturbed = arena(tmp_path, "train", config, "--run-dir", "whole", "--ranks", "1")
    assert undisturbed.code == 0, undisturbed.err
    for reached, resume in ((300, []), (1200, ["--resume"])):
        process = start([*ARENA, "train", config, "--run-dir", "run", *resume], tmp_path)
        lines = run / "metrics.jsonl"
        wait_for(lambda reached=reached: newest_boundary(run) >= reached)
        size = lines.stat().st_size
        wait_for(lambda: lines.stat().st_size > size)  # noqa: B023 - waits here: the next leg is under way
        assert process.poll() is None, "it is still playing"
        assert kill_all(tmp_path) >= 8
        assert finish(process).code != 0
        assert reached <= newest_boundary(run) < 2400
    ended = arena(tmp_path, "train", config, "--run-dir", "run", "--resume")
    assert ended.code == 0, ended.err
    assert "goes on at tick" in ended.out
    assert left_by(run) == left_by(tmp_path / "whole")


@pytest.mark.long
def test_single_file_script_resumes_to_the_same_curves(tmp_path: Path) -> None:
    """Unmodified: it does not know the arena, imports torch when it runs, and its workers never synchronize."""
    blue = {
        "algorithm": "scripts:Script",
        "independent": True,
        "options": {"path": str(TESTS / "single_file.py")},
    }
    data = duel(ticks=2400, every=300, blue=blue)
    data["envs"] = {"game": {"make": "gymnasium:CartPole-v1"}}
    data["matches"] = [{"env": "game", "seats": ["blue"], "copies": 2}]
    command = ["train", write(tmp_path, data), "--ranks", "3"]
    undisturbed = arena(tmp_path, *command, "--run-dir", "whole")
    assert undisturbed.code == 0, undisturbed.err
    expected = left_by(tmp_path / "whole")
    for updates in (expected["updates"][f"blue#{number}"] for number in range(2)):
        lengths = [update["length"] for update in updates]
        assert sum(lengths[-20:]) > sum(lengths[:20]), "it learns"
    assert expected["updates"]["blue#0"][-1]["loss"] != expected["updates"]["blue#1"][-1]["loss"]

    (tmp_path / "halt").write_text("700")
    process = start([*ARENA, *command, "--run-dir", "run"], tmp_path)
    wait_for(lambda: newest_boundary(tmp_path / "run") >= 600)
    assert kill_all(tmp_path) >= 3
    assert finish(process).code != 0
    (tmp_path / "halt").unlink()
    ended = arena(tmp_path, *command, "--run-dir", "run", "--resume")
    assert ended.code == 0, ended.err
    assert "goes on at tick 600" in ended.out
    assert left_by(tmp_path / "run") == expected


def test_run_resumed_in_another_packing_is_bit_equal(tmp_path: Path) -> None:
    learners = {name: {"algorithm": "learners:VectorLearner"} for name in ("blue", "red")}
    config = write(tmp_path, duel(ticks=400, every=100, **learners))
    ended = arena(tmp_path, "train", config, "--run-dir", "whole", "--ranks", "1")
    assert ended.code == 0, ended.err
    parts = ["train", config, "--run-dir", "parts"]
    for ranks, more in ((3, ["--ticks", "200"]), (1, ["--ticks", "300", "--resume"]), (7, ["--resume"])):
        ended = arena(tmp_path, *parts, "--ranks", str(ranks), *more)
        assert ended.code == 0, ended.err
    expected = left_by(tmp_path / "whole")
    assert expected["episodes"].count(b"\n") > 50
    assert left_by(tmp_path / "parts") == expected


@pytest.mark.long
def test_descriptors_do_not_grow_over_hundreds_of_legs(tmp_path: Path) -> None:
    learners = {name: {"algorithm": "learners:VectorLearner"} for name in ("blue", "red")}
    config = write(tmp_path, duel(ticks=10**9, every=7, **learners))
    process = start([*ARENA, "train", config, "--run-dir", "run"], tmp_path)
    held: list[list[int]] = []
    for legs in (20, 320):
        wait_for(lambda legs=legs: newest_boundary(tmp_path / "run") >= 7 * legs)
        held.append(descriptors(tmp_path))
    assert process.poll() is None
    kill_all(tmp_path)
    finish(process)
    assert len(held[0]) == len(held[1]) >= 8
    assert max(late - early for early, late in zip(*held, strict=True)) <= 6, (
        "a leg has some at its end that it has not at its beginning"
    )


def descriptors(cwd: Path) -> list[int]:
    """How many each process in a folder has open."""
    return [len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in sorted(processes_in(cwd))]
