"""Run folders that were received from others: only config.yaml names code, and nothing is read or written elsewhere."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.cli.main import main
from arena.dataset import open_dataset
from arena.errors import ConfigError
from arena.records import read_results
from arena.records.folder import NAMES
from arena.replay import frames
from arena.serving.policy import load_policy
from arena.trainer import Trainer
from hostile_folders import CODE, HOSTILE, Mark, edit_json, played, received, set_config

COMMANDS = {
    "report": ["report", "{run}"],
    "report without replays": ["report", "{run}", "--replays", "0"],
    "standings": ["standings", "{run}"],
    "watch": ["watch", "{run}"],
    "replay": ["replay", "{run}"],
    "replay an episode": ["replay", "{run}", "--match", "0", "--episode", "0"],
    "replay --verify": ["replay", "{run}", "--verify"],
    "evaluate": ["evaluate", "{run}", "--episodes", "1"],
    "tournament": ["tournament", "{run}", "--episodes", "4"],
    "export": ["export", "{run}:blue", "--samples", "256"],
    "export --verify": ["export", "--verify", "{run}/models/blue/200"],
    "resume": ["train", "{run}/config.yaml", "--resume", "--run-dir", "{run}", "--ranks", "1", "--ticks", "300"],
    "continue": ["train", "{run}/config.yaml", "--continue", "{run}", "--run-dir", "{run}-2", "--ranks", "1"],
}
PURE = ("report without replays", "standings", "watch", "replay")
"""The commands that run no code of a folder, not even what its config.yaml names."""
OF_ROUNDS = ("report", "standings", "tournament", "resume")
"""Commands that read rounds in ways of their own."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return played(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mark]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Mark(tmp_path)
    found.taken()
    yield found
    found.taken()


