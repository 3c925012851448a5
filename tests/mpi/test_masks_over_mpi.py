"""Action masks over real links of every kind, the last ones of an episode as well."""

from __future__ import annotations

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


def learning(transport: str = "auto") -> dict[str, Any]:
    """Learned values that depend on last masks: every episode is cut, by the time limit or by the end of the run."""
    options = {"n_step": 1, "learning_starts": 8, "batch_size": 8, "hidden_sizes": [8], "target_update_interval": 1}
    return {
        "name": "masked",
        "seed": 4,
        "ticks": 61,
        "transport": transport,
        "envs": {"game": {"make": "games:Narrow", "kwargs": {"entities": 2, "length": 3}}},
        "policies": {"blue": {"algorithm": "dqn", "options": options}},
        "matches": [{"env": "game", "seats": [["blue", "blue"]], "lanes": 3}],
    }


def weights(run: Path) -> dict[str, bytes]:
    files = checkpoint.list_checkpoints(run / "checkpoints" / "blue")
    return {name: array.tobytes() for name, array in checkpoint.load(files[-1]).state["network"].items()}


def test_last_masks_are_the_same_over_links_of_every_kind(tmp_path: Path) -> None:
    alone = arena(tmp_path, "train", write(tmp_path, learning(), "alone.yaml"), "--run-dir", "alone", "--ranks", "1")
    assert alone.code == 0, alone.err
    for transport in ("auto", "mpi"):
        config = write(tmp_path, learning(transport), f"{transport}.yaml")
        many = arena(tmp_path, "train", config, "--run-dir", transport)
        assert many.code == 0, many.err
        assert weights(tmp_path / transport) == weights(tmp_path / "alone")
