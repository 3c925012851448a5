"""A callback that fails, or asks for the end, in a run of real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from run_cli import arena, write


def run_of(name: str, **options: Any) -> dict[str, Any]:
    return {
        "name": "heard",
        "ticks": 1_000_000,
        "checkpoint_every": 1_000_000,
        "envs": {"game": {"make": "games:Countdown"}},
        "policies": {"blue": {"algorithm": "workers:Counts"}},
        "matches": [{"env": "game", "seats": ["blue"], "copies": 2, "lanes": 2}],
        "callbacks": [{"class": f"recorders:{name}", "options": options}],
    }


def test_failing_callback_is_reported_once(tmp_path: Path) -> None:
    config = write(tmp_path, run_of("Fails", where="update", nth=3))
    ended = arena(tmp_path, "train", config, "--run-dir", "run")
    assert ended.code == 1, ended.err
    assert ended.err.count("Traceback") == 1, ended.err
    assert "arena: the run has ended: callback recorders:Fails\n" in ended.err
    assert ended.err.count("ZeroDivisionError: fails at update") == 1, ended.err
    assert "MPI_ABORT" not in ended.err


def test_callback_stop_ends_the_run_normally(tmp_path: Path) -> None:
    config = write(tmp_path, run_of("Stops", where="update", nth=3))
    ended = arena(tmp_path, "train", config, "--run-dir", "run")
    assert ended.code == 0, ended.err
    assert "asked to stop by callback recorders:Stops; --resume goes on from there" in ended.err
    newest = max((tmp_path / "run" / "boundaries").iterdir())
    assert 0 < json.loads(newest.read_text())["tick"] < 1_000_000
