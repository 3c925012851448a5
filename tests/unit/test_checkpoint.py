"""Checkpoints: exact round trips, atomic writes, and refusals of other files."""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import stat
import struct
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from arena.errors import ConfigError
from arena.records import checkpoint
from arena.records.atomic import part_of
from arena.records.state_codec import decode, encode
from worker_states import state_of, write_states


def save(folder: Path, state: Any = None, *, ticks: int = 0) -> Path:
    return checkpoint.save(folder, state, policy="blue", algorithm="ppo", ticks=ticks, update=ticks // 10)


def names(folder: Path) -> list[int]:
    return [int(path.stem) for path in checkpoint.list_checkpoints(folder)]


def bits(value: Any) -> Any:
    """A form of a state in which equal means equal bit for bit and type for type."""
    if isinstance(value, dict):
        return ("dict", [(key, bits(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [bits(item) for item in value])
    if isinstance(value, (np.ndarray, np.generic)):
        return (type(value), value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, float):
        return (float, struct.pack(">d", value))
    return (type(value), value)


arrays = npst.arrays(
    dtype=st.one_of(
        npst.floating_dtypes(endianness="?"),
        npst.integer_dtypes(),
        npst.unsigned_integer_dtypes(),
        npst.boolean_dtypes(),
    ),
    shape=npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    arrays,
    arrays.map(lambda array: array[()]),
)
keys = st.one_of(st.text(), st.integers(), st.binary(max_size=8))
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(state=trees)
def test_state_round_trip_is_bit_exact(tmp_path: Path, state: Any) -> None:
    loaded = checkpoint.load(save(tmp_path, state))
    assert bits(loaded.state) == bits(state)


def test_header_round_trip_is_exact(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path / "blue", {"w": 1}, policy="blue", algorithm="ppo", ticks=1200, update=7)
    assert path.name == "000000001200.ckpt"
    assert checkpoint.load(path) == checkpoint.Checkpoint({"w": 1}, "blue", "ppo", 1200, 7, 1200)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_tensors_come_back_as_tensors(tmp_path: Path) -> None:
    module, generator = torch.nn.Linear(3, 2), torch.Generator()
    state = {"weights": module.state_dict(), "rng": generator.get_state(), "scalar": torch.tensor(2.5)}
    path = save(tmp_path, {**state, "flags": [torch.ones(2, dtype=torch.bool)]})
    loaded = checkpoint.load(path).state
    generator.set_state(loaded["rng"])
    torch.testing.assert_close(loaded["weights"], dict(module.state_dict()), rtol=0, atol=0)
    assert loaded["scalar"].shape == () and loaded["flags"][0].dtype == torch.bool
    plain = checkpoint.load(path, tensors=False).state  # of a process without torch
    assert isinstance(plain["scalar"], np.ndarray) and plain["scalar"] == 2.5


def test_loaded_arrays_can_be_written_to_and_do_not_share_memory(tmp_path: Path) -> None:
    shared = np.zeros(3)
    first, second = checkpoint.load(save(tmp_path, [shared, shared])).state
    first += 1
    assert second.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"net": [torch.zeros(1, dtype=torch.bfloat16)]}, r"state\['net'\]\[0\]: a torch.bfloat16 .* tensor.float\(\)"),
        ({"f": print}, r"state\['f'\]: a builtin_function_or_method cannot be kept"),
        ([np.array([None])], r"state\[0\]: an array of Python objects"),
        ({("a", 1): 2}, r"state: a key of a dict is a str, an int or bytes, got \('a', 1\) of type tuple"),
        ({True: 2}, "a str, an int or bytes, got True of type bool"),
        ({"b": b"x"}, "a bytes cannot be kept"),
    ],
    ids=["bfloat16", "function", "objects", "tuple-key", "bool-key", "bytes"],
)
def test_value_that_cannot_be_stored_is_named_by_its_path(tmp_path: Path, state: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        save(tmp_path, state)
    assert list(tmp_path.iterdir()) == []


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (save(tmp_path / name, {"w": np.arange(5)}) for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_newest_and_first_checkpoints_are_kept(tmp_path: Path) -> None:
    for ticks in range(0, 1000, 100):
        save(tmp_path, ticks, ticks=ticks)
    assert names(tmp_path) == [0, 700, 800, 900]
    assert checkpoint.load(tmp_path).state == 900
    save(tmp_path, ticks=500)
    assert names(tmp_path) == [0, 500, 700, 800, 900], "the file that was just written stays beside newer ones"
    save(tmp_path, 1000, ticks=1000)
    assert names(tmp_path) == [0, 800, 900, 1000]


def put(folder: Path, boundary: int) -> None:
    about = {"policy": folder.name, "algorithm": "ppo", "update": 1}
    checkpoint.save(folder, boundary, ticks=boundary, boundary=boundary, **about)


def put_own(folder: Path, boundary: int) -> Path:
    """Saves a worker's own state; returns its path."""
    return write_states(folder, boundary, {(0, 1): "mine"})


def worker_file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in checkpoint.worker_files(folder))


def test_worker_states_are_removed_with_their_boundary(tmp_path: Path) -> None:
    for boundary in (0, 10, 20, 30, 40):
        put_own(tmp_path, boundary)
        put(tmp_path, boundary)
    assert names(tmp_path) == [0, 20, 30, 40]
    assert worker_file_names(tmp_path) == [f"{boundary:012d}.workers-0.ckpt" for boundary in (20, 30, 40)]


def test_save_leaves_temporary_files_of_other_workers(tmp_path: Path) -> None:
    being_written = part_of(checkpoint.worker_path_of(tmp_path, 33, 1))
    left_by_a_kill = part_of(checkpoint.path_of(tmp_path, 30))
    for path in (being_written, left_by_a_kill):
        path.write_bytes(b"PK")
    put(tmp_path, 40)
    assert being_written.exists(), "a leg that ends early has other names than the one before"
    assert not left_by_a_kill.exists()


def test_resume_removes_temporary_files(tmp_path: Path) -> None:
    put(tmp_path, 40)
    own = put_own(tmp_path, 40)
    for path in (own, checkpoint.path_of(tmp_path, 40), checkpoint.path_of(tmp_path, 50), tmp_path / "other.ckpt"):
        part_of(path).write_bytes(b"PK")
    checkpoint.discard_after(tmp_path, 40)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000040.ckpt", own.name]


def test_resume_removes_checkpoints_after_its_tick(tmp_path: Path) -> None:
    for ticks in (0, 10, 20, 30):
        save(tmp_path, ticks, ticks=ticks)
        put_own(tmp_path, ticks)
    checkpoint.discard_after(tmp_path, 10)
    assert checkpoint.load(tmp_path).state == 10
    assert worker_file_names(tmp_path) == ["000000000010.workers-0.ckpt"], "the file of boundary 0 was removed before"


class Killed(BaseException):
    """Stands for the end of the process: nothing in the code may catch it for good."""


def kill_at(patch: pytest.MonkeyPatch, step: int, *, clean: bool) -> list[str]:
    """Lets the process die at its n-th call to the operating system; returns the calls that were made."""
    calls: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            if len(calls) >= step and (not clean or name != "unlink"):
                raise Killed(name)
            calls.append(name)
            return real(*arguments, **keywords)

        return call

    for name in ("open", "fsync", "replace", "unlink", "close"):
        patch.setattr(os, name, counted(name, getattr(os, name)))
    return calls


@pytest.mark.parametrize("clean", [True, False], ids=["interrupted", "killed"])
def test_a_kill_at_any_step_leaves_a_loadable_checkpoint(tmp_path: Path, clean: bool) -> None:
    for step in range(100):
        folder = tmp_path / str(step)
        for ticks in (0, 10, 20, 30):
            save(folder, {"w": np.full(3, ticks)}, ticks=ticks)
        with pytest.MonkeyPatch.context() as patch:
            calls = kill_at(patch, step, clean=clean)
            try:
                save(folder, {"w": np.full(3, 40)}, ticks=40)
                finished = True
            except Killed:
                finished = False
        loaded = checkpoint.load(folder)
        assert loaded.ticks == (40 if "replace" in calls else 30)
        assert loaded.state["w"].tolist() == [loaded.ticks] * 3
        save(folder, {"w": np.full(3, 50)}, ticks=50)
        assert sorted(path.suffix for path in folder.iterdir()) == [".ckpt"] * 4, "remains of killed saves are removed"
        if finished:
            break
    assert finished
    assert step >= 5, "open, fsync, replace, fsync of the folder, removal of an old one"


def test_truncated_file_is_damaged_and_the_previous_one_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, "old", ticks=1)
    newest = save(tmp_path, {"w": np.arange(4.0)}, ticks=2)
    content = newest.read_bytes()
    caplog.set_level(logging.WARNING)
    for size in range(0, len(content), 7):
        newest.write_bytes(content[:size])
        with pytest.raises(ConfigError, match=r"000000000002\.ckpt: is"):
            checkpoint.load(newest)
        caplog.clear()
        assert checkpoint.load(tmp_path).state == "old"
        assert "passed over" in caplog.text
        assert newest.name in caplog.text


