"""Event files, read back with another library's protocol buffers and checksums."""

from __future__ import annotations

import math
import stat
import struct
from pathlib import Path

import pytest

from arena.records.folder import RunFolder
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.recorder import Recorder
from arena.records.tensorboard import ScalarFile, _masked_crc
from event_files import events, points


def test_the_checksum_is_crc32c() -> None:
    plain = 0xE3069283  # of "123456789", the check value of CRC-32C
    masked = ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert _masked_crc(b"123456789") == struct.pack("<I", masked)


def test_points_round_trip_is_exact(tmp_path: Path) -> None:
    file = ScalarFile(tmp_path / "blue", now=lambda: 1700000000.25)
    file.add(5, {"episode/return": 0.5, "länge": -3.0})
    file.add(2**40, {"x": 1e300, "y": math.nan, "z" * 300: math.inf})
    file.close()
    file.close()
    (path,) = (tmp_path / "blue").iterdir()
    head, first, second = events(path)
    assert head.file_version == "brain.Event:2"
    assert (first.step, first.wall_time) == (5, 1700000000.25)
    assert {value.tag: value.simple_value for value in first.summary.value} == {"episode/return": 0.5, "länge": -3.0}
    values = {value.tag: value.simple_value for value in second.summary.value}
    assert (second.step, values["x"], values["z" * 300]) == (2**40, math.inf, math.inf)
    assert math.isnan(values["y"])


def test_resumed_run_marks_the_step_of_replacement(tmp_path: Path) -> None:
    ScalarFile(tmp_path, first_step=700).close()
    (path,) = tmp_path.iterdir()
    _, start = events(path)
    assert (start.step, start.session_log.status) == (700, start.session_log.START)


def test_resumed_recorder_keeps_the_points_at_its_boundary(folder: RunFolder) -> None:
    for resumed_at, ticks in ((None, (20, 40, 60)), (40, (60, 80))):
        with Recorder(folder, {0: 0}, resumed_at=resumed_at) as recorder:
            for tick in ticks:
                recorder.update(UpdateRecord("blue", 1, tick, tick, 0.5, {"loss": tick + (resumed_at or 0)}))
                recorder.sync()
    found = points(folder.tensorboard / "blue")["update/loss"]
    assert found == {20: 20.0, 40: 40.0, 60: 100.0, 80: 120.0}


def test_files_are_named_as_tensorboard_looks_for_them_and_private(tmp_path: Path) -> None:
    ScalarFile(tmp_path, now=lambda: 7.0).close()
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("events.out.tfevents.0000000007.")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def episode(tick: int, length: int, *seats: SeatRecord) -> EpisodeRecord:
    return EpisodeRecord(0, 0, "game", 0, 0, tick, length, True, False, seats)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.open(tmp_path / "run")


def scalars(folder: RunFolder, policy: str) -> list[tuple[int, dict[str, float]]]:
    """Steps and values of a policy's points."""
    (path,) = (folder.tensorboard / policy).iterdir()
    return [
        (event.step, {value.tag: value.simple_value for value in event.summary.value})
        for event in events(path)
        if event.HasField("summary")
    ]


def test_tensorboard_gets_the_means_of_a_second_in_one_point(folder: RunFolder) -> None:
    with Recorder(folder, {0: 0}, clock=lambda: 0.0) as recorder:
        recorder.episodes(
            0, 50, [episode(50, 12, SeatRecord("blue", (0,), 1.0, "win"), SeatRecord("red", (1,), -1.0, "loss"))]
        )
        recorder.episodes(0, 60, [episode(60, 14, SeatRecord("blue", (0,), 0.0, "draw"))])
        recorder.update(UpdateRecord("blue", 1, 64, 64, 0.5, {"policy_loss": -0.25, "value_loss": 2.0}))
        recorder.update(UpdateRecord("blue", 2, 128, 128, 0.9, {"policy_loss": 0.75}))
    assert scalars(folder, "blue") == [
        (60, {"episode/return": 0.5, "episode/length": 13.0, "episode/win_rate": 0.5}),
        (128, {"update/policy_loss": 0.25, "update/value_loss": 2.0}),
    ]
    assert scalars(folder, "red") == [(60, {"episode/return": -1.0, "episode/length": 12.0, "episode/win_rate": 0.0})]
