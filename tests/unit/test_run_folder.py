"""The run folder: its tree, its permissions, and exclusive use of it by its lock."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.records.formats import PlanFile, write_document
from arena.records.lock import FAILED, RunLock, is_left, refuse_locked


def started(path: Path) -> RunFolder:
    """A run that has written its first file, and an episode."""
    folder = RunFolder.open(path)
    folder.write_config("name: x\n")
    folder.episodes.write_text("{}\n")
    return folder


def test_a_new_run_gets_a_private_tree(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "runs" / "x")
    folder.write_config("seed: 7\n")
    write_document(folder.plan, PlanFile("x", 6, (), ()))
    names = ["checkpoints", "checksums", "config.yaml", "logs", "plan.json"]
    assert sorted(path.name for path in folder.path.iterdir()) == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.path, folder.logs, folder.checkpoints)} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.config, folder.plan)} == {0o600}
    assert folder.config.read_text() == "seed: 7\n"
    assert json.loads(folder.plan.read_text()) == {"name": "x", "processes": 6, "matches": [], "ranks": []}


def test_runs_of_one_name_get_folders_of_their_own(tmp_path: Path) -> None:
    names = [started(tmp_path / "x").path.name for _ in range(3)]
    assert names == ["x", "x-2", "x-3"]
    both = [RunFolder.open(tmp_path / "x").path.name for _ in range(2)]
    assert both == ["x-4", "x-5"], "two that start at the same instant"
    with pytest.raises(ConfigError, match=r"x: the run folder holds files already; continue a run with --resume"):
        RunFolder.open(tmp_path / "x", named=True)


def test_empty_or_missing_named_folder_is_used(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert RunFolder.open(tmp_path / "empty", named=True).path == tmp_path / "empty"
    assert RunFolder.open(tmp_path / "a" / "b", named=True).path == tmp_path / "a" / "b"


def unbegun(path: Path, *boundaries: str) -> RunFolder:
    """The folder of a run that was killed before its configuration was written."""
    folder = RunFolder.open(path)
    folder.boundaries.mkdir()
    for name in boundaries:
        (folder.boundaries / name).write_text("{}")
    for file in (folder.rounds, folder.tournament):
        file.write_text("{}")
    return folder


@pytest.mark.parametrize("left", ["000000000000.json", ".000000000000.json.part"])
def test_remains_of_a_killed_start_are_reused_or_removed(tmp_path: Path, left: str) -> None:
    folder = unbegun(tmp_path / "x", left)
    assert RunFolder.open(folder.path, named=True).path == folder.path
    folder.remove_unbegun(str(folder.path))
    assert not folder.path.exists()


@pytest.mark.parametrize(("made", "left"), [("", ["a", "b", "run"]), ("a/b", ["a"]), ("a/b/run", ["a", "b"])])
def test_folders_made_for_a_run_that_does_not_begin_are_removed(made: str, left: list[str], tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "a/b/run")
    folder.remove_unbegun(made and str(tmp_path / made))
    assert sorted(path.name for path in tmp_path.rglob("*")) == left


def failed(path: Path) -> RunFolder:
    """The folder of a run that has ended in its first leg, with nothing on record."""
    folder = unbegun(path, "000000000000.json")
    folder.write_config("name: x\n")
    folder.episodes.touch()
    folder.plan.write_text("{}")
    return folder


def test_run_that_ended_in_its_first_leg_makes_room(tmp_path: Path) -> None:
    folder = failed(tmp_path / "x")
    assert RunFolder.open(folder.path, named=True).path == folder.path
    assert {path.name for path in folder.path.iterdir()} == {"checkpoints", "lock", "logs"}


@pytest.mark.parametrize("make", [failed, unbegun])
def test_failed_run_without_a_result_leaves_its_numbered_name_free(
    make: Callable[[Path], RunFolder], tmp_path: Path
) -> None:
    folder = make(tmp_path / "x")
    (folder.path / "lock").write_text(FAILED)
    assert RunFolder.open(tmp_path / "x").path == folder.path
    assert {path.name for path in folder.path.iterdir()} == {"checkpoints", "lock", "logs"}
    assert RunFolder.open(tmp_path / "x").path == tmp_path / "x-2", "the other run that has just claimed it keeps it"


@pytest.mark.parametrize("writes", [False, True])
def test_runs_that_claim_a_failed_one_at_once_get_a_folder_each(
    writes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that it has failed; the first one has cleared it, and may hold its lock already."""
    folder = failed(tmp_path / "x")
    (folder.path / "lock").write_text(FAILED)
    monkeypatch.setattr("arena.records.folder.has_failed", lambda path: path.name == "x")
    assert RunFolder.open(tmp_path / "x").path == folder.path
    with RunLock.take(folder.path) if writes else nullcontext():
        assert RunFolder.open(tmp_path / "x").path == tmp_path / "x-2"
    assert folder.logs.is_dir()


