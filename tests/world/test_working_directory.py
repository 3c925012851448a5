"""The working directory belongs to the games: one that changes it plays, is saved, resumed and reported like others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import arena
from arena.cli.main import main
from arena.diagnostics.start_folder import anchored, started_here
from arena.errors import ConfigError, shown
from arena.records.folder import RunFolder
from in_process import one_match
from working_folder import working_directory

ROAMING = """
import os, tempfile
import numpy as np
import gymnasium
from gymnasium import spaces

PLACES = []

def roam(place):
    if place in PLACES:
        os.chdir(tempfile.gettempdir())

class Roams(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    render_mode = "ansi"
    def __init__(self, places):
        PLACES[:] = places
        roam("init")
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        roam("reset")
        self.t = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        roam("step")
        self.t += 1
        return np.full(1, self.t / 20, np.float32), float(action), self.t >= 10, False, {}
    def close(self):
        roam("close")
"""
CALLBACK = """
import os

class Leaves:
    def on_result(self, *_):
        os.chdir("/")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "roaming.py").write_text(ROAMING)
    (tmp_path / "leaving.py").write_text(CALLBACK)
    with working_directory(tmp_path):
        yield tmp_path


def config(places: list[str], **changes: Any) -> dict[str, Any]:
    game, policy = {"make": "roaming:Roams", "kwargs": {"places": places}}, {"algorithm": "ppo"}
    given = {"name": "roams", "seed": 1, "checkpoint_every": 20, "match": {"lanes": 2}}
    return one_match(game, {"a": {**policy, "options": {"n_steps": 10}}}, ticks=40, **given) | changes


def run(*arguments: str) -> None:
    assert main(list(arguments)) == 0, arguments


EVERYWHERE = ["init", "reset", "step", "close"]


def test_a_game_that_changes_the_directory_trains_as_any(folder: Path) -> None:
    for name, places in (("stays", []), ("roams", EVERYWHERE)):
        Path("c.yaml").write_text(yaml.safe_dump(config(places)))
        run("train", "c.yaml", "--ranks", "1", "--run-dir", f"runs/{name}")
        assert Path.cwd() == folder, "the command restores the working directory"
    stays, roams = (RunFolder(Path("runs") / name) for name in ("stays", "roams"))
    assert stays.episodes.read_bytes() == roams.episodes.read_bytes()


@pytest.mark.slow
def test_all_commands_keep_relative_paths_of_a_roaming_game(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = config(
        EVERYWHERE, record="samples", callbacks=["leaving:Leaves"], evaluation={"every": 20, "episodes": 2}
    )
    Path("c.yaml").write_text(yaml.safe_dump(written))
    Path("r.yaml").write_text(yaml.safe_dump({**written, "record": "replays"}))
    bc = {"a": {"algorithm": "bc", "load": None, "options": {"data": "runs/samples", "train_every": 20}}}
    Path("bc.yaml").write_text(yaml.safe_dump(config(EVERYWHERE, policies=bc)))
    more = {"a": {"algorithm": "ppo", "load": "runs/replays", "options": {"n_steps": 10}}}
    Path("more.yaml").write_text(yaml.safe_dump(config(EVERYWHERE, policies=more)))
    run("check", "c.yaml")
    run("train", "c.yaml", "--ranks", "1", "--run-dir", "runs/samples")
    run("train", "r.yaml", "--ranks", "1", "--run-dir", "runs/replays")
    assert "run folder: runs/replays" in capsys.readouterr().out
    run("train", "r.yaml", "--ranks", "1", "--run-dir", "runs/replays", "--ticks", "60", "--resume")
    run("train", "bc.yaml", "--ranks", "1", "--run-dir", "runs/bc")
    run("train", "more.yaml", "--ranks", "1")
    run("evaluate", "runs/replays", "--episodes", "2")
    run("evaluate", "c.yaml", "--episodes", "2")
    run("replay", "runs/replays", "--verify")
    run("report", "runs/replays", "--output", "page.html")
    run("report", "runs/replays")
    found = {path.name for path in folder.iterdir()} - {"__pycache__"}
    assert found == {"c.yaml", "r.yaml", "bc.yaml", "more.yaml", "roaming.py", "leaving.py", "runs", "page.html"}
    assert {path.name for path in Path("runs").iterdir()} == {"samples", "replays", "bc", "roams", "roams-evaluation"}


def test_train_and_trainer_restore_the_directory(folder: Path) -> None:
    result = arena.train(config(["reset"]), "runs/function", ranks=1)
    assert Path.cwd() == folder
    assert result.run_dir == folder / "runs" / "function"
    with arena.Trainer(config(["reset"]), run_dir="runs/trainer") as trainer:
        trainer.train()
        assert Path.cwd() == folder
        trainer.train()
    assert trainer.folder == folder / "runs" / "trainer"


def test_started_here_decides_what_relative_paths_mean(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", ".", "beside", "/elsewhere"])
    with started_here():
        assert sys.path == [f"{folder}/", f"{folder}/.", f"{folder}/beside", "/elsewhere"]
        os.chdir("/")
        assert anchored("runs/x") == folder / "runs" / "x"
        assert anchored("/runs/x") == Path("/runs/x")
        with started_here():
            assert anchored("runs") == folder / "runs"
        assert str(ConfigError("is damaged", source=str(folder / "runs" / "x"))) == "runs/x: is damaged"
        assert (shown(f"{folder}-2/x"), shown(folder), shown("")) == (f"{folder}-2/x", ".", "")
        sys.path.append("added")
    assert Path.cwd() == folder
    assert (shown(""), shown(folder / "x")) == ("", f"{folder}/x")
    assert sys.path == ["", ".", "beside", "/elsewhere", "added"]


def test_started_here_works_in_a_folder_that_was_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("PWD", str(gone))
    try:
        assert main(["train", "c.yaml"]) == 2
    finally:
        os.chdir(folder)
