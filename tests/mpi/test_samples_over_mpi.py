"""Samples without a barrier, each worker in a process of its own, in matches of different speed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.records import checkpoint
from run_cli import arena, left_behind, wait_for, write


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def two_matches(seconds: tuple[float, float]) -> dict[str, Any]:
    """Two matches, of which the first is played by the group's root."""
    options = {"n_steps": 5, "minibatch_size": 16, "n_epochs": 1, "hidden_sizes": [64, 64]}
    blue = {"algorithm": "ppo", "options": options, "sync": "samples", "max_lag": 2}
    matches = [{"env": "game", "seats": ["blue"], "env_kwargs": {"seconds": pause}} for pause in seconds]
    return {
        "name": "speeds",
        "ticks": 60,
        "checkpoint_every": 33,
        "envs": {"game": {"make": "games:Slow"}},
        "policies": {"blue": blue},
        "matches": matches,
    }


@pytest.mark.parametrize("seconds", [(0.0, 0.02), (0.02, 0.0)], ids=["slow", "slow root"])
def test_workers_of_different_speed_lose_no_samples(seconds: tuple[float, float], tmp_path: Path) -> None:
    ended = arena(tmp_path, "train", write(tmp_path, two_matches(seconds)), "--run-dir", "run")
    assert ended.code == 0, ended.err
    updates = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    folder = tmp_path / "run" / "checkpoints" / "blue"
    assert checkpoint.load(folder).state["updates"] == len(updates) == json.loads(updates[-1])["update"]
    own = checkpoint.worker_path_of(folder, 60, (0, 0))
    waiting = checkpoint.load(own).state["fragments"]["waiting"] if own.exists() else []
    left = sum(fragment[0] for queue in waiting for fragment in queue)
    assert 10 * len(updates) + left == 60 * 2, "each fragment has 5 transitions, each batch 10"