@pytest.mark.parametrize("keeps", ["result.json", "measures.jsonl", "episodes.jsonl", "x-2"])
def test_failed_run_with_a_result_or_a_later_one_keeps_its_numbered_name(keeps: str, tmp_path: Path) -> None:
    folder = failed(tmp_path / "x")
    (folder.path / "lock").write_text(FAILED)
    if keeps == "x-2":
        (tmp_path / "x-2").mkdir()
    else:
        (folder.path / keeps).write_text("{}")
    before = sorted(folder.path.rglob("*"))
    assert RunFolder.open(tmp_path / "x").path == tmp_path / ("x-3" if keeps == "x-2" else "x-2")
    assert sorted(folder.path.rglob("*")) == before


@pytest.mark.parametrize(
    "more",
    [
        "notes.txt",
        "human_games.jsonl",
        "boundaries/000000000040.json",
        "episodes.jsonl",
        "metrics.jsonl",
        "measures.jsonl",
        "result.json",
        "no plan",
    ],
)
def test_run_that_has_something_to_keep_makes_no_room(more: str, tmp_path: Path) -> None:
    folder = failed(tmp_path / "x")
    if more == "no plan":  # the configuration may be the user's own
        folder.plan.unlink()
    else:
        (folder.path / more).write_text("{}")
    before = sorted(folder.path.rglob("*"))
    with pytest.raises(ConfigError, match="holds files already"):
        RunFolder.open(folder.path, named=True)
    assert sorted(folder.path.rglob("*")) == before


def test_run_that_is_under_way_makes_no_room(tmp_path: Path) -> None:
    folder = failed(tmp_path / "x")
    with another(folder.path), pytest.raises(ConfigError, match="another run writes into this folder"):
        RunFolder.open(folder.path, named=True)
    assert folder.config.exists()


def test_played_run_or_a_file_is_not_claimed(tmp_path: Path) -> None:
    folder = unbegun(tmp_path / "played", "000000000000.json", "000000000040.json")
    with pytest.raises(ConfigError, match="holds files already"):
        RunFolder.open(folder.path, named=True)
    (tmp_path / "x").write_text("")
    with pytest.raises(ConfigError, match="the run folder is a file"):
        RunFolder.open(tmp_path / "x", named=True)
    with pytest.raises(ConfigError, match="cannot be made"):
        RunFolder.open(tmp_path / "x" / "y", named=True)


def test_resume_takes_the_last_run_of_the_name_or_the_named_folder(tmp_path: Path) -> None:
    for _ in range(10):
        started(tmp_path / "x")
    started(tmp_path / "x-other")
    assert RunFolder.open(tmp_path / "x", resume=True).path.name == "x-10"
    assert RunFolder.open(tmp_path / "x", resume=True, named=True).path.name == "x"


def test_experiment_is_no_run_and_its_runs_are_named(tmp_path: Path) -> None:
    (tmp_path / "experiment.yaml").touch()
    with pytest.raises(
        ConfigError, match=r"not a run folder: it is an experiment, whose runs are in .*trials; name one"
    ):
        RunFolder.existing(tmp_path)


@pytest.mark.parametrize("given", [True, False])
def test_folder_of_a_run_that_was_ended_before_its_first_tick_is_named_so(tmp_path: Path, given: bool) -> None:
    path = RunFolder.open(tmp_path / "x").path
    with (
        RunLock.take(path),
        pytest.raises(
            ConfigError, match=r"x: not a run folder: a run in it has not begun yet: wait for its first tick"
        ),
    ):
        RunFolder.existing(path)
    ended = r"x: not a run folder: a run in it was ended before its first tick: start it again without --resume$"
    with pytest.raises(ConfigError, match=ended):
        RunFolder.open(path, resume=True, named=given)
    with pytest.raises(ConfigError, match=ended):
        RunFolder.existing(path)
    assert RunFolder.open(path, named=True).path == path, "as the message says"


