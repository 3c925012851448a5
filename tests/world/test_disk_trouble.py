"""Runs whose disk becomes full or whose folder is deleted: they end with one sentence, and saved files stay."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from arena.errors import WriteError
from arena.records import checkpoint
from arena.records.recorder import Recorder
from arena.roles.protocol import RoleFailed
from full_disk import full_above
from in_process import one_match, play


def run_of(algorithm: str, ticks: int = 2000, **options: Any) -> Any:
    policies = {"blue": {"algorithm": algorithm, "options": options}}
    given = {"seed": 5, "checkpoint_every": 100, "match": {"lanes": 2}}
    return one_match({"make": "games:Countdown"}, policies, ticks=ticks, **given)


def test_full_disk_ends_the_run_and_resume_works(tmp_path: Path) -> None:
    data = run_of("workers:Counts")
    with full_above(20_000), pytest.raises(WriteError, match=r"episodes.jsonl cannot be written: File too large"):
        play(data, tmp_path, given=True)
    folder = tmp_path / "run" / "checkpoints" / "blue"
    reached = checkpoint.load(folder).ticks
    assert 0 < reached < 2000
    again = play(data, tmp_path, resume=True)
    whole = play(data, tmp_path / "whole", given=True)
    assert again.episodes == whole.episodes
    assert ("loaded", reached) in again.notes


def test_full_disk_at_a_checkpoint_ends_the_run_and_names_the_worker(tmp_path: Path) -> None:
    data = run_of("faulty_workers:GrowingState", by=20)
    with full_above(20_000), pytest.raises(RoleFailed, match=r"\.ckpt cannot be written: File too large") as caught:
        play(data, tmp_path, given=True)
    failure = caught.value.failure
    assert (failure.exit_code, "Traceback" in failure.message) == (1, False)
    assert "worker of policy 'blue'" in failure.who
    folder = tmp_path / "run" / "checkpoints" / "blue"
    newest = checkpoint.list_checkpoints(folder)[-1]
    assert checkpoint.load(newest).ticks == checkpoint.ticks_of(newest) > 0


def test_deleted_run_folder_ends_the_run_and_stays_deleted(tmp_path: Path) -> None:
    data = run_of("faulty_workers:Deletes", folder=str(tmp_path / "run"))
    with pytest.raises((RoleFailed, WriteError), match="is not there any more"):
        play(data, tmp_path, given=True)
    assert not (tmp_path / "run").exists()


def test_clock_set_back_in_mid_run_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = run_of("workers:Counts", ticks=300)
    expected = play(data, tmp_path / "steady", given=True)
    now = [2e9]

    def back() -> float:
        now[0] -= 3600.0
        return now[0]

    monkeypatch.setattr(time, "time", back)
    monkeypatch.setitem(Recorder.__init__.__kwdefaults__, "now", back)
    played = play(data, tmp_path / "back", given=True)
    assert played.episodes == expected.episodes
    assert len(played.updates) == len(expected.updates)
    shutil.rmtree(played.folder.path / "tensorboard")
