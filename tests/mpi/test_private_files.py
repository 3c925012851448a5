"""The files of a run are private to their owner and inside its folder, for any umask."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from in_process import one_match
from run_cli import ARENA, finish, start, write

UNMASKED = "import os, sys; os.umask(0); os.execv(sys.argv[1], sys.argv[1:])"
POLICIES = {"blue": {"algorithm": "learners:LearnerWithActor"}, "red": {"algorithm": "random"}}
GAME = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
DUEL = one_match(GAME, POLICIES, ticks=120, match={"lanes": 2}, name="duel", checkpoint_every=40)


def arena(cwd: Path, *arguments: str) -> None:
    ended = finish(start([sys.executable, "-c", UNMASKED, *ARENA, *arguments], cwd))
    assert ended.code == 0, ended.err


def open_to_others(folder: Path) -> list[str]:
    """Files that are not 0600, and folders that are not 0700."""
    found = []
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600) or path.is_symlink():
            found.append(f"{path.relative_to(folder)} {mode:o}")
    return found


@pytest.mark.parametrize("ranks", [pytest.param("1", marks=pytest.mark.long), "2"])
def test_files_of_run_resume_and_evaluation_are_private(ranks: str, tmp_path: Path) -> None:
    config, run = write(tmp_path, DUEL), tmp_path / "runs" / "duel"
    before = {*tmp_path.iterdir(), tmp_path / "runs"}
    arena(tmp_path, "train", config, "--ranks", ranks, "--profile")
    arena(tmp_path, "train", config, "--ranks", ranks, "--run-dir", "runs/duel", "--resume", "--ticks", "200")
    arena(tmp_path, "evaluate", "runs/duel", "--episodes", "4", "--against", "random")
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "logs", "tensorboard", "checkpoints", "episodes.jsonl", "evaluations"} <= names
    assert open_to_others(run) == []
    assert {*tmp_path.iterdir()} == before, "nothing is written elsewhere"
    assert os.listdir(tmp_path / "runs") == ["duel"]
