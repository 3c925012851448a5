"""The checksums of a run folder's files: what was written fits them at any instant, and no damage does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.errors import ConfigError
from arena.records import checksums
from arena.records.journal import Journal
from arena.records.lock import RunLock
from damaged_folders import MUTATIONS, damage

LINES = [{"number": number, "text": "x" * number} for number in range(8)]


def journal(path: Path, lines: list[dict[str, int | str]] = LINES) -> Path:
    """Appends lines, each in a write of its own."""
    opened = Journal(path)
    for line in lines:
        opened.append(line)
        opened.flush()
    opened.close()
    return path


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        checksums.check_folder(path.parent)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", MUTATIONS)
@pytest.mark.parametrize("name", ["episodes.jsonl", "config.yaml", "boundaries/000000000020.json"])
def test_damaged_file_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    for seed in range(5):
        path = tmp_path / str(seed) / name
        path.parent.mkdir(parents=True)
        if name == "episodes.jsonl":
            journal(path)
        else:
            checksums.replace(path, b"seed: 1\nticks: 20\nenvs:\n  a: b\n")
        home = tmp_path / str(seed)
        checksums.check_folder(home)
        if damage(path, kind, np.random.default_rng(seed)):
            with pytest.raises(ConfigError, match="changed or damaged after the arena wrote it") as caught:
                checksums.check_folder(home)
            assert str(path) in str(caught.value)


def test_file_without_sum_is_not_checked(tmp_path: Path) -> None:
    path = journal(tmp_path / "episodes.jsonl")
    path.write_bytes(b"{}\n")
    message = refused(path)
    assert f"delete {tmp_path / 'checksums' / 'episodes.jsonl'}" in message
    (tmp_path / "checksums" / "episodes.jsonl").unlink()
    checksums.check_folder(tmp_path)


def test_half_line_after_the_last_one_is_no_damage(tmp_path: Path) -> None:
    path = journal(tmp_path / "episodes.jsonl")
    with path.open("ab") as file:
        file.write(b'{"number": 8')
    checksums.check_folder(tmp_path)
    with path.open("ab") as file:
        file.write(b"}\n")
    refused(path)


def test_reopened_journal_goes_on_with_its_sum(tmp_path: Path) -> None:
    path = journal(tmp_path / "episodes.jsonl", LINES[:3])
    with path.open("ab") as file:
        file.write(b"half")
    journal(path, LINES[3:])
    whole = journal(tmp_path / "metrics.jsonl")
    assert path.read_bytes() == whole.read_bytes()
    found, other = ((tmp_path / "checksums" / each.name).read_bytes().splitlines() for each in (path, whole))
    assert found == other == found[:1] * 2
    checksums.check_folder(tmp_path)


def test_opening_a_damaged_journal_does_not_hide_it(tmp_path: Path) -> None:
    path = journal(tmp_path / "episodes.jsonl")
    damage(path, "flip", np.random.default_rng(0))
    journal(path, LINES[:1])
    refused(path)


def test_kill_at_any_call_of_the_system_is_no_damage(tmp_path: Path) -> None:
    for calls in range(50):
        status = written_until_killed(tmp_path / str(calls), calls)
        checksums.check_folder(tmp_path / str(calls))
        if not status:
            break
        assert status == KILLED
    assert calls > 20 and status == 0


KILLED = 9


def ending(function: Callable[..., Any], left: Iterator[int]) -> Callable[..., Any]:
    """The function, or the end of the process when nothing is left."""
    return lambda *given, **named: os._exit(KILLED) if next(left, None) is None else function(*given, **named)


def written_until_killed(home: Path, calls: int) -> int:
    """Writes files in a child process that ends, without another instruction, at its n-th call; its exit status."""
    home.mkdir()
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        left = iter(range(calls))
        for name in ("pwrite", "replace", "unlink", "open", "truncate", "fsync"):
            setattr(os, name, ending(getattr(os, name), left))
        journal(home / "a.jsonl", LINES[:2])
        checksums.replace(home / "b.json", b"1\n")
        checksums.replace(home / "b.json", b"22\n")
        checksums.cut(home / "a.jsonl", 0)
    except BaseException:
        os._exit(1)
    os._exit(0)


@pytest.mark.parametrize("content", [b"nonsense\n", b"000000000001 00000000\n" * 3, b"1 2\n1 2\n"])
def test_damaged_sum_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    journal(tmp_path / "episodes.jsonl")
    (tmp_path / "checksums" / "episodes.jsonl").write_bytes(content)
    with pytest.raises(ConfigError, match=r"checksums/episodes\.jsonl"):
        checksums.check_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", bytes(44)])
def test_empty_sum_is_that_of_a_killed_writer(tmp_path: Path, content: bytes) -> None:
    path = journal(tmp_path / "episodes.jsonl")
    (tmp_path / "checksums" / "episodes.jsonl").write_bytes(content)
    checksums.check_folder(tmp_path)
    journal(path, LINES[:1])
    checksums.check_folder(tmp_path)
    damage(path, "empty", np.random.default_rng(0))
    refused(path)


def test_pipe_or_link_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    path = journal(tmp_path / "episodes.jsonl")
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    refused(path)
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in refused(path)


def test_short_journal_of_a_run_that_goes_on_is_late(tmp_path: Path) -> None:
    path = journal(tmp_path / "episodes.jsonl")
    os.truncate(path, 10)
    with RunLock.take(tmp_path):
        checksums.check_folder(tmp_path)
    refused(path)


def test_no_checksum_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checksums").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="checksums: is a link"):
        journal(tmp_path / "run" / "episodes.jsonl")
    assert [*(tmp_path / "outside").iterdir()] == []


def test_doubled_checksum_is_renewed(tmp_path: Path) -> None:
    path = journal(tmp_path / "episodes.jsonl")
    kept = tmp_path / "checksums" / path.name
    right = kept.read_bytes()
    kept.write_bytes(right * 2)
    checksums.renew(path)
    assert kept.read_bytes() == right
