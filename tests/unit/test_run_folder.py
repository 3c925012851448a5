"""The run folder: its tree, its permissions, and exclusive use."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.errors import ConfigError
from arena.records.folder import RunFolder


def started(path: Path) -> RunFolder:
    """A run that has written its first file."""
    folder = RunFolder.open(path)
    folder.write_config("name: x\n")
    return folder


def test_runs_of_one_name_get_folders_of_their_own(tmp_path: Path) -> None:
    names = [started(tmp_path / "x").path.name for _ in range(3)]
    assert names == ["x", "x-2", "x-3"]
    both = [RunFolder.open(tmp_path / "x").path.name for _ in range(2)]
    assert both == ["x-4", "x-5"], "two that start at the same instant"
    with pytest.raises(ConfigError, match=r"x: the run folder holds files already; continue a run with --resume"):
        RunFolder.open(tmp_path / "x", named=True)


def test_empty_or_missing_named_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert RunFolder.open(tmp_path / "empty", named=True).path == tmp_path / "empty"
    assert RunFolder.open(tmp_path / "a" / "b", named=True).path == tmp_path / "a" / "b"


def unbegun(path: Path, *boundaries: str) -> RunFolder:
    """The folder of a run that was killed before its configuration was written."""
    folder = RunFolder.open(path)
    folder.boundaries.mkdir()
    for name in boundaries:
        (folder.boundaries / name).write_text("{}")
    for file in (folder.rounds, folder.tournament):
        file.write_text("{}")
    return folder


@pytest.mark.parametrize("left", ["000000000000.json", ".000000000000.json.part"])
def test_remains_of_a_killed_start_are_reused_or_removed(tmp_path: Path, left: str) -> None:
    folder = unbegun(tmp_path / "x", left)
    assert RunFolder.open(folder.path, named=True).path == folder.path
    folder.remove_unbegun(whole=True)
    assert not folder.path.exists()


def test_played_run_or_a_file_is_not_claimed(tmp_path: Path) -> None:
    folder = unbegun(tmp_path / "played", "000000000000.json", "000000000040.json")
    with pytest.raises(ConfigError, match="holds files already"):
        RunFolder.open(folder.path, named=True)
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigError, match="the run folder is a file"):
        RunFolder.open(tmp_path / "x", named=True)
    with pytest.raises(ConfigError, match="cannot be made"):
        RunFolder.open(tmp_path / "x" / "y", named=True)


def test_resume_takes_the_last_run_of_the_name_or_the_named_folder(tmp_path: Path) -> None:
    for _ in range(10):
        started(tmp_path / "x")
    started(tmp_path / "x-other")
    assert RunFolder.open(tmp_path / "x", resume=True).path.name == "x-10"
    assert RunFolder.open(tmp_path / "x", resume=True, named=True).path.name == "x"


def test_experiment_is_no_run_and_its_runs_are_named(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").touch()
    with pytest.raises(
        ConfigError, match=r"not a run folder: it is an experiment, whose runs are in .*trials; name one"
    ):
        RunFolder.existing(tmp_path)


@pytest.mark.parametrize("given", [True, False])
def test_resume_without_a_run_is_refused_and_creates_nothing(tmp_path: Path, given: bool) -> None:
    with pytest.raises(
        ConfigError, match=r"not a run folder: it does not exist; .* with --run-dir, or leave --resume out"
    ):
        RunFolder.open(tmp_path / "x", resume=True, named=given)
    assert list(tmp_path.iterdir()) == []
