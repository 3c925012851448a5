"""Untrusted files are read or refused: they run no code, name none, write nothing, allocate no excess."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import experiment_folders
from arena.config import parse_config
from arena.errors import ConfigError
from arena.experiment.config import parse_experiment
from arena.experiment.display import PlainExperimentDisplay, Progress
from arena.experiment.driver import Driver
from arena.experiment.folder import ExperimentFolder, Record, StateLine, write_state
from arena.experiment.plan import plan_experiment
from arena.experiment.scheduler import State
from arena.experiment.slots import Slots
from arena.league.changes import check_recorded, with_newest_games
from arena.plan.hosts import Host
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.records.formats import Boundary, ChangeLine

HEADER = {"version": 1, "policy": "blue", "algorithm": "ppo", "boundary": 1, "ticks": 1, "update": 1, "arena": "x"}
GIBIBYTE = 2**30


class Bomb:
    """Its pickle runs code when it is opened."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch exploded",)


def npy(array: Any, **settings: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **settings)
    return file.getvalue()


def claiming(shape: tuple[int, ...], descr: str = "<f8", content: bytes = b"") -> bytes:
    """An array file whose header says more than its bytes hold."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


def written(path: Path, state: Any, arrays: Sequence[bytes], *, sealed: bool = True, **zip_settings: Any) -> Path:
    """A checkpoint file of any content, with a valid digest."""
    members = [("checkpoint.json", json.dumps({**HEADER, "state": state}).encode())]
    members += [(f"arrays/{number}.npy", array) for number, array in enumerate(arrays)]
    if sealed:
        members.append(("sha256", checkpoint._digest(members).encode()))
    with zipfile.ZipFile(path, "w", **zip_settings) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


@contextmanager
def little_memory() -> Iterator[None]:
    """In the block the process cannot grow by more than a GiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GIBIBYTE, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def refused(path: Path) -> str:
    """The error of a hostile file; checks that nothing was run or written, and nothing large allocated."""
    before = sorted(path.parent.rglob("*"))
    os.chdir(path.parent)
    with little_memory(), pytest.raises(ConfigError) as caught:
        checkpoint.load(path)
    assert sorted(path.parent.rglob("*")) == before
    return str(caught.value)


@pytest.fixture(autouse=True)
def _here_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_valid_handwritten_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "x.ckpt", [{"array": 0}, {"scalar": 1}], [npy(np.arange(3)), npy(np.float32(2))])
    first, second = checkpoint.load(path).state
    assert first.tolist() == [0, 1, 2]
    assert second == 2


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_in_place_of_file_or_array_is_never_opened(tmp_path: Path, protocol: int) -> None:
    code = pickle.dumps(Bomb(), protocol)
    (tmp_path / "x.ckpt").write_bytes(code)
    refused(tmp_path / "x.ckpt")
    refused(written(tmp_path / "x.ckpt", {"array": 0}, [code]))
    with np.errstate(all="ignore"):
        objects = npy(np.array([Bomb()], dtype=object), allow_pickle=True)
    assert "allow_pickle=False" in refused(written(tmp_path / "x.ckpt", {"array": 0}, [objects]))


def test_an_array_header_with_code_in_it_is_not_evaluated(tmp_path: Path) -> None:
    text = b"{'descr': __import__('os').system('touch exploded') and '<f8', 'fortran_order': False, 'shape': (1,)}\n"
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)
    refused(written(tmp_path / "x.ckpt", {"array": 0}, [content]))


