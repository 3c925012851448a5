"""JSON lines that survive a kill."""

from __future__ import annotations

import math
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from arena.errors import ConfigError
from arena.records.journal import Journal, JournalReader


class Line(msgspec.Struct):
    tick: int


def write(path: Path, *lines: dict[str, Any]) -> None:
    journal = Journal(path)
    for line in lines:
        journal.append(line)
    journal.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


def test_lines_of_two_writers_come_back_in_order(path: Path) -> None:
    lines = [{"tick": tick, "name": "ä\n"} for tick in range(5)]
    write(path, *lines[:3])
    write(path, *lines[3:])
    assert list(JournalReader(path)) == lines
    assert path.read_bytes().count(b"\n") == 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_numbers_of_numpy_are_numbers_and_null_where_not_finite(path: Path) -> None:
    write(path, {"a": np.float64(0.5), "b": np.int64(3), "c": np.bool_(True)}, {"a": math.nan, "b": np.float32("-inf")})
    assert path.read_text() == '{"a":0.5,"b":3,"c":true}\n{"a":null,"b":null}\n'


def test_unclosed_brackets_are_damage(path: Path) -> None:
    path.write_text('{"tick": 1}\n{"tock": ' + "[" * 20_000 + "\n")
    for reading in (iter(JournalReader(path)), JournalReader(path).lines(Line)):
        next(reading)
        with pytest.raises(ConfigError, match=r"line 2: is damaged, "):
            next(reading)


def test_lines_of_one_call_are_written_atomically(path: Path) -> None:
    with closing(Journal(path)) as journal:
        journal.extend([{"tick": 1}, {"tick": 2}])
        with pytest.raises(TypeError, match="a PosixPath cannot be written"):
            journal.extend([{"tick": 3}, {"tick": Path()}])
        journal.extend([])
    assert path.read_bytes() == b'{"tick":1}\n{"tick":2}\n'


def test_file_cut_anywhere_reads_whole_lines_and_can_be_continued(path: Path) -> None:
    lines: list[dict[str, Any]] = [{"tick": 1, "x": "a"}, {"tick": 22, "x": "bb"}, {"tick": 333}]
    write(path, *lines)
    content = path.read_bytes()
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        whole = content[:size].count(b"\n")
        reader = JournalReader(path)
        assert list(reader) == lines[:whole]
        assert reader.unfinished == (not content[:size].endswith(b"\n") and size > 0)
        write(path, {"tick": 4})
        assert list(JournalReader(path)) == [*lines[:whole], {"tick": 4}]


def test_a_file_is_read_as_if_it_ended_before_a_byte(path: Path) -> None:
    write(path, {"tick": 1}, {"tick": 22})
    path.write_bytes(path.read_bytes() + b'{"tick"')
    content = path.read_bytes()
    for size in range(len(content) + 1):
        reader = JournalReader(path, stop=size)
        assert list(reader) == [{"tick": 1}, {"tick": 22}][: content[:size].count(b"\n")]
        assert reader.unfinished == (not content[:size].endswith(b"\n") and size > 0)


@pytest.mark.parametrize("middle", [b"{broken\n", b"[1]\n", b"\n", b"\xff\n"])
def test_damage_before_the_end_names_file_and_line(path: Path, middle: bytes) -> None:
    path.write_bytes(b'{"tick":1}\n' + middle + b'{"tick":2}\n')
    with pytest.raises(ConfigError, match=r"episodes\.jsonl: line 2: is damaged"):
        list(JournalReader(path))


def test_struct_reading_returns_the_position_to_continue_from(path: Path) -> None:
    path.write_bytes(b'{"tick": 1}\n{"tick":6}\n{"ti')
    journal = JournalReader(path)
    assert list(journal.lines(Line)) == [Line(1), Line(6)]
    assert (journal.position, journal.unfinished) == (23, 1)
    path.write_bytes(path.read_bytes() + b'ck":7}\n')
    assert list(JournalReader(path, start=journal.position).lines(Line)) == [Line(7)]


def test_a_file_that_may_be_missing_has_no_lines_and_is_not_made(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"episodes\.jsonl: cannot be read: No such file"):
        list(JournalReader(path))
    assert list(JournalReader(path).lines(Line, missing_ok=True)) == []
    assert list(JournalReader(path).made(str, missing_ok=True)) == []
    assert not path.exists()


@pytest.mark.parametrize("line", [{"name": "x"}, {"tick": None}, {"tick": "5"}])
def test_lines_without_required_keys_are_refused(path: Path, line: dict[str, Any]) -> None:
    write(path, {"tick": 1}, line)
    for lines in (JournalReader(path).lines(Line), JournalReader(path).made(lambda found: found["tick"] + 1)):
        assert next(lines) in (Line(1), 2)
        with pytest.raises(ConfigError, match=r"line 2: is damaged, or of another version of the arena: "):
            next(lines)