@pytest.mark.parametrize("given", [True, False])
def test_resume_without_a_run_is_refused_and_creates_nothing(tmp_path: Path, given: bool) -> None:
    with pytest.raises(
        ConfigError, match=r"not a run folder: it does not exist; .* with --run-dir, or leave --resume out"
    ):
        RunFolder.open(tmp_path / "x", resume=True, named=given)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_run_folder_names_the_run_beside_it_with_a_similar_name(tmp_path: Path) -> None:
    for name in ("base", "bat"):
        (tmp_path / name).mkdir()
    (tmp_path / "base" / "config.yaml").touch()
    with pytest.raises(
        ConfigError, match=rf"it does not exist; did you mean {tmp_path / 'base'}\? name the folder of a"
    ):
        RunFolder.existing(tmp_path / "bas")
    with pytest.raises(ConfigError, match="it does not exist; name the folder of a run"):
        RunFolder.existing(tmp_path / "quite_other")


# The lock of a run folder: a second process learns the holder, and the holder's death frees the folder


ROOT = Path(__file__).resolve().parents[2]
HOLDS = (
    "import sys; from arena.records.lock import RunLock; lock = RunLock.take(sys.argv[1]); print('held', flush=True); "
    "sys.stdin.read(); lock.release()"
)


@contextmanager
def another(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its stdin is closed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_second_holder_is_refused_until_the_first_one_is_killed(tmp_path: Path) -> None:
    refuse_locked(tmp_path)
    assert not (tmp_path / "lock").exists(), "asking has no effect"
    with another(tmp_path) as process:
        before = (tmp_path / "lock").read_bytes()
        for take in (RunLock.take, refuse_locked):
            with pytest.raises(ConfigError) as caught:
                take(tmp_path)
            assert f"process {process.pid} on host {socket.gethostname()!r} since '20" in str(caught.value)
            assert str(caught.value).startswith(f"{tmp_path}: another run writes into this folder: ")
        process.kill()
    refuse_locked(tmp_path)
    assert (tmp_path / "lock").read_bytes() == before and is_left(tmp_path), "the folder still shows the kill"
    with RunLock.take(tmp_path) as lock:
        assert lock.locked


def test_lock_is_exclusive_within_a_process(tmp_path: Path) -> None:
    with RunLock.take(tmp_path) as lock:
        assert lock.locked
        with pytest.raises(ConfigError, match=f"process {os.getpid()} on host"):
            RunLock.take(tmp_path)
    assert not lock.locked
    RunLock.take(tmp_path).release()


def test_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = RunLock.take(tmp_path)
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    with pytest.raises(ConfigError):
        RunLock.take(tmp_path)
    lock.release()
    RunLock.take(tmp_path).release()
    os.write(done[1], b"x")
    os.waitpid(child, 0)
    for descriptor in (*ready, *done):
        os.close(descriptor)


def test_the_lock_is_private_and_its_release_is_idempotent(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        lock = RunLock.take(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
    lock.release()
    lock.release()
    assert lock.path.read_text() == ""


@pytest.mark.parametrize("text", ["", "[]", "\x00" * 9])
def test_anonymous_holder_still_holds_the_lock(tmp_path: Path, text: str) -> None:
    with RunLock.take(tmp_path) as lock:
        lock.path.write_text(text)
        with pytest.raises(ConfigError, match="an unnamed process"):
            RunLock.take(tmp_path)


def test_file_system_without_locks_allows_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    lock = RunLock.take(tmp_path)
    assert not lock.locked
    lock.release()


def test_lock_works_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with RunLock.take(tmp_path) as lock:
        assert lock.locked


def test_missing_folder_and_symlink_lock_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be locked: No such file"):
        RunLock.take(tmp_path / "nowhere")
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="cannot be locked: "):
        RunLock.take(tmp_path)
    assert (tmp_path / "elsewhere").read_text() == "precious"