@pytest.mark.slow
def test_flipped_bit_is_detected_or_harmless(tmp_path: Path) -> None:
    state = {"w": np.arange(4.0), "n": [1, (2.5, "x")]}
    path = save(tmp_path, state, ticks=2)
    content = path.read_bytes()
    found = 0
    places = range(0, len(content), 3)
    for place in places:
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            loaded = checkpoint.load(path)
        except ConfigError:
            found += 1
        else:
            assert (bits(loaded.state), loaded.ticks, loaded.policy) == (bits(state), 2, "blue")
    assert found > len(places) // 2


def rewritten(path: Path, header: dict[str, Any]) -> None:
    """Writes a checkpoint with this header and a digest that is right."""
    members = [("checkpoint.json", json.dumps(header).encode())]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (*members, ("sha256", checkpoint._digest(members).encode())):
            archive.writestr(name, content)


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    save(tmp_path, ticks=1)
    newer = tmp_path / "000000000002.ckpt"
    rewritten(newer, {"version": 2, "arena": "9.1", "state": None})
    for path in (newer, tmp_path):
        with pytest.raises(ConfigError, match=r"format version 2, written by arena 9\.1; this arena reads up to"):
            checkpoint.load(path)


def test_foreign_file_is_not_a_checkpoint(tmp_path: Path) -> None:
    text = tmp_path / "weights.pt"
    text.write_text("hello")
    with pytest.raises(ConfigError, match=r"weights\.pt: is not a checkpoint, or is damaged"):
        checkpoint.load(text)
    torch.save({"w": torch.zeros(2)}, text)  # also a zip file
    with pytest.raises(ConfigError, match="is not a checkpoint: a zip file of something else"):
        checkpoint.load(text)


