"""A run that can deadlock is refused before anybody plays, however it is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launching import Ended, arena, by_hand, left_behind, wait_for, write

pytestmark = pytest.mark.mpi

WAYS: dict[str, Callable[..., Ended]] = {
    "launched": lambda folder, *words: arena(folder, *words),
    "by hand": lambda folder, *words: by_hand(folder, 3, *words),
    "one process": lambda folder, *words: arena(folder, *words, "--ranks", "1"),
}


def crossed(algorithm: str) -> dict[str, Any]:
    """Two policies that meet in two matches; in each, one of them is out of the episode before the other."""
    return {
        "name": "crossed",
        "ticks": 50,
        "envs": {"game": {"make": "games:Dropout", "kwargs": {"lengths": [1, 60]}}},
        "policies": {name: {"algorithm": algorithm} for name in ("blue", "red")},
        "matches": [{"env": "game", "seats": ["blue", "red"]}, {"env": "game", "seats": ["red", "blue"]}],
    }


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_that_can_deadlock_is_refused_with_its_circle_and_leaves_nothing(way: str, tmp_path: Path) -> None:
    config = write(tmp_path, crossed("leagues:AtEpisodes"))
    ended = WAYS[way](tmp_path, "train", config, "--run-dir", "run")
    assert ended.code == 2, ended.err
    assert f"arena: error: {config}: the run can deadlock: the workers of blue, red" in ended.err
    assert "worker of policy 'red' in seat " in ended.err
    assert "--allow-unproved" in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run").exists()
    wait_for(lambda: not left_behind(tmp_path), timeout=10)


@pytest.mark.parametrize("way", WAYS)
def test_the_same_plan_is_played_when_its_workers_meet_at_ticks(way: str, tmp_path: Path) -> None:
    ended = WAYS[way](tmp_path, "train", write(tmp_path, crossed("leagues:AtTicks")), "--run-dir", "run")
    assert ended.code == 0, ended.err


def test_a_run_that_was_allowed_and_gets_stuck_ends_with_its_circle(tmp_path: Path) -> None:
    config = write(tmp_path, crossed("leagues:AtEpisodes"))
    ended = arena(tmp_path, "train", config, "--run-dir", "run", "--ranks", "1", "--allow-unproved")
    assert ended.code == 1, ended.err
    assert "worker of policy 'blue' in seat 0 of match 0 waits for" in ended.err


def test_neither_the_plan_nor_the_refusal_of_what_needs_no_torch_loads_it(tmp_path: Path) -> None:
    config = write(tmp_path, crossed("leagues:AtEpisodes"))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None  # importing it is an error\n")
    assert arena(tmp_path, "plan", config, PYTHONPATH=_path(tmp_path)).code == 0
    ended = arena(tmp_path, "train", config, "--ranks", "1", "--run-dir", "run", PYTHONPATH=_path(tmp_path))
    assert ended.code == 2, ended.err


def _path(first: Path) -> str:
    return ":".join([str(first), *(entry for entry in sys.path if entry)])
