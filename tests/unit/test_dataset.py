"""Files of samples: parts, manifests, and refusals."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from arena.dataset.format import EntitySamples, Manifest
from arena.dataset.reader import MatchSamples, open_dataset
from arena.dataset.writer import SampleWriter
from arena.errors import ConfigError
from arena.game.api import Frame, Step
from arena.records import checksums
from arena.records.folder import MANIFEST, forget_lanes, match_path

BLUE = EntitySamples("one", "blue", 0, spaces.Box(0, 99, (2,), np.float32), spaces.Discrete(9), 0)
RED = EntitySamples("two", "red", 1, spaces.Discrete(100), spaces.MultiBinary(2), 0)
MANIFEST_OF_TWO = Manifest(3, "game", (BLUE, RED))
LANES = range(2, 4)


def frame(number: int) -> Frame:
    """What is seen before tick `number` + 1."""
    seen = [np.full((2, 2), number, np.float32), np.array([number, number + 50])]
    return Frame(seen, np.ones((2, 2), np.bool_), (None, None))


def tick(writer: SampleWriter, number: int, *, ends: Any = ((0, 0), (0, 0))) -> None:
    ended = np.array(ends, np.bool_)
    step = Step(frame(number), np.full((2, 2), number / 8), ended, np.zeros((2, 2), np.bool_))
    actions = [np.array([number % 9, 1]), np.ones((2, 2), np.int8)]
    episodes, never = np.zeros(2, np.int64), np.zeros(2, np.bool_)
    writer.add(number, actions, step, idle=(), episodes=episodes, cut=never)


def played(home: Path, first: int, last: int, **ends: Any) -> SampleWriter:
    """A leg of some ticks, one of which may end episodes."""
    writer = SampleWriter(home, MANIFEST_OF_TWO, LANES)
    writer.begin(frame(first - 1), np.ones(2, np.bool_))
    for number in range(first, last + 1):
        tick(writer, number, **({"ends": ends["ends"]} if number == ends.get("at") else {}))
    writer.flush()
    return writer


def match_of(home: Path) -> MatchSamples:
    (match,) = open_dataset(home).matches
    return match


def ticks(home: Path) -> list[list[int]]:
    return [part.tick.tolist() for part in match_of(home).parts()]


def test_samples_of_later_legs_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.dataset.writer._MOST_TICKS", 2)
    for leg in range(3):
        played(tmp_path, 5 * leg + 1, 5 * leg + 5, at=5 * leg + 5, ends=((1, 1), (0, 1)))
    folder = match_path(tmp_path, 3)
    (folder / ".000000000005.lane-0002.npz.part").write_bytes(b"half")
    (folder / "000000000000.lane-0002.replay").write_bytes(b"mine")
    forget_lanes(folder, "npz", 10)
    assert ticks(tmp_path) == [[1, 2], [3, 4], [5], [6, 7], [8, 9], [10]]
    assert [at for part in match_of(tmp_path).parts() for at in part.ends[1][0].tolist()] == [5, 5, 10, 10]
    forget_lanes(folder, "npz", 0)
    left = [path.name for path in folder.iterdir() if path.is_file()]
    assert left == ["000000000000.lane-0002.replay"], "another match may get this number"


def test_missing_ticks_split_episodes(tmp_path: Path) -> None:
    for first, last in ((1, 4), (7, 9)):
        played(tmp_path, first, last, at=9, ends=((1, 1), (1, 1)))
    assert {tuple(episode.tick) for episode in match_of(tmp_path).episodes()} == {(7, 8, 9)}


@pytest.mark.parametrize(("round", "place"), [(None, ["match-0003"]), (7, ["round-0007", "match-0003"])])
def test_manifest_round_trip_is_exact(round: int | None, place: list[str], tmp_path: Path) -> None:
    manifest = msgspec.structs.replace(MANIFEST_OF_TWO, round=round)
    writer = SampleWriter(tmp_path / "samples", manifest, LANES)
    writer.begin(frame(0), np.ones(2, np.bool_))
    tick(writer, 1)
    writer.flush()
    match = match_of(tmp_path)
    assert Manifest(match.match, match.env, match.entities, round) == manifest
    assert (match.round, match.path) == (round or 0, tmp_path.joinpath("samples", *place))
    written = json.loads((match.path / MANIFEST).read_text())
    assert written["columns"]["0/observation/0"] == {"axes": ["tick", "lane"], "dtype": "float32", "shape": [2]}


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 3}, "format version 3, this arena reads up to 2"),
        ({"round": "three"}, r"expected integer or null, got text \(at round\)"),
        ({"entities": []}, "the columns do not fit"),
        ({"columns": {}}, "the columns do not fit"),
        *((it, "is damaged") for it in ({"entities": [{}]}, {"entities": None}, "", "{", "[]", '{"version": "1"}')),
        ("[" * 10_000, "is damaged"),
    ],
    ids=range(11),
)
def test_invalid_manifest_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    played(tmp_path, 1, 1)
    path = match_path(tmp_path, 3) / MANIFEST
    checksums.drop(path)
    path.write_text(change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigError, match=words) as caught:
        open_dataset(tmp_path)
    assert caught.value.source == str(path)


def test_missing_samples_name_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`record: samples`"):
        open_dataset(tmp_path)
    played(tmp_path / "samples" if (tmp_path / "samples").mkdir() is None else tmp_path, 1, 1)
    with pytest.raises(ConfigError, match=r"no samples of the policy 'blu'; did you mean 'blue'"):
        open_dataset(tmp_path).episodes("blu")


def arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    with np.load(path) as part:
        return dict(part)


@pytest.mark.parametrize(
    "change",
    [
        {"rewards": np.zeros((3, 2, 2), np.float32)},
        {"rewards": np.zeros((2, 2, 2))},
        {"rewards": np.zeros((3, 2))},
        {"tick": np.array(1)},
        {"tick": np.array([1, 3, 4])},
        {"tick": np.zeros(0, np.int64)},
        {"lane": np.zeros((2, 1), np.int64)},
        {"unknown": np.zeros(3)},
        {"0/end/tick": np.zeros(4, np.int64)},
        {"tick": np.arange(2, 5)},
        {"lane": np.array([3, 2])},
        {"lane": np.array([2, 2])},
        {"terminated": np.ones((3, 2, 2), np.bool_)},
        {
            "0/end/tick": np.ones(1, np.int64),
            "0/end/lane": np.full(1, 2),
            "0/end/observation/0": np.zeros((1, 2), np.float32),
        },
        {"0/action/0": np.full((3, 2), 9)},
        {"1/action/0": np.full((3, 2, 2), -1, np.int8)},
        {"1/observation/0": np.full((3, 2), 100)},
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    played(tmp_path, 1, 3)
    path = match_path(tmp_path, 3) / "000000000000.lane-0002.npz"
    np.savez(path, **{**arrays_of(path), **change})
    with pytest.raises(ConfigError) as caught:
        list(match_of(tmp_path).parts())
    assert caught.value.source == str(path)


def test_actions_of_idle_rows_are_none(tmp_path: Path) -> None:
    played(tmp_path, 1, 3)
    path = match_path(tmp_path, 3) / "000000000000.lane-0002.npz"
    resting = {"0/action/0": np.full((3, 2), 9), "active": np.zeros((3, 2, 2), np.bool_)}
    np.savez(path, **{**arrays_of(path), **resting})
    assert ticks(tmp_path) == [[1, 2, 3]]


@pytest.mark.parametrize("name", ["0x.lane-0y.npz", "00.lane-.npz", "000000000000.lane-0002.old.npz", "٣.lane-٣.npz"])
def test_files_of_other_names_are_ignored(name: str, tmp_path: Path) -> None:
    played(tmp_path, 1, 3)
    (match_path(tmp_path, 3) / name).write_bytes(b"")
    assert ticks(tmp_path) == [[1, 2, 3]]


def test_check_reads_only_the_matches_of_the_policy(tmp_path: Path) -> None:
    played(tmp_path, 1, 3)
    path = match_path(tmp_path, 3) / "000000000000.lane-0002.npz"
    path.write_bytes(path.read_bytes()[:-200])
    samples = open_dataset(tmp_path)
    samples.check("green")
    for policy in ("blue", "red", None):
        with pytest.raises(ConfigError, match="is damaged") as caught:
            samples.check(policy)
        assert caught.value.source == str(path)


def refused(home: Path) -> str:
    """Reads everything; returns the file that the arena's error names, or the folder if there is no error."""
    try:
        for match in open_dataset(home).matches:
            list(match.parts())
            list(match.episodes())
    except ConfigError as error:
        return error.source
    return str(home)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Reading `.npy`")  # in the style of Python 2
