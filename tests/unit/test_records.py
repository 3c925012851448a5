"""Records: what a line holds, and the recorder that writes them."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.recorder import Recorder
from arena.roles.protocol import Progress
from arena.transport.pickling import pack, unpack

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
replaced, astuple = msgspec.structs.replace, msgspec.structs.astuple
UPDATE = UpdateRecord("blue", 1, 64, 128, 0.5, {"policy_loss": -0.25, "value_loss": 2.0})


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


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


def test_only_cut_episodes_have_the_cut_key(folder: RunFolder) -> None:
    cut = replaced(EPISODE, lane=2, cut=True)
    with Recorder(folder, {3: 0}) as recorder:
        recorder.episodes(3, 50, [EPISODE, cut])
    journal = JournalReader(folder.episodes)
    assert [line.get("cut") for line in journal] == [None, True]
    assert list(journal.lines(EpisodeRecord)) == [EPISODE, cut]


def test_episodes_are_written_by_tick_and_counted_at_once(folder: RunFolder) -> None:
    early, late = replaced(EPISODE, match=1, tick=40), replaced(EPISODE, tick=50)
    with Recorder(folder, {1: 0, 3: 0}) as recorder:
        assert list(recorder.episodes(3, 60, [late])) == ["blue", "red"]
        recorder.flush()
        assert folder.episodes.read_bytes() == b"", "match 1 may have an earlier one"
        recorder.episodes(1, 45, [early])
        recorder.flush()
        assert [line["match"] for line in JournalReader(folder.episodes)] == [1]
        recorder.episodes(1, 50, [])
    assert [line["match"] for line in JournalReader(folder.episodes)] == [1, 3]


def test_ended_match_holds_back_no_line(folder: RunFolder) -> None:
    with Recorder(folder, {1: 0, 3: 0}) as recorder:
        recorder.episodes(1, 8, [], last=True)
        recorder.episodes(3, 60, [EPISODE])
        recorder.flush()
        assert len(list(JournalReader(folder.episodes))) == 1


def test_return_that_is_not_finite_is_null_in_the_file(folder: RunFolder) -> None:
    with Recorder(folder, {3: 0}) as recorder:
        recorder.episodes(3, 50, [replaced(EPISODE, seats=(SeatRecord("blue", (0,), math.nan, None),))])
    (line,) = JournalReader(folder.episodes).lines(EpisodeRecord)
    assert line.seats[0].return_ is None


def by_hand(row: EpisodeRecord) -> bytes:
    """The line of an episode, with its keys written out."""
    keys = ("round", "match", "env", "lane", "episode", "tick", "length", "terminated", "truncated")
    seat_keys = ("policy", "entities", "return", "outcome", "idle_ticks", "metrics")
    *head, played, cut, ranked, game, lost = astuple(row)
    seats = [dict(zip(seat_keys, astuple(seat), strict=True)) for seat in played]
    seats = [{key: value for key, value in seat.items() if value is not msgspec.UNSET} for seat in seats]
    marked = {"cut": cut, "ranked": ranked, "game": game, "lost": lost}
    marked = {name: value for name, value in marked.items() if value not in (None, False)}
    return msgspec.json.encode({**dict(zip(keys, head, strict=True)), "seats": seats, **marked}) + b"\n"


COUNTS = st.integers(0, 2**31 - 1)
SEATS = st.builds(
    SeatRecord,
    st.text(),
    st.tuples(st.integers(0, 9) | st.text()),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["win", "loss", "draw", None]),
    COUNTS,
    st.just(msgspec.UNSET) | st.dictionaries(st.text(), st.floats(), max_size=2),
)
EPISODES = st.builds(
    EpisodeRecord,
    *(COUNTS, COUNTS, st.text(), COUNTS, COUNTS, COUNTS, COUNTS, st.booleans(), st.booleans()),
    st.lists(SEATS, max_size=3).map(tuple),
    st.booleans(),
    st.booleans(),
    st.none() | st.text(),
    st.booleans(),
)


@pytest.mark.slow
@given(st.lists(EPISODES, max_size=3))
def test_file_is_byte_equal_to_handwritten_lines(
    records: list[EpisodeRecord],
) -> None:
    sent = unpack(pack(Progress(0, 1, tuple(records))))
    assert msgspec.json.Encoder().encode_lines(sent.episodes) == b"".join(map(by_hand, records))


def test_records_can_be_sent_between_processes() -> None:
    assert pickle.loads(pickle.dumps((EPISODE, UPDATE))) == (EPISODE, UPDATE)


def test_progress_is_received_as_it_was_sent() -> None:
    assert unpack(pack(Progress(3, 50, (EPISODE, EPISODE)))) == Progress(3, 50, (EPISODE, EPISODE))


def test_a_logged_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ValueError, match="'blue' logs seconds, ticks: taken"):
        replace(UPDATE, values={"ticks": 1.0, "loss": 2.0, "seconds": 0.0})


def test_lines_reach_the_file_within_a_second(folder: RunFolder) -> None:
    clock = Clock()
    with Recorder(folder, {3: 0}, clock=clock) as recorder:
        recorder.episodes(3, 50, [EPISODE])
        clock.seconds = 0.9
        recorder.poll()
        assert folder.episodes.read_bytes() == b""
        clock.seconds = 1.0
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


def test_closed_recorder_refuses_records(folder: RunFolder) -> None:
    recorder = Recorder(folder, {3: 0})
    recorder.close()
    with pytest.raises(ValueError, match="closed"):
        recorder.episodes(3, 50, [EPISODE])


@pytest.mark.slow
def test_recording_and_showing_import_neither_torch_nor_mpi(tmp_path: Path) -> None:
    program = f"""
import io, sys
from pathlib import Path
from arena.records import checkpoint
from arena.terminal.display import make_display
from arena.records.recorder import Recorder
from arena.records.metrics import UpdateRecord
from arena.records.folder import RunFolder
from arena.records.scoreboard import Scoreboard
assert "rich" not in sys.modules, "rich is for terminals only"
folder = RunFolder.open(Path({str(tmp_path / "run")!r}))
with Recorder(folder, {{}}) as recorder:
    recorder.update(UpdateRecord("blue", 1, 1, 1, 0.1, {{"loss": 1.0}}))
checkpoint.load(checkpoint.save(folder.checkpoints_path("blue"), {{}}, policy="blue", algorithm="x", ticks=1, update=1))
display = make_display(io.StringIO(), columns=80, total_ticks=1, colors={{}})
display.start(); display.update(1, Scoreboard()); display.stop()
print([name for name in ("torch", "mpi4py", "tensorboardX", "google.protobuf") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ("[]\n", "")
