"""Samples without a barrier, each worker in a process of its own, in matches of different speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arena.records import checkpoint
from run_cli import trained
from worker_states import state_of


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


@pytest.mark.parametrize(
    "seconds", [pytest.param((0.0, 0.02), marks=pytest.mark.long), (0.02, 0.0)], ids=["slow", "slow root"]
)
def test_workers_of_different_speed_lose_no_samples(seconds: tuple[float, float], tmp_path: Path) -> None:
    run = trained(tmp_path, two_matches(seconds))
    updates, folder = (run / "metrics.jsonl").read_text().splitlines(), run / "checkpoints" / "blue"
    assert checkpoint.load(folder).state["updates"] == len(updates) == json.loads(updates[-1])["update"]
    own = state_of(folder, 60, (0, 0))
    waiting = own["fragments"]["waiting"] if own else []
    left = sum(fragment[0] for queue in waiting for fragment in queue)
    assert 10 * len(updates) + left == 60 * 2, "each fragment has 5 transitions, each batch 10"
