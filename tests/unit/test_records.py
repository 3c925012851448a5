"""Records: what a line holds, and the recorder that writes them."""

from __future__ import annotations

import json
import math
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.records.journal import Journal, JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.recorder import Recorder
from clock import Clock

EPISODE = EpisodeRecord(
    round=0,
    match=3,
    env="touchdown",
    lane=1,
    episode=4,
    tick=50,
    length=12,
    terminated=True,
    truncated=False,
    seats=(SeatRecord("blue", (0, "b"), 1.0, "win", 2), SeatRecord("red", (2,), -1.0, "loss")),
)
UPDATE = UpdateRecord("blue", 1, 64, 128, 0.5, {"policy_loss": -0.25, "value_loss": 2.0})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.open(tmp_path / "run")


def test_an_episode_line_has_exactly_the_keys_of_the_contract(folder: RunFolder) -> None:
    with Recorder(folder, {3: 0}) as recorder:
        recorder.episodes(3, 50, [EPISODE])
    assert json.loads(folder.episodes.read_text()) == {
        "round": 0,
        "match": 3,
        "env": "touchdown",
        "lane": 1,
        "episode": 4,
        "tick": 50,
        "length": 12,
        "terminated": True,
        "truncated": False,
        "seats": [
            {"policy": "blue", "entities": [0, "b"], "return": 1.0, "outcome": "win", "idle_ticks": 2},
            {"policy": "red", "entities": [2], "return": -1.0, "outcome": "loss", "idle_ticks": 0},
        ],
    }


def test_update_line_has_the_fixed_keys_before_the_logged_ones(folder: RunFolder) -> None:
    with Recorder(folder, {3: 0}) as recorder:
        recorder.update(UPDATE)
    assert list(json.loads(folder.metrics.read_text()).items()) == [
        ("policy", "blue"),
        ("update", 1),
        ("ticks", 64),
        ("samples", 128),
        ("seconds", 0.5),
        ("policy_loss", -0.25),
        ("value_loss", 2.0),
    ]


def test_a_logged_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match="'blue' logs seconds, ticks: taken"):
        replace(UPDATE, values={"ticks": 1.0, "loss": 2.0, "seconds": 0.0})


def test_lines_reach_the_file_within_a_second(folder: RunFolder) -> None:
    clock = Clock()
    with Recorder(folder, {3: 0}, clock=clock) as recorder:
        recorder.episodes(3, 50, [EPISODE])
        clock.now = 100.9
        recorder.poll()
        assert folder.episodes.read_bytes() == b""
        clock.now = 101.0
        recorder.poll()
        assert len(list(JournalReader(folder.episodes))) == 1


def test_closing_twice_or_after_an_error_keeps_every_line(folder: RunFolder) -> None:
    recorder = Recorder(folder, {3: 0})
    with pytest.raises(KeyboardInterrupt), recorder:
        recorder.episodes(3, 50, [EPISODE])
        recorder.update(UPDATE)
        raise KeyboardInterrupt
    recorder.close()
    assert len(list(JournalReader(folder.episodes))) == len(list(JournalReader(folder.metrics))) == 1


# JSON lines that survive a kill


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


@pytest.mark.parametrize("size", [1, 13, 2**20])
def test_batches_of_a_journal_are_its_lines(tmp_path: Path, size: int) -> None:
    path, whole = tmp_path / "lines.jsonl", [b'{"tick": %d}\n' % 10**number for number in range(12)]
    path.write_bytes(b"".join(whole) + b'{"ti')
    for start, stop, expected, unfinished in [
        (0, None, range(12), 1),
        (len(whole[0]), len(b"".join(whole)), range(1, 12), 0),
        (0, len(b"".join(whole[:3])) + 2, range(3), 1),
        (0, 0, range(0), 0),
    ]:
        journal = JournalReader(path, start=start, stop=stop)
        found = [*journal.batches(Line, size=size)]
        assert [line.tick for lines, _ in found for line in lines] == [10**number for number in expected]
        assert [one for _, sizes in found for one in sizes] == [len(whole[number]) for number in expected]
        position = start + sum(len(whole[number]) for number in expected)
        assert (journal.position, journal.count, journal.unfinished) == (position, len(expected), unfinished)
    for damaged in (b"\n", b'{"tick": "x"}\n', b'{"tick": 1}{"tick": 2}\n', b"\xff\n"):
        path.write_bytes(whole[0] + damaged + whole[1])
        with pytest.raises(ConfigError, match="line 2"):
            [*JournalReader(path, start=len(whole[0])).batches(Line, size=size)]
