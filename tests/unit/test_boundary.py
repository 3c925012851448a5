"""Boundaries, from which a run can be resumed: the newest one whose files are complete."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arena.errors import ConfigError
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder
from arena.records.formats import Boundary, FileMark, SeatKey, digest_of
from arena.records.journal import Journal
from worker_states import write_states

FULL = Boundary(
    tick=40,
    episodes=[(0, 1, 7), (2, 0, 3)],
    updates={"blue": 4},
    seconds={"blue": 1.5},
    left=[(2, 1)],
    checkpoints={"blue": 40},
    journals={"episodes.jsonl": 11, "metrics.jsonl": 0},
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.open(tmp_path / "run")


def line(folder: RunFolder, tick: int) -> None:
    journal = Journal(folder.episodes)
    journal.append({"tick": tick})
    journal.close()


def leg(folder: RunFolder, tick: int, *, own: bool = False) -> Path:
    """Writes a leg's line, the state of a policy and of a worker, and the boundary; returns the boundary's file."""
    line(folder, tick)
    home, about = folder.checkpoints_path("blue"), {"policy": "blue", "algorithm": "ppo", "ticks": tick, "update": 1}
    if own:
        write_states(home, tick, {(0, 0): "mine", (0, 1): "other"})
    checkpoint.save(home, tick, boundary=tick, **about)
    boundary.save(folder, Boundary(tick=tick, checkpoints={"blue": tick}, journals=boundary.journal_bytes(folder)))
    return folder.boundaries / f"{tick:012d}.json"


def newest(folder: RunFolder) -> int | None:
    found = boundary.newest(folder)
    return None if found is None else found.tick


def test_boundary_round_trip_is_exact(folder: RunFolder) -> None:
    checkpoint.save(folder.checkpoints_path("blue"), 0, policy="blue", algorithm="ppo", ticks=40, update=4)
    folder.episodes.write_bytes(b'{"tick":40}\n{"tick":50}\n')
    whole = msgspec.structs.replace(FULL, seconds={"blue": 1})  # is read as 1.0
    boundary.save(folder, whole)
    (path,) = folder.boundaries.iterdir()
    assert path.name == "000000000040.json"
    found = boundary.last(folder)
    assert found is not None and msgspec.structs.replace(found, files={}, sha256="") == whole
    assert found.files["episodes.jsonl"] == FileMark(11, hashlib.sha256(b'{"tick":40}').hexdigest())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.boundaries.stat().st_mode) == 0o700


def test_three_newest_boundaries_are_kept(folder: RunFolder) -> None:
    for tick in (10, 20, 30, 40, 50):
        leg(folder, tick)
    assert sorted(path.name for path in folder.boundaries.iterdir()) == [f"{n:012d}.json" for n in (30, 40, 50)]
    assert newest(folder) == 50


def remove(folder: RunFolder, path: Path) -> None:
    path.unlink()


def halve(folder: RunFolder, path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(folder: RunFolder, path: Path) -> None:
    content = bytearray(path.read_bytes())
    place = content.find(b'"policy"')  # in the header of a checkpoint, not in the format of its archive
    content[place + 2 if place > 0 else len(content) // 2] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "harm", "expected"),
    [
        ("boundaries/000000000040.json", remove, 30),
        ("episodes.jsonl", halve, 20),
        ("episodes.jsonl", remove, None),
    ],
)
def test_incomplete_boundary_is_skipped_for_an_older_one(
    name: str, harm: Any, expected: int | None, folder: RunFolder
) -> None:
    for tick in (10, 20, 30, 40):
        leg(folder, tick)
    assert newest(folder) == 40
    path = folder.path / name
    harm(folder, path)
    size = path.stat().st_size if path.exists() else None
    assert newest(folder) == expected
    assert size == (path.stat().st_size if path.exists() else None), "reading changes nothing"


def passed_over(folder: RunFolder) -> tuple[int, str]:
    """The newest whole boundary, and the line about the newest one, which is not."""
    lines: list[str] = []
    found = next(boundary.whole(folder, lines))
    (line,) = lines
    return found.tick, line


@pytest.mark.parametrize("harm", [remove, halve, flip])
def test_bad_file_is_named_with_its_boundary(harm: Any, folder: RunFolder) -> None:
    """Every file that the boundary lists: checkpoints, own states, snapshots in the league, journals."""
    journals = (folder.metrics, folder.results, folder.measures, folder.evaluations, folder.changes, folder.rounds)
    for path in journals:  # with the same content at all boundaries
        path.write_bytes(b'{"dropped":["blue@1"]}\n')
    folder.snapshots_path("blue").parent.mkdir()
    for tick in (1, 2):
        checkpoint.save(folder.snapshots_path("blue"), tick, policy="blue", algorithm="ppo", ticks=tick, update=1)
    for tick in (10, 20):
        leg(folder, tick, own=True)
    found = boundary.newest(folder)
    assert found is not None and len(found.files) == 7 + 2 + 1, (
        "the snapshot that has left the league is not among them"
    )
    shared = {path.name for path in journals} | {f"snapshots/blue/{2:012d}.ckpt"}
    for name in found.files:
        path = folder.path / name
        content = path.read_bytes()
        harm(folder, path)
        lines: list[str] = []
        rest = [other.tick for other in boundary.whole(folder, lines)]
        assert lines[0].startswith(f"the boundary at tick 20 is passed over: {path}: is ")
        assert rest == ([] if name in shared or (name == "episodes.jsonl" and harm is remove) else [10])
        path.write_bytes(content)
    assert newest(folder) == 20


def test_journal_may_grow_and_a_checkpoint_may_not(folder: RunFolder) -> None:
    for tick in (10, 20):
        leg(folder, tick)
    line(folder, 25)
    assert newest(folder) == 20
    path = checkpoint.path_of(folder.checkpoints_path("blue"), 20)
    path.write_bytes(path.read_bytes() + b"x")
    assert newest(folder) == 10


def test_checkpoint_of_another_run_is_not_that_of_the_boundary(folder: RunFolder, tmp_path: Path) -> None:
    """It is whole, of the same policy, tick and size."""
    for tick in (10, 20):
        leg(folder, tick)
    path = checkpoint.path_of(folder.checkpoints_path("blue"), 20)
    other = checkpoint.save(tmp_path / "other", 21, policy="blue", algorithm="ppo", ticks=20, update=1)
    assert other.stat().st_size == path.stat().st_size
    path.write_bytes(other.read_bytes())
    tick, words = passed_over(folder)
    assert tick == 10 and f"{path}: is damaged, or of another run" in words


EDITS: dict[str, Any] = {
    "version": 1,
    "tick": 10,
    "episodes": [],
    "updates": {"blue": 3},
    "seconds": {"blue": 2.5},
    "left": [],
    "seats": [],
    "checkpoints": {"blue": 10},
    "journals": {"episodes.jsonl": 22},
    "files": {},
    "sha256": "",
}


@pytest.mark.parametrize("field", EDITS)
@pytest.mark.parametrize("how", ["edited", "removed"])
def test_changed_boundary_is_passed_over(field: str, how: str, folder: RunFolder) -> None:
    leg(folder, 10, own=True)
    leg(folder, 20, own=True)
    seats = [SeatKey(2, 1, "blue", "game")]
    boundary.save(folder, msgspec.structs.replace(FULL, tick=30, checkpoints={"blue": 20}, seats=seats))
    path = folder.boundaries / "000000000030.json"
    written = json.loads(path.read_text())
    assert set(written) == set(EDITS) and newest(folder) == 30
    other = {name: value for name, value in written.items() if name != field}
    path.write_text(json.dumps(other if how == "removed" else {**written, field: EDITS[field]}))
    if how == "removed" and field == "version":  # without it the file is of this version
        assert newest(folder) == 30
    else:
        assert newest(folder) == 20
        assert str(path) in passed_over(folder)[1]


def test_boundary_under_another_name_is_passed_over(folder: RunFolder) -> None:
    for tick in (10, 20):
        leg(folder, tick)
    (folder.boundaries / "000000000020.json").rename(folder.boundaries / "000000000030.json")
    tick, words = passed_over(folder)
    assert tick == 10 and "at tick 30 is passed over" in words and "is the boundary at tick 20" in words


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "checkpoints/../../x", ".", ""])
def test_boundary_names_no_file_outside_its_run(name: str, folder: RunFolder) -> None:
    leg(folder, 10)
    path = leg(folder, 20)
    found = boundary.last(folder)
    assert found is not None
    hostile = msgspec.structs.replace(found, files={name: FileMark(0, "")})
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(hostile, sha256=digest_of(hostile))))
    assert "is not a file of this run" in passed_over(folder)[1]


@pytest.mark.parametrize("version", [1, 2])
def test_boundary_of_an_older_version_can_be_read_and_not_resumed(version: int, folder: RunFolder) -> None:
    path = leg(folder, 10)
    made = boundary.last(folder)
    assert made is not None
    old = msgspec.structs.replace(made, version=version, sha256="")
    if version == 1:  # it listed no files, and had no digest
        old = msgspec.structs.replace(old, files={})
    else:
        old = msgspec.structs.replace(old, sha256=digest_of(old))
    path.write_bytes(msgspec.json.encode(old))
    found = boundary.last(folder)
    assert found is not None and (found.tick, found.checkpoints) == (10, {"blue": 10})
    with pytest.raises(ConfigError, match=rf"has format version {version}, .* not resumed; begin a new run"):
        boundary.newest(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b'{"tick": 20}', bytes(80), b"\xff" * 80])
def test_foreign_file_is_not_a_boundary(folder: RunFolder, content: bytes) -> None:
    leg(folder, 10)
    (folder.boundaries / "000000000020.json").write_bytes(content)
    assert newest(folder) == 10


def test_boundary_of_a_newer_version_is_refused(folder: RunFolder) -> None:
    leg(folder, 10)
    path = leg(folder, 20)
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 4}))
    with pytest.raises(ConfigError, match=r"0020\.json: has format version 4, this arena reads up to 3: install a"):
        boundary.newest(folder)
