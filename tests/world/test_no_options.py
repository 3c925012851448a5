"""Runs whose policies have no options."""

from __future__ import annotations

from pathlib import Path

import pytest

from in_process import play

TOUCHDOWN = {"make": "touchdown", "kwargs": {"max_steps": 60}}
SMALL = {"hidden_sizes": [8]}


@pytest.mark.parametrize("sync", ["gradients", pytest.param("samples", marks=pytest.mark.long)])
def test_workers_with_unequal_rows_synchronize_at_the_same_ticks(tmp_path: Path, sync: str) -> None:
    """By its own row the first worker, the writer, would have rollouts of 375 ticks, an eighth of the run."""
    data = {
        "ticks": 3000,
        "seed": 3,
        "envs": {"game": TOUCHDOWN},
        "policies": {"blue": {"algorithm": "ppo", "options": SMALL, "sync": sync}, "red": {"algorithm": "random"}},
        "matches": [
            {"env": "game", "seats": ["blue", "red"], "lanes": 1},
            {"env": "game", "seats": ["blue", "red"], "lanes": 3},
        ],
    }
    played = play(data, tmp_path, given=True)
    assert [update["ticks"] for update in played.updates] == [341 * number for number in range(1, 9)]
