"""Messages and files of a run whose disk is full, whose folder is gone, or whose clock is set back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from arena.errors import ConfigError, WriteError
from arena.experiment.folder import trial_lock
from arena.records import checkpoint, checksums
from arena.records.atomic import part_of, private, replace_folder
from arena.records.folder import RunFolder
from arena.records.journal import Journal, JournalReader
from arena.records.lock import RunLock
from arena.records.metrics import UpdateRecord
from arena.run.console import direct_output
from full_disk import full_above


def save(folder: Path, ticks: int, size: int = 10) -> Path:
    return checkpoint.save(folder, {"w": np.zeros(size)}, policy="blue", algorithm="a", ticks=ticks, update=1)


def update(number: int) -> UpdateRecord:
    return UpdateRecord("blue", number, number, number, 0.0, {"loss": 1.0})


def test_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rename = tmp_path / "model", os.replace
    replace_folder(path, {"a": b"1", "b": b"1"})
    replace_folder(path, {"a": b"2"})
    assert [(file.name, file.read_bytes()) for file in path.iterdir()] == [("a", b"2")]
    with full_above(1000), pytest.raises(WriteError, match="model cannot be written: File too large"):
        replace_folder(path, {"a": b"3", "b": bytes(5000)})

    def fails(source: Path, target: Path) -> None:
        if source.name == ".model.part":
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(WriteError, match="model cannot be written: Permission denied"):
        replace_folder(path, {"a": b"4"})
    assert list(tmp_path.iterdir()) == [path]
    assert (path / "a").read_bytes() == b"2"


WRITERS: dict[str, Callable[[Path], object]] = {
    "replacing": lambda path: RunFolder(path.parent).write_config("new"),
    "checkpoint": lambda path: checkpoint.duplicate(save(path.parent / "other", 1), path),
    "folder": lambda path: replace_folder(path, {"file": b"new"}),
}
APPENDERS: dict[str, Callable[[Path], object]] = {
    "journal": Journal,
    "log": direct_output,
    "lock": lambda path: RunLock.take(path.parent),
    "state of a trial": lambda path: trial_lock(path).__enter__(),
    "opener": lambda path: private(str(path), os.O_WRONLY | os.O_APPEND),
}
NAMED = {"replacing": "config.yaml", "lock": "lock"}


@pytest.mark.parametrize("there", ["link", "dangling link", "hard link", "fifo", "file"])
@pytest.mark.parametrize("writer", WRITERS)
def test_new_file_is_made_where_nothing_is(writer: str, there: str, tmp_path: Path) -> None:
    """Whatever lies where the new version is written is removed, not written to."""
    outside, path = tmp_path / "outside", tmp_path / "run" / NAMED.get(writer, "file")
    path.parent.mkdir()
    outside.write_bytes(b"mine")
    part = part_of(path)
    if there == "fifo":
        os.mkfifo(part)
    elif there == "file":
        part.write_bytes(b"of a killed process")
    elif there == "hard link":
        part.hardlink_to(outside)
    else:
        part.symlink_to(outside if there == "link" else tmp_path / "nothing")
    WRITERS[writer](path)
    assert path.exists()
    assert not path.is_symlink()
    assert outside.read_bytes() == b"mine"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("writer", WRITERS)
def test_link_in_the_place_of_a_file_is_replaced(writer: str, tmp_path: Path) -> None:
    outside, path = tmp_path / "outside", tmp_path / "run" / NAMED.get(writer, "file")
    path.parent.mkdir()
    outside.mkdir() if writer == "folder" else outside.write_bytes(b"mine")
    path.symlink_to(outside)
    WRITERS[writer](path)
    assert not path.is_symlink()
    assert list(outside.iterdir()) == [] if writer == "folder" else outside.read_bytes() == b"mine"


@pytest.mark.parametrize("there", ["link", "dangling link", "fifo", "folder"])
@pytest.mark.parametrize("appender", APPENDERS)
def test_file_that_is_appended_to_is_no_link(appender: str, there: str, tmp_path: Path) -> None:
    outside, path = tmp_path / "outside", tmp_path / "run" / NAMED.get(appender, "file")
    path.parent.mkdir()
    outside.write_bytes(b"mine\n")
    if there == "folder":
        path.mkdir()
    elif there == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(outside if there == "link" else tmp_path / "nothing")
    with pytest.raises((OSError, ConfigError), match=r"run/(file|lock)|'.*/run'"):
        APPENDERS[appender](path)
    assert outside.read_bytes() == b"mine\n"
    assert not (tmp_path / "nothing").exists()


def test_failed_checkpoint_keeps_only_the_older_one(tmp_path: Path) -> None:
    folder = tmp_path / "blue"
    older = save(folder, 10)
    with full_above(4000), pytest.raises(WriteError, match="cannot be written: File too large"):
        save(folder, 20, size=10_000)
    assert list(folder.iterdir()) == [older]
    assert checkpoint.load(folder).ticks == 10


def test_journal_on_a_full_disk_keeps_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    journal = Journal(path)
    journal.append({"n": 1})
    journal.flush()
    journal.append({"text": "x" * 500})
    with full_above(100):
        with pytest.raises(WriteError, match=r"lines.jsonl cannot be written: File too large"):
            journal.flush()
        with pytest.raises(WriteError, match=r"lines.jsonl cannot be written"):
            journal.close()
    assert next(iter(JournalReader(path))) == {"n": 1}
    with Recorderless(path) as again:
        again.append({"n": 2})
    assert list(JournalReader(path)) == [{"n": 1}, {"n": 2}]
    checksums.check_folder(tmp_path)


class Recorderless(Journal):
    """A journal as a context manager."""

    def __enter__(self) -> Recorderless:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.mark.parametrize("how", ["deleted", "moved away", "replaced"])
def test_moved_journal_is_reported(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    journal = Journal(folder / "lines.jsonl")
    if how == "deleted":
        shutil.rmtree(folder)
    elif how == "moved away":
        folder.rename(tmp_path / "elsewhere")
    else:
        (folder / "lines.jsonl").unlink()
        (folder / "lines.jsonl").touch()
    journal.append({"n": 1})
    words = "is another file now" if how == "replaced" else "it, or its folder, is not there any more"
    for call in (journal.flush, journal.close):
        with pytest.raises(WriteError, match=words):
            call()