def test_an_empty_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no whole checkpoint in this folder"):
        checkpoint.load(tmp_path)
    with pytest.raises(ConfigError, match=r"x\.ckpt: cannot be read: No such file"):
        checkpoint.load(tmp_path / "x.ckpt")


def test_a_load_setting_may_name_a_file_a_policy_folder_or_a_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "blue"
    folder.parent.mkdir()
    path = save(folder)
    assert checkpoint.find(path, "blue") == path
    assert checkpoint.find(folder, "any policy") == path
    assert checkpoint.find(tmp_path, "blue") == path


def test_load_setting_without_a_match_lists_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    save(tmp_path / "checkpoints" / "blue")
    with pytest.raises(ConfigError, match=r"policy 'bleu' in this run; did you mean 'blue'\? known: blue; .*:blue"):
        checkpoint.find(tmp_path, "bleu")
    with pytest.raises(ConfigError, match="there is no such checkpoint file"):
        checkpoint.find(tmp_path / "nowhere", "blue")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no checkpoint in this folder"):
        checkpoint.find(tmp_path / "empty", "blue")


def test_the_structure_is_plain_json(tmp_path: Path) -> None:
    path = save(tmp_path, {"a": (1, [math.inf]), 2: np.float32(0.5)})
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("checkpoint.json"))
        assert archive.namelist() == ["checkpoint.json", "arrays/0.npy", "sha256"]
    assert header["state"] == {"dict": [["a", {"tuple": [1, [{"float": "7ff0000000000000"}]]}], [2, {"scalar": 0}]]}


