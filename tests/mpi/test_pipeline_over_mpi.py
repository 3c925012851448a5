"""Matches that overlap two halves of their lanes, over real links of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.records import checkpoint
from run_cli import arena, episodes, left_behind, wait_for, write

PPO = {"algorithm": "ppo", "options": {"n_steps": 50, "minibatch_size": 64}}


def duel(pipeline: int, *, transport: str = "auto", blue: Any = None) -> dict[str, Any]:
    return {
        "name": "duel",
        "seed": 4,
        "ticks": 300,
        "transport": transport,
        "envs": {"game": {"make": "games:RandomLengths"}},
        "policies": {"blue": blue or {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 5, "copies": 2, "pipeline": pipeline}],
    }


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


@pytest.mark.parametrize("transport", ["auto", "mpi"])
def test_overlapped_match_over_mpi_equals_a_plain_one(transport: str, tmp_path: Path) -> None:
    plain = write(tmp_path, duel(1), "plain.yaml")
    overlapped = write(tmp_path, duel(2, transport=transport), "overlapped.yaml")
    one = arena(tmp_path, "train", plain, "--run-dir", "one", "--ranks", "1")
    many = arena(tmp_path, "train", overlapped, "--run-dir", "many")
    assert (one.code, many.code) == (0, 0), one.err + many.err
    assert len(episodes(tmp_path / "one")) > 200
    assert episodes(tmp_path / "many") == episodes(tmp_path / "one")


def weights(run: Path) -> dict[str, bytes]:
    files = checkpoint.list_checkpoints(run / "checkpoints" / "blue")
    return {name: array.tobytes() for name, array in checkpoint.load(files[-1]).state["network"].items()}


@pytest.mark.parametrize("ranks", [7, pytest.param(3, marks=pytest.mark.long)])
def test_overlapped_learner_over_mpi_equals_one_process(ranks: int, tmp_path: Path) -> None:
    data = duel(2, blue=PPO)
    data["envs"]["game"] = {"make": "touchdown", "kwargs": {"max_steps": 12}}
    config = write(tmp_path, data)
    one = arena(tmp_path, "train", config, "--run-dir", "one", "--ranks", "1")
    many = arena(tmp_path, "train", config, "--run-dir", "many", "--ranks", str(ranks))
    assert (one.code, many.code) == (0, 0), one.err + many.err
    assert episodes(tmp_path / "many") == episodes(tmp_path / "one")
    assert weights(tmp_path / "many") == weights(tmp_path / "one")
