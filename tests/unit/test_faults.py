"""The file of faults: both kinds of lines, their sums and their descriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arena.errors import ConfigError
from arena.records.faults import FaultKind, FaultLog, Losses, losses, process_faults
from arena.records.journal import Journal

DEATH = {"ranks": [3], "done": "rank 3 died", "replayed": 100, "seconds": 0.25}
RESTART = {"match": 0, "tick": 7, "lanes": [1, 2], "error": "ValueError: no", "seconds": 0.5}


def log(path: Path, *faults: tuple[FaultKind, dict[str, Any]]) -> Path:
    for kind, fields in faults:
        FaultLog(path).append(kind, fields)
    return path


def test_a_missing_file_has_no_faults(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    assert losses(path) == Losses(0, 0)
    assert process_faults(path) == 0


def test_sums_of_a_file_with_both_kinds(tmp_path: Path) -> None:
    faults = ((FaultKind.PROCESS, DEATH), (FaultKind.ENVIRONMENT, RESTART), (FaultKind.ENVIRONMENT, RESTART))
    path = log(tmp_path / "faults.jsonl", *faults)
    assert losses(path) == Losses(restarts=2, episodes=4)
    assert process_faults(path) == 1


def test_a_line_without_the_fields_of_its_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    journal = Journal(path)
    journal.append({"time": "2026-01-01T00:00:00.000", "kind": "environment", "match": 0})
    journal.close()
    with pytest.raises(ConfigError, match=r"faults\.jsonl: line 1: is damaged, .*lacks 'lanes'"):
        losses(path)