@pytest.mark.slow
def test_states_are_read_in_several_threads_at_the_same_time() -> None:
    """The garbage collector switches threads while a header is read, as may happen at any time."""
    content, expected = encode({"a": [np.zeros((2, size)) for size in range(20)]}), []

    def read() -> None:
        for _ in range(30):
            decode(*content)
        expected.append(True)

    def give_way(phase: str, info: object) -> None:
        time.sleep(0)

    threshold, threads = gc.get_threshold(), [threading.Thread(target=read) for _ in range(4)]
    gc.freeze()  # so that it has little to look through
    gc.callbacks.append(give_way)
    gc.set_threshold(3)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(give_way)
        gc.unfreeze()
    assert len(expected) == len(threads)


def in_run(home: Path, state: Any, *, policy: str = "blue", ticks: int = 10) -> Path:
    """A checkpoint where a run has it."""
    (home / "checkpoints").mkdir(exist_ok=True)
    (home / "config.yaml").touch()
    return checkpoint.save(
        home / "checkpoints" / "blue", state, policy=policy, algorithm="ppo", ticks=ticks, update=1, boundary=ticks
    )


def test_file_of_another_policy_or_boundary_is_refused_in_a_run(tmp_path: Path) -> None:
    path = in_run(tmp_path, {"weight": np.ones(2)})
    assert checkpoint.load(path).boundary == 10
    path.rename(path.with_name("000000000020.ckpt"))
    with pytest.raises(checkpoint.DamagedFile, match=r"20\.ckpt.*is the checkpoint of the boundary at tick 10"):
        checkpoint.load(path.with_name("000000000020.ckpt"))
    with pytest.raises(checkpoint.DamagedFile, match="is a checkpoint of the policy 'red'"):
        checkpoint.load(in_run(tmp_path, {}, policy="red"))
    blue = tmp_path / "checkpoints" / "blue"
    write_states(blue, 10, {(0, 1): {}}).rename(checkpoint.worker_path_of(blue, 20, 0))
    with pytest.raises(checkpoint.DamagedFile, match=r"20\.workers-0\.ckpt.*boundary at tick 10"):
        state_of(blue, 20, (0, 1))
    (tmp_path / "config.yaml").unlink()
    assert state_of(blue, 20, (0, 1)) == {}, "a user's folder of this name has any files"


@pytest.mark.parametrize("state", [None, 3, "text", [{}]])
def test_state_that_is_no_mapping_is_refused(tmp_path: Path, state: Any) -> None:
    path = in_run(tmp_path, state)
    with pytest.raises(checkpoint.DamagedFile, match="in the place of the mapping") as caught:
        checkpoint.check_mapping(checkpoint.load(path), path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ([1.0], "list in the place of the mapping"),
        ({"a": [{"b": np.array([1.0, math.nan])}]}, r"state\['a'\]\[0\]\['b'\]"),
        ({"a": np.full((2, 2), np.inf, np.float16)}, r"state\['a'\]"),
        ({"net": {"weight": torch.tensor([1.0, math.nan])}}, r"not finite in state\['net'\]\['weight'\]"),
    ],
)
def test_weights_that_cannot_act_are_refused(tmp_path: Path, state: Any, place: str) -> None:
    path = save(tmp_path, state)
    with pytest.raises(ConfigError, match=place) as caught:
        checkpoint.load_to_act(path)
    assert str(path) in str(caught.value)


def test_single_numbers_of_a_state_may_be_infinite(tmp_path: Path) -> None:
    path = save(tmp_path, {"best": -math.inf, "loss": np.float32(math.nan), "weight": np.ones(3), "n": np.arange(3)})
    checkpoint.load_to_act(path)


# ------------------------------------------------------------------------------------------------ own states of workers

