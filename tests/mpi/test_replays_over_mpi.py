"""`record: replays` with killed processes: the files hold what was played, before and after."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from arena.replay.reader import MatchReplays, read_replays
from arena.replay.verify import verify
from run_cli import ARENA, arena, finish, left_behind, start, wait_for, write

RANK = b"OMPI_COMM_WORLD_RANK="
TICKS, LANES = 1500, 2


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def slow(**changes: Any) -> dict[str, Any]:
    """A match in three processes that takes some seconds; its one leg is the whole run."""
    return {
        "name": "slow",
        "ticks": TICKS,
        "checkpoint_every": TICKS,
        "record": "replays",
        "envs": {"game": {"make": "games:Slow", "kwargs": {"length": 7, "seconds": 0.001}}},
        "policies": {"blue": {"algorithm": "workers:Counts"}},
        "matches": [{"env": "game", "seats": ["blue"], "lanes": LANES}],
        **changes,
    }


def process_of(rank: int, cwd: Path) -> int:
    """The process of a rank of the run in this folder."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.path.realpath(entry / "cwd") == os.path.realpath(cwd):
                held = (entry / "environ").read_bytes()
                if RANK in held and int(held.split(RANK)[1].split(b"\0")[0]) == rank:
                    return int(entry.name)
        except OSError:
            continue  # gone, or of another user
    raise AssertionError(f"there is no rank {rank}")


def recorded(run: Path) -> list[Path]:
    return [path for path in run.glob("replays/*/*/*.replay") if path.stat().st_size > 0]


def check(run: Path) -> tuple[MatchReplays, float]:
    """Compares the replays with the game; returns the share of recorded episodes that they cover."""
    match = read_replays(run).match(0)
    assert [found for _, differences in verify(match) for found in differences] == []
    lines = {(e["lane"], e["episode"]): (e["tick"], e["length"]) for e in JournalReader(run / "episodes.jsonl")}
    there = {(one.lane, one.number): (one.end, one.length) for one in match.episodes()}
    assert there.items() <= lines.items()
    return match, len(there) / len(lines)


def test_match_of_a_failed_environment_is_replayed_from_the_boundary(tmp_path: Path) -> None:
    gated = {"make": "games:Gated", "kwargs": {"length": 7, "gate": str(tmp_path / "gate"), "at": TICKS - 10}}
    process = start([*ARENA, "train", write(tmp_path, slow(envs={"game": gated})), "--run-dir", "run"], tmp_path)
    wait_for(lambda: recorded(tmp_path / "run") or process.poll() is not None)
    os.kill(process_of(1, tmp_path), signal.SIGKILL)
    (tmp_path / "gate").touch()
    ended = finish(process)
    assert ended.code == 0, ended.err
    match, share = check(tmp_path / "run")
    assert [(one.start, one.ticks) for one in match.recordings] == [(0, TICKS)]
    assert share == 1


@pytest.mark.long
def test_replays_of_a_killed_run_are_complete_after_resume(tmp_path: Path) -> None:
    config = slow(checkpoint_every=500)
    process = start([*ARENA, "train", write(tmp_path, config), "--ranks", "1", "--run-dir", "run"], tmp_path)
    wait_for(lambda: len(recorded(tmp_path / "run")) > 1 or process.poll() is not None)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    run = tmp_path / "run"
    match = read_replays(run).match(0)
    assert [found for _, differences in verify(match) for found in differences] == []
    assert match.episodes()
    ended = arena(tmp_path, "train", "config.yaml", "--ranks", "1", "--run-dir", "run", "--resume")
    assert ended.code == 0, ended.err
    match, share = check(run)
    assert share == 1
    assert [(one.start, one.ticks) for one in match.recordings] == [(0, 500), (500, 500), (1000, 500)]
    verified = arena(tmp_path, "replay", "run", "--verify")
    assert (verified.code, verified.err) == (0, "")
    assert "all as recorded" in verified.out