@settings(max_examples=30)
@given(data=st.data())
def test_mutated_part_is_read_or_refused(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        played(home, 1, 3, at=2, ends=((1, 1), (0, 1)))
        path = match_path(home, 3) / "000000000000.lane-0002.npz"
        with zipfile.ZipFile(path) as archive:
            members = {name: bytearray(archive.read(name)) for name in archive.namelist()}
        if data.draw(st.booleans(), "the file, or an array in it"):
            content = bytearray(path.read_bytes())
            changed(content, data)
            path.write_bytes(content)
        else:
            changed(members[data.draw(st.sampled_from(sorted(members)))], data)
            with zipfile.ZipFile(path, "w") as archive:
                for member, content in members.items():
                    archive.writestr(member, bytes(content))
        assert str(home) in refused(home)


def changed(content: bytearray, data: st.DataObject) -> None:
    """Other bytes in some places, and perhaps none from one on."""
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, ("touch exploded",)


def test_malicious_file_runs_no_code_and_allocates_no_excess(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    played(tmp_path, 1, 3)
    path = match_path(tmp_path, 3) / "000000000000.lane-0002.npz"
    arrays = arrays_of(path)
    np.savez(path, **{**arrays, "tick": np.array([Bomb()], object)})
    with pytest.raises(ConfigError):
        list(match_of(tmp_path).parts())
    assert not (tmp_path / "exploded").exists()
    np.savez_compressed(path, **{**arrays, "tick": np.zeros(10**6, np.int64)})
    with pytest.raises(ConfigError, match="larger than the file"):
        list(match_of(tmp_path).parts())
    with zipfile.ZipFile(path, "w") as archive, archive.open("tick.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<i8", "fortran_order": False, "shape": (2**50,)})
    with pytest.raises(ConfigError, match="needs 9007199254740992 bytes"):
        list(match_of(tmp_path).parts())