@pytest.fixture
def in_time() -> Iterator[None]:
    """A command that waits for the other end of a FIFO is interrupted."""

    def late(*_: object) -> None:
        raise AssertionError("the command hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(100)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def call(command: str, run: Path) -> int:
    return main([part.format(run=run) for part in COMMANDS[command]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        *(("flat", command) for command in COMMANDS),
        *(pytest.param("league", one, marks=[pytest.mark.long] * (one not in OF_ROUNDS)) for one in COMMANDS),
    ],
)
def test_only_the_configuration_names_code(
    kind: str, command: str, runs: dict[str, Path], mark: Mark, tmp_path: Path
) -> None:
    """All files of the folder are hostile."""
    folder = received(runs[kind], tmp_path / "run", *HOSTILE)
    assert call(command, folder.path) in (0, 1, 2)
    assert not mark.taken()


@pytest.mark.slow
@pytest.mark.parametrize("hostile", HOSTILE)
def test_each_file_alone_names_no_code(hostile: str, runs: dict[str, Path], mark: Mark, tmp_path: Path) -> None:
    """As above, where no other file of the folder makes a command end early."""
    kind = "league" if hostile.startswith("rounds") else "flat"
    for command in ("replay an episode", "replay --verify", "evaluate", "resume", "export --verify"):
        if command != "export --verify" or hostile == "model.json":
            folder = received(runs[kind], tmp_path / command / "run", hostile)
            assert call(command, folder.path) in (0, 1, 2)
            assert not mark.taken(), command


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_run_a_folders_code(command: str, runs: dict[str, Path], mark: Mark, tmp_path: Path) -> None:
    """The same payload, where it may stand: so the test above can fail."""
    folder = received(runs["flat"], tmp_path / "run", "manifest: imports")
    set_config(folder.path, imports=["payload"])
    if command == "export --verify":
        folder = received(runs["flat"], tmp_path / "other" / "run", "model.json")
        set_config(folder.path, imports=["payload"])
        edit_json(folder.models / "blue" / "200" / "model.json", lambda held: {**held, "run": "../../.."})
    call(command, folder.path)
    assert mark.taken() == (command not in PURE)


def test_manifest_of_another_game_is_refused(
    runs: dict[str, Path], mark: Mark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = received(runs["flat"], tmp_path / "run", "manifest: make")
    assert call("replay --verify", folder.path) == 2
    told = capsys.readouterr().err
    assert f"manifest.json: make: found {CODE!r}, but config.yaml" in told
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        next(frames(folder.path, 0, 0))
    assert call("replay", folder.path) == 0
    assert call("report", folder.path) == 0, "a replay that cannot be shown does not stop the page"
    assert not mark.taken()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "command"),
    [
        *(("link", command) for command in COMMANDS),
        *(pytest.param("fifo", one, marks=[pytest.mark.long] * (one not in OF_ROUNDS)) for one in COMMANDS),
    ],
)
def test_commands_refuse_links_and_fifos(
    what: str,
    command: str,
    runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    in_time: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("lock", "episodes.jsonl", "config.yaml", "checkpoints/blue", "replays", "logs", "models"):
        folder = received(runs["flat"], tmp_path / name.replace("/", "-") / "run", "model.json")
        edit_json(folder.models / "blue" / "200" / "model.json", lambda held: {**held, "run": "../../.."})
        config = folder.path.parent / "config.yaml"
        config.write_bytes(folder.config.read_bytes())
        place, target = folder.path / name, outside / name.replace("/", "-")
        if place.exists():
            place.rename(target)
        if what == "link":
            place.symlink_to(target)
        else:
            os.mkfifo(place)
        before = {path: path.stat().st_mtime_ns for path in outside.rglob("*")}
        arguments = [part.format(run=folder.path) for part in COMMANDS[command]]
        arguments = [str(config) if part == f"{folder.path}/config.yaml" else part for part in arguments]
        if command == "export --verify" and name == "models":
            continue  # it names a folder in it
        assert main(arguments) == 2, name
        assert str(place.relative_to(tmp_path)) in capsys.readouterr().err, name
        assert {path: path.stat().st_mtime_ns for path in outside.rglob("*")} == before


def test_every_file_of_a_run_is_refused_as_a_link(
    runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    in_time: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("{}\n")
    for name in NAMES:
        folder = received(runs["flat"], tmp_path / name / "run")
        place = folder.path / name
        if place.exists():
            place.rename(tmp_path / name / "moved")
        place.symlink_to(outside)
        assert main(["standings", str(folder.path)]) == 2
        assert f"{place}: is a link" in capsys.readouterr().err
    inside = received(runs["flat"], tmp_path / "deep" / "run")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(inside.replays)  # an address is short
        listening.bind("s")
        monkeypatch.undo()
        with pytest.raises(ConfigError, match="a FIFO, a device or a socket"):
            Trainer.restore(inside.path)
    assert outside.read_text() == "{}\n"


def test_functions_refuse_links_and_fifos(runs: dict[str, Path], tmp_path: Path, in_time: None) -> None:
    folder = received(runs["flat"], tmp_path / "run")
    os.mkfifo(folder.path / "samples")
    folder.results.unlink()
    folder.results.symlink_to("/etc/passwd")
    policy, pictures = (lambda path: load_policy(f"{path}:blue")), (lambda path: next(frames(path, 0, 0)))
    for function in (read_results, policy, pictures, open_dataset):
        with pytest.raises(ConfigError, match=r"is a (link|FIFO)"):
            function(folder.path)


def test_report_does_not_write_through_a_link_and_a_named_link_is_followed(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    keys = tmp_path / "authorized_keys"
    keys.write_text("mine")
    folder = received(runs["flat"], tmp_path / "run")
    (folder.path / ".report.html.part").symlink_to(keys)
    (folder.path / "notes").symlink_to("/etc")  # the arena knows no such file
    (tmp_path / "named").symlink_to(folder.path)
    assert main(["report", str(tmp_path / "named"), "--replays", "0"]) == 0
    assert keys.read_text() == "mine"
    assert folder.report.read_text().startswith("<!")
    assert not folder.report.is_symlink()


@pytest.mark.parametrize("command", ["watch", "replay", "replay an episode", "standings", "report without replays"])
def test_text_of_a_folder_is_printed_as_text(
    command: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b]0;owned\x07\x9b2J\u202e"
    folder = received(runs["flat"], tmp_path / "run")
    for path in folder.replays.glob("*/*/manifest.json"):
        edit_json(
            path, lambda held: {**held, "entities": [{**one, "policy": f"red{hostile}"} for one in held["entities"]]}
        )
    edit_json(folder.results, lambda line: {**line, "policy_reward_mean": {f"red{hostile}": 1.0}})
    if command in ("standings", "report without replays"):
        edit_json(folder.episodes, lambda line: {**line, "env": f"game{hostile}", "lane": hostile})
    assert call(command, folder.path) == (2 if command in ("standings", "report without replays") else 0)
    shown = "".join(capsys.readouterr())
    assert "owned" in shown or command in ("standings", "report without replays")
    assert not set(shown) & set(hostile) - set("]0;owned2J")