STATES = {(match, seat): {"weight": np.full(4, match), "seat": seat} for match in range(3) for seat in (0, 1)}


def test_states_of_all_workers_of_a_rank_are_in_one_file(tmp_path: Path) -> None:
    some = {seat: state for seat, state in STATES.items() if seat[0] < 2}
    others = {seat: state for seat, state in STATES.items() if seat[0] == 2}
    paths = [write_states(tmp_path, 20, some), write_states(tmp_path, 20, others, rank=7)]
    assert sorted(tmp_path.iterdir()) == paths
    assert checkpoint.worker_states(tmp_path, 20).keys() == STATES.keys()
    assert checkpoint.worker_states(tmp_path, 30) == {}
    for seat, state in STATES.items():
        assert bits(state_of(tmp_path, 20, seat)) == bits(state)
    with pytest.raises(ConfigError, match=r"workers-0\.ckpt: has the own states of workers; name the policy's"):
        checkpoint.load(paths[0])


def test_state_of_a_worker_is_a_checkpoint_file_of_its_own(tmp_path: Path) -> None:
    path = write_states(tmp_path, 20, STATES)
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == [*(f"match-{match}-seat-{seat}.ckpt" for match, seat in STATES), "sha256"]
        archive.extract("match-2-seat-1.ckpt", tmp_path)
    found = checkpoint.load(tmp_path / "match-2-seat-1.ckpt")
    assert (bits(found.state), found.boundary) == (bits(STATES[2, 1]), 20)


@pytest.mark.parametrize("harm", ["cut", "flipped", "swapped", "member lost"])
def test_damaged_file_of_workers_is_named(harm: str, tmp_path: Path) -> None:
    path = write_states(tmp_path, 20, STATES)
    whole, content = checkpoint.verified_digest(path), path.read_bytes()
    assert whole == checkpoint.written_digest(path)
    if harm == "cut":
        for size in range(0, len(content), 97):
            path.write_bytes(content[:size])
            with pytest.raises(ConfigError, match=r"workers-0\.ckpt: is"):
                checkpoint.verified_digest(path)
        return
    if harm == "flipped":
        place = content.index(np.full(4, 2).tobytes())  # in an array of match 2
        path.write_bytes(content[:place] + b"\x55" + content[place + 1 :])
    else:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        if harm == "swapped":
            one, other = "match-0-seat-0.ckpt", "match-0-seat-1.ckpt"
            members[one], members[other] = members[other], members[one]
        else:
            del members["match-1-seat-0.ckpt"]
        with zipfile.ZipFile(path, "w") as archive:
            for name, member in members.items():
                archive.writestr(name, member)
    with pytest.raises(checkpoint.DamagedFile, match=r"workers-0\.ckpt: is"):
        checkpoint.verified_digest(path)


def test_file_of_workers_that_is_not_completed_leaves_the_earlier_one(tmp_path: Path) -> None:
    path = write_states(tmp_path, 20, {(0, 0): "earlier"})
    file = checkpoint.worker_states_file(path)
    next(file)
    file.send(((0, 0), checkpoint.Checkpoint("later", "blue", "ppo", 20, 1, 20)))
    assert state_of(tmp_path, 20, (0, 0)) == "earlier"
    assert part_of(path).exists()
    file.close()  # the role has failed
    assert [*tmp_path.iterdir()] == [path]
    assert state_of(tmp_path, 20, (0, 0)) == "earlier"


def test_a_file_of_workers_needs_the_memory_of_one_state(tmp_path: Path) -> None:
    size, count = 2**20, 24

    peaks = []
    for action in (
        lambda: write_states(tmp_path, 20, (((match, 0), np.full(size, match, np.uint8)) for match in range(count))),
        lambda: checkpoint.verified_digest(checkpoint.worker_path_of(tmp_path, 20, 0)),
        lambda: state_of(tmp_path, 20, (count - 1, 0)),
    ):
        tracemalloc.start()
        action()
        peaks.append(tracemalloc.get_traced_memory()[1] / size)
        tracemalloc.stop()
    assert max(peaks) < 5, peaks
