"""Records: what a line holds, and the recorder that writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
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