@pytest.mark.parametrize("name", ["../evil.npy", "/tmp/evil.npy", "arrays/../../evil.npy", "arrays/00.npy", "evil"])
def test_path_traversal_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "x.ckpt", {"array": 0}, [], sealed=False)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, npy(np.zeros(2)))
        archive.writestr("sha256", "0" * 64)
    assert "a zip file of something else" in refused(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_member_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.ckpt", {"array": 0}, [npy(np.zeros(2))])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("arrays/0.npy", npy(np.ones(2)))
    assert "a zip file of something else" in refused(path)


@pytest.mark.slow
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_bomb_is_refused_before_unpacking(tmp_path: Path, method: int) -> None:
    path = written(tmp_path / "x.ckpt", None, [bytes(2**24)], compression=method, sealed=False)
    with zipfile.ZipFile(path, "a", compression=method) as archive:
        archive.writestr("sha256", "0" * 64)
    assert path.stat().st_size < 10**5
    assert "larger than the file" in refused(path)


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.ckpt", None, [npy(np.zeros(10**5))] * 3)
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(3, 60):
            info = copy.copy(archive.NameToInfo["arrays/0.npy"])
            info.filename = f"arrays/{number}.npy"
            archive.filelist.insert(-1, info)
        archive._didModify = True  # type: ignore[attr-defined]
    assert "larger than the file" in refused(path)


@pytest.mark.parametrize(
    "content",
    [
        claiming((10**11,)),
        claiming((2**32, 2**32, 2**32)),
        claiming((3,), content=bytes(16)),
        claiming((1,), content=bytes(16)),
        claiming((-5,)),
        claiming((5,), "|S0", b"x"),
        claiming((1,), "|O", bytes(8)),
        claiming((1,), "|V1000000000000"),
        b"\x93NUMPY\x09\x00",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x01\x00\x20\x00{'descr': '<i8', 'shape': (3,\n  \n",
        b"\x93NUMPY\x01\x00\x10\x00  {\n a\n  b\n c\n }",
        b"",
    ],
    ids=range(13),
)
def test_array_larger_than_its_bytes_is_refused_early(tmp_path: Path, content: bytes) -> None:
    assert "is not a checkpoint" in refused(written(tmp_path / "x.ckpt", {"array": 0}, [content]))


@pytest.mark.parametrize(
    "state",
    [
        [{"array": 0}] * 1000,
        {"array": 1},
        {"array": -1},
        {"array": True},
        {"array": "../x"},
        {"array": None},
        {"tuple": 5},
        {"dict": [[[], 1]]},
        {"dict": [1]},
        {"float": "xyz"},
        {"float": "00"},
        {"float": 5},
        {"code": "print()"},
        {},
        {"a": 1, "b": 2},
    ],
    ids=repr,
)
def test_unknown_structure_is_refused(tmp_path: Path, state: Any) -> None:
    assert "is not a checkpoint" in refused(written(tmp_path / "x.ckpt", state, [npy(np.zeros(10**5))]))


def test_too_deep_structure_is_refused(tmp_path: Path) -> None:
    depth = 100 * sys.getrecursionlimit()
    header = json.dumps({**HEADER, "state": 0}).replace('"state": 0', f'"state": {"[" * depth}{"]" * depth}').encode()
    members = [("checkpoint.json", header)]
    with zipfile.ZipFile(tmp_path / "x.ckpt", "w") as archive:
        archive.writestr(*members[0])
        archive.writestr("sha256", checkpoint._digest(members))
    assert "RecursionError" in refused(tmp_path / "x.ckpt")


@pytest.mark.slow
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_mutated_checkpoint_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "x.ckpt"
    arrays = [npy(np.arange(5)), npy(np.zeros((2, 2), np.float32))]
    content = bytearray(written(path, [{"array": 0}, {"dict": [["w", {"array": 1}]]}], arrays).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    path.write_bytes(content)
    with little_memory(), suppress(ConfigError):
        checkpoint.load(path)


# ---------------------------------------------------------------------------------------- names in other files of a run

RUN: dict[str, Any] = {
    "name": "run",
    "ticks": 10,
    "envs": {"game": {"make": "touchdown", "kwargs": {"maps": ["plain", "own:Map"]}}},
    "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"]}],
}
CURRICULUM = {"curriculum": {"class": "curricula:Longer"}}
SIMULATOR = {"envs": {"game": {"make": "shared_memory", "kwargs": {}}}}


@pytest.mark.parametrize(
    ("more", "value", "allowed"),
    [
        ({}, {"map": "own:Map", "size": 3, "flag": True, "parts": [None, 1.5]}, False),  # the key is new, too
        ({}, ["plain", "own:Map", 3], True),
        ({}, "hard", False),
        ({}, ["plain", ["hard"]], False),
        (CURRICULUM, "hard", True),
        (CURRICULUM, {"hard": ["harder"]}, True),
        (CURRICULUM, "own:Map", True),
        (CURRICULUM, "evil:Map", False),
        (CURRICULUM, {"deep": [{"evil:Map": 1}]}, False),
        ({**CURRICULUM, **SIMULATOR}, "touch exploded", False),  # it may be the program
        ({**CURRICULUM, **SIMULATOR}, 3, True),
    ],
)
def test_recorded_change_names_what_the_configuration_names(more: dict[str, Any], value: Any, allowed: bool) -> None:
    config, lines = (
        parse_config({**RUN, **more}, source=""),
        [ChangeLine(tick=5, set={"envs.game.kwargs.level": value})],
    )
    if allowed:
        check_recorded(lines, config, 5, source="")
    else:
        check_recorded(lines, config, 4, source="")
        with pytest.raises(ConfigError, match=r"only config\.yaml can name code, programs and files") as caught:
            check_recorded(lines, config, 5, source="")
        assert caught.value.path == "envs.game.kwargs.level"


def test_newest_games_are_those_of_the_last_changes(tmp_path: Path) -> None:
    config, folder = parse_config({**RUN, **CURRICULUM}, source=""), RunFolder(tmp_path)
    rule, option = "envs.game.kwargs.rule", "policies.blue.options.text"
    changes = [{rule: {"a": 1}}, {f"{rule}.a": 2, option: "own:Code"}, {rule: {"a": 3}}, {rule: {"a": 4}}]
    lines = [{"tick": 10 * number, "set": changed} for number, changed in enumerate(changes)]
    folder.changes.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder.boundaries.mkdir()
    (folder.boundaries / f"{20:012}.json").touch()
    found = with_newest_games(config, folder)
    assert found.envs["game"].kwargs["rule"] == {"a": 3} and found.policies == config.policies
    assert with_newest_games(config, folder, [f"{rule}.a=5"]).envs["game"].kwargs["rule"] == {"a": 5}


@pytest.mark.parametrize("name", ["../../x", "/etc", "..", ".", "", "a/b", "a\0b"])
def test_names_in_a_run_folder_lead_nowhere_else(name: str, tmp_path: Path) -> None:
    folder, boundary = RunFolder(tmp_path), Boundary(tick=1, checkpoints={name: 1})
    line = StateLine("", State.PENDING, folder=name or "..")
    for function in (
        lambda: folder.checkpoints_path(name),
        lambda: folder.snapshot_path(name, 5),
        lambda: boundary.checkpoint(folder, name),
        lambda: ExperimentFolder(tmp_path).run_folder(Record(0, "", {}, 0, "", name or "..", line)),
    ):
        with pytest.raises(ConfigError, match="cannot be the name of a file in it"):
            function()


@pytest.mark.parametrize(
    "params", [{"policies.blue.algorithm": "evil:Worker"}, {"imports": ["evil"]}, {"loggers": ["evil:Log"]}]
)
def test_values_of_a_trial_on_record_are_those_of_the_experiment(params: dict[str, Any], tmp_path: Path) -> None:
    plan = plan_experiment(parse_experiment({"name": "sweep", "run": experiment_folders.RUN, "repeat": 2}))
    folder = ExperimentFolder(tmp_path / "e")
    folder.make()
    for number, trial in enumerate(plan.known):
        line = StateLine("", State.PENDING, variant="", params=params, seed=trial.seed, digest=trial.digest)
        line.folder = folder.folder_name(number, "")
        write_state(folder.state_path(number), [line])
    folder.write_config("name: sweep\n")
    driver = Driver(
        plan,
        folder,
        Slots([Host("here", 1)]),
        PlainExperimentDisplay(io.StringIO(), Progress(10, 2, plan.file.config.metric)),
    )
    with pytest.raises(ConfigError, match=r"0000\.jsonl: has other values than the experiment asks for"):
        driver.run()
    assert not any(folder.trials.iterdir())
