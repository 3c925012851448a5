"""Files of replays: round trips, files of killed writers, and refusals."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium import spaces

from arena.errors import ConfigError, WriteError
from arena.game.api import Frame, Interface, Step
from arena.records import checksums
from arena.records.folder import MANIFEST, forget_lanes, lanes_in, match_path
from arena.replay.format import Chunk, EntityReplays, Manifest, chunks_in, framed
from arena.replay.reader import MatchReplays, Recording, read_replays
from arena.replay.verify import rendered
from arena.replay.writer import ReplayWriter
from full_disk import full_above

BOX = spaces.Box(-1, 1, (2,), np.float32)
CHOICES = spaces.MultiDiscrete([3, 300], start=[5, -7])
RICH = spaces.Dict(move=spaces.Discrete(4, start=-1), both=spaces.Tuple((spaces.MultiBinary(3), BOX)))
GAME = Interface(("one", "two"), (spaces.Discrete(100),) * 2, (RICH, CHOICES), (0, 0))
ENTITIES = (EntityReplays("one", "blue", 0, RICH), EntityReplays("two", "red", 1, CHOICES))
OF_TWO = Manifest(2, 3, "game", "games:Some", {"size": 4, "deep": [{"a": None}]}, (("time_limit", 7),), ENTITIES)
LANES = range(2, 4)


def frame(number: int) -> Frame:
    return Frame([np.full(2, number % 100), np.full(2, number % 7)], np.ones((2, 2), np.bool_), (None, None))


def actions(number: int) -> list[Any]:
    """The actions of a tick: legal, and different from tick to tick."""
    rng = np.random.default_rng(number)
    box = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
    one = {"move": rng.integers(-1, 3, 2), "both": (rng.integers(0, 2, (2, 3), np.int8), box)}
    return [one, np.stack([rng.integers(5, 8, 2), rng.integers(-7, 293, 2)], axis=1)]


class Writer:
    """Writes a leg of the match: episodes of both lanes that last `length` ticks."""

    def __init__(self, home: Path, *, start: int = 0, length: int = 4, first: int = 0) -> None:
        self.writer = ReplayWriter(home / "replays", OF_TWO, GAME, lanes=LANES, start=start)
        self.tick, self.length = start, length
        self.episodes = np.full(2, first, np.int64)
        self.begin(seeds=[11, 12], new_game=True)

    def begin(self, lanes: Any = (1, 1), *, seeds: Any = None, options: Any = None, new_game: bool = False) -> None:
        self.writer.begin(
            frame(self.tick),
            np.array(lanes, np.bool_),
            episodes=self.episodes,
            seeds=seeds,
            options=options,
            new_game=new_game,
        )

    def play(self, ticks: int) -> Writer:
        for _ in range(ticks):
            self.tick += 1
            no_ends = np.zeros((2, 2), np.bool_)
            self.writer.add(actions(self.tick), Step(frame(self.tick), np.zeros((2, 2)), no_ends, no_ends))
            if self.tick % self.length == 0:
                self.episodes += 1
                self.begin()
        return self

    def close(self) -> Writer:
        self.writer.close()
        return self


def match_of(home: Path) -> MatchReplays:
    return read_replays(home).match(3, round=2)


def recordings(home: Path) -> tuple[Recording, ...]:
    return match_of(home).recordings


def folder(home: Path) -> Path:
    return match_path(home / "replays", 3, round=2)


def places(home: Path) -> list[tuple[int, int, int, int]]:
    return [(one.lane, one.number, one.begin, one.end) for one in match_of(home).episodes()]


def expected(ticks: int, length: int = 4) -> list[tuple[int, int, int, int]]:
    return [(lane, n, n * length, (n + 1) * length) for lane in LANES for n in range(ticks // length)]


def test_actions_round_trip_is_bit_exact(tmp_path: Path) -> None:
    Writer(tmp_path).play(600).close()
    (recording,) = recordings(tmp_path)
    assert (recording.start, recording.ticks, recording.lanes) == (0, 600, LANES)
    columns = OF_TWO.columns()
    for t in range(600):
        done = actions(t + 1)
        given = [done[0]["move"], *done[0]["both"]], [done[1]]
        for leaves, of, told in zip(recording.actions, columns, given, strict=True):
            for leaf, column, array in zip(leaves, of, told, strict=True):
                back = column.unpacked(leaf[t])
                assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())


def test_manifest_and_starts_round_trip_is_exact(tmp_path: Path) -> None:
    writer = Writer(tmp_path).play(2)
    writer.begin((0, 1), seeds=[None, np.int64(8)], options={"level": [1, "x"], "deep": {"a": 1.5}})
    writer.play(1).close()
    assert match_of(tmp_path).manifest == OF_TWO
    first, reset = recordings(tmp_path)[0].begins
    assert (first.tick, first.lanes, first.seeds, first.options, first.new_game) == (0, [0, 1], [11, 12], None, True)
    assert (reset.tick, reset.lanes, reset.seeds, reset.new_game) == (2, [1], [8], False)
    assert (reset.options, reset.lost) == ({"level": [1, "x"], "deep": {"a": 1.5}}, "")


@pytest.mark.parametrize(
    "options", [{"place": np.zeros(2)}, {"call": print}, {"pair": (1, 2)}, {"huge": 2**70}], ids=str
)
def test_options_that_cannot_be_stored_are_reported(options: Any, tmp_path: Path) -> None:
    writer = Writer(tmp_path).play(1)
    writer.begin((1, 0), options=options)
    writer.play(1).close()
    reset = recordings(tmp_path)[0].begins[1]
    assert reset.options is None
    assert str(next(iter(options))) in reset.lost


def test_unfinished_episode_is_not_listed(tmp_path: Path) -> None:
    Writer(tmp_path).play(11).close()
    assert places(tmp_path) == expected(11)


@pytest.mark.parametrize("left", [0, 1, 11, 12, 13])
def test_partial_last_chunk_is_skipped(left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.replay.writer._MOST_TICKS", 8)
    Writer(tmp_path).play(24).close()
    (path,) = lanes_in(folder(tmp_path), "replay")
    sizes = [len(framed(chunk)) for chunk in chunks_in(path)]
    path.write_bytes(path.read_bytes()[: sum(sizes[:2]) + left])
    assert recordings(tmp_path)[0].ticks == 16
    assert places(tmp_path) == expected(16)


def test_a_disk_that_is_full_leaves_whole_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.replay.writer._MOST_TICKS", 8)
    writer = Writer(tmp_path)
    with full_above(2500), pytest.raises(WriteError, match=r"\.replay cannot be written"):
        writer.play(1000)
    (recording,) = recordings(tmp_path)
    assert 8 < recording.ticks < 1000
    writer.close()
    assert recordings(tmp_path)[0].ticks == recording.ticks + 8, "there is room again: the chunk follows"


# ---------------------------------------------------------------------------------------------------------- refusals


def test_missing_replays_name_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`record: replays`"):
        read_replays(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 3}, "format version 3, this arena reads up to 2"),
        ({"entities": []}, "no entities"),
        ({"match": "3"}, "match"),
        ({"kwargs": 3}, "kwargs"),
        *((it, "is damaged") for it in ({"version": None}, {"entities": [{}]}, {"wrappers": [3]}, {"unknown": 3})),
        *((it, "is damaged") for it in ("", "{", "[]", "[" * 10_000)),
    ],
    ids=range(12),
)
def test_invalid_manifest_is_refused(change: Any, words: str, tmp_path: Path) -> None:
    Writer(tmp_path).play(1).close()
    path = folder(tmp_path) / MANIFEST
    checksums.drop(path)
    path.write_text(change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ConfigError, match=words) as caught:
        read_replays(tmp_path)
    assert caught.value.source == str(path)


@pytest.mark.slow
def test_changed_byte_is_detected(tmp_path: Path) -> None:
    Writer(tmp_path).play(9).close()
    (path,) = lanes_in(folder(tmp_path), "replay")
    data = path.read_bytes()
    for at in range(0, len(data), 4):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(ConfigError, match="is damaged") as caught:
            _ = recordings(tmp_path)
        assert caught.value.source == str(path)


def changed(chunk: Chunk, **fields: Any) -> Chunk:
    return msgspec.structs.replace(chunk, **fields)


def bad_begins(chunk: Chunk) -> Iterator[Any]:
    first = chunk.begins[0]
    yield []
    yield [msgspec.structs.replace(first, new_game=False)]
    yield [msgspec.structs.replace(first, tick=1)]
    yield [msgspec.structs.replace(first, lanes=[0, 5])]
    yield [msgspec.structs.replace(first, lanes=[0], episodes=[0], digests=[0], seeds=None)]
    yield [msgspec.structs.replace(first, digests=[1])]
    yield [msgspec.structs.replace(first, digests=[1, 2**16])]
    yield [first, msgspec.structs.replace(first, tick=4), msgspec.structs.replace(first, tick=2)]


def test_invalid_chunks_are_refused(tmp_path: Path) -> None:
    Writer(tmp_path, length=100).play(9).close()
    (path,) = lanes_in(folder(tmp_path), "replay")
    (chunk,) = chunks_in(path)
    wrong = [
        [changed(chunk, tick=1)],
        [changed(chunk, lane=3)],
        [changed(chunk, ticks=8)],
        [changed(chunk, ticks=0)],
        [changed(chunk, lanes=1)],
        [changed(chunk, digests=chunk.digests[:-1])],
        [changed(chunk, actions=chunk.actions[:-1])],
        [chunk, chunk],
        *([changed(chunk, begins=begins)] for begins in bad_begins(chunk)),
    ]
    for chunks in wrong:
        path.write_bytes(b"".join(map(framed, chunks)))
        with pytest.raises(ConfigError, match="is damaged"):
            _ = recordings(tmp_path)


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    Writer(tmp_path).play(4).close()
    names = ("notes.replay", "0x1.lane-1.replay", "000000000000.lane-0002.replay.part", "000000000000.lane-0002.npz")
    for name in names:
        (folder(tmp_path) / name).write_bytes(b"mine")
    forget_lanes(folder(tmp_path), "replay", 0)
    left = [path for path in folder(tmp_path).iterdir() if path.is_file()]
    assert [path.read_bytes() for path in left] == [b"mine"] * len(names)


@pytest.mark.parametrize(
    ("message", "variable", "words"),
    [
        ("X11: The DISPLAY environment variable is missing", None, "it is not set: set it to egl"),
        ("gladLoadGL error", "glfw", "it is 'glfw': set it to egl"),
        ("a wall is missing", None, None),
    ],
)
def test_error_of_mujocos_rendering_names_its_variable(
    message: str, variable: str | None, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Game:
        def render(self) -> None:
            raise RuntimeError(message)

    manifest: Any = SimpleNamespace(make="gymnasium:Ant-v5")
    game: Any = Game()
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    if variable is not None:
        monkeypatch.setenv("MUJOCO_GL", variable)
    for loaded in (False, True):
        if loaded:
            monkeypatch.setitem(sys.modules, "mujoco", ModuleType("mujoco"))
        with pytest.raises(ConfigError) as found:
            rendered(manifest, game)
        assert ("MUJOCO_GL" in found.value.message) == (loaded and words is not None)
    assert words is None or words in found.value.message
