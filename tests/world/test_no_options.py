"""Runs whose policies have no options."""

from __future__ import annotations

from pathlib import Path

import pytest

from staging import play

TOUCHDOWN = {"make": "touchdown", "kwargs": {"max_steps": 60}}
SMALL = {"hidden_sizes": [8]}


@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_workers_with_different_numbers_of_rows_meet_after_the_same_ticks(tmp_path: Path, sync: str) -> None:
    """The worker with 3 rows and the one with 1 would have rollouts of 341 and 1024 ticks if each asked only itself."""
    data = {
        "ticks": 3000,
        "seed": 3,
        "envs": {"game": TOUCHDOWN},
        "policies": {"blue": {"algorithm": "ppo", "options": SMALL, "sync": sync}, "red": {"algorithm": "random"}},
        "matches": [
            {"env": "game", "seats": ["blue", "red"], "lanes": 3},
            {"env": "game", "seats": ["blue", "red"], "lanes": 1},
        ],
    }
    played = play(data, tmp_path, given=True)
    assert [update["ticks"] for update in played.updates] == [341 * number for number in range(1, 9)]
