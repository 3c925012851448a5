"""Runs whose policies have no options."""

from __future__ import annotations

from pathlib import Path

import pytest

from in_process import one_match, play


@pytest.mark.parametrize("sync", ["gradients", pytest.param("samples", marks=pytest.mark.long)])
def test_workers_with_unequal_rows_synchronize_at_the_same_ticks(tmp_path: Path, sync: str) -> None:
    """By its own row the first worker, the writer, would have rollouts of 375 ticks, an eighth of the run."""
    blue = {"algorithm": "ppo", "options": {"hidden_sizes": [8]}, "sync": sync}
    game, policies = {"make": "touchdown", "kwargs": {"max_steps": 60}}, {"blue": blue, "red": {"algorithm": "random"}}
    matches = [{"env": "game", "seats": ["blue", "red"], "lanes": lanes} for lanes in (1, 3)]
    played = play(one_match(game, policies, ticks=3000, seed=3, matches=matches), tmp_path, given=True)
    assert [update["ticks"] for update in played.updates] == [341 * number for number in range(1, 9)]
