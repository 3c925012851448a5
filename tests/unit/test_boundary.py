"""Boundaries, from which a run can be resumed: the newest one whose files are complete."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import ConfigError
from arena.records import boundary, checkpoint
from arena.records.folder import RunFolder
from arena.records.formats import Boundary
from arena.records.journal import Journal
from arena.run.leg import Leg, leg_at

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
        checkpoint.save_own(home, "mine", seat=(0, 0), boundary=tick, **about)
    checkpoint.save(home, tick, boundary=tick, **about)
    boundary.save(folder, Boundary(tick=tick, checkpoints={"blue": tick}, journals=boundary.journal_bytes(folder)))
    return folder.boundaries / f"{tick:012d}.json"


def newest(folder: RunFolder) -> int | None:
    found = boundary.newest(folder)
    return None if found is None else found.tick


def test_boundary_round_trip_is_exact(folder: RunFolder) -> None:
    boundary.save(folder, FULL)
    (path,) = folder.boundaries.iterdir()
    assert path.name == "000000000040.json"
    assert msgspec.json.decode(path.read_bytes(), type=Boundary) == FULL
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.boundaries.stat().st_mode) == 0o700


def test_leg_starts_at_its_boundary(folder: RunFolder) -> None:
    assert leg_at(FULL, folder) == Leg(
        start=40,
        episodes={(0, 1): 7, (2, 0): 3},
        updates={"blue": 4},
        seconds={"blue": 1.5},
        left=frozenset({(2, 1)}),
        restore={"blue": checkpoint.path_of(folder.checkpoints_path("blue"), 40)},
    )


def test_three_newest_boundaries_are_kept(folder: RunFolder) -> None:
    for tick in (10, 20, 30, 40, 50):
        leg(folder, tick)
    assert sorted(path.name for path in folder.boundaries.iterdir()) == [f"{n:012d}.json" for n in (30, 40, 50)]
    assert newest(folder) == 50


def test_newest_tick_is_read_from_file_names(folder: RunFolder) -> None:
    assert boundary.newest_tick(folder) is None
    for tick in (20, 100):
        boundary.save(folder, Boundary(tick=tick))
    (folder.boundaries / "200 (copy).json").write_text("{}")
    assert boundary.newest_tick(folder) == 100
    assert boundary.last(folder) == Boundary(tick=100)


def test_newest_is_none_in_an_empty_folder(folder: RunFolder) -> None:
    assert boundary.newest(folder) is None


def remove(folder: RunFolder, path: Path) -> None:
    path.unlink()


def halve(folder: RunFolder, path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(folder: RunFolder, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


OWN = checkpoint.own_path_of(Path("checkpoints/blue"), 40, (0, 0))
PARTS = {
    "boundary": Path("boundaries/000000000040.json"),
    "checkpoint": Path("checkpoints/blue/000000000040.ckpt"),
    "own state": OWN,
    "episodes": Path("episodes.jsonl"),
}


@pytest.mark.parametrize(
    ("part", "harm"),
    [
        *((part, halve) for part in PARTS),
        *((part, remove) for part in PARTS if part != "own state"),  # a worker need not have one
        ("checkpoint", flip),
        ("own state", flip),
    ],
)
def test_incomplete_boundary_is_skipped_for_an_older_one(part: str, harm: Any, folder: RunFolder) -> None:
    for tick in (10, 20, 30, 40):
        leg(folder, tick, own=True)
    assert newest(folder) == 40
    size = folder.episodes.stat().st_size
    harm(folder, folder.path / PARTS[part])
    assert newest(folder) == (30 if part != "episodes" else {halve: 20, remove: None}[harm])
    if part == "episodes" and harm is halve:
        assert folder.episodes.stat().st_size == size // 2, "reading changes nothing"


@pytest.mark.slow
@given(st.binary(max_size=80))
def test_foreign_file_is_not_a_boundary(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = RunFolder.open(tmp_path_factory.mktemp("boundary") / "run")
    leg(folder, 10)
    (folder.boundaries / "000000000020.json").write_bytes(content)
    assert newest(folder) == 10


def test_boundary_of_a_newer_version_is_refused(folder: RunFolder) -> None:
    leg(folder, 10)
    path = leg(folder, 20)
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(ConfigError, match=r"0020\.json: has format version 2, this arena reads up to 1: install a"):
        boundary.newest(folder)


def test_journals_are_cut_to_their_recorded_length(folder: RunFolder) -> None:
    leg(folder, 10)
    before = folder.episodes.read_bytes()
    line(folder, 15)
    found = boundary.newest(folder)
    assert found is not None
    for _ in range(2):  # idempotent
        boundary.cut_journals(folder, found)
        assert folder.episodes.read_bytes() == before
    assert not folder.metrics.exists(), "a missing file is not created"


def test_resume_removes_newer_boundaries(folder: RunFolder) -> None:
    for tick in (10, 20, 30):
        leg(folder, tick)
    boundary.discard_after(folder, 20)
    assert newest(folder) == 20
