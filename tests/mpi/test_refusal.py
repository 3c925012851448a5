"""A run that cannot be played is refused before play, however it is started: one message, exit 2, nothing left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arena.cli.main import main
from in_process import one_match
from run_cli import Ended, alone, arena, by_hand, train, write

WAYS: dict[str, Callable[..., Ended]] = {
    "launched": lambda folder, *words: arena(folder, *words, "--ranks", "2"),
    "by hand": lambda folder, *words: by_hand(folder, 3, *words),
}


def crossed(algorithm: str) -> dict[str, Any]:
    """Two policies that meet in two matches; in each, one of them is out of the episode before the other."""
    return {
        "name": "crossed",
        "ticks": 50,
        "envs": {"game": {"make": "games:Dropout", "kwargs": {"lengths": [1, 60]}}},
        "policies": {name: {"algorithm": algorithm} for name in ("blue", "red")},
        "matches": [{"env": "game", "seats": ["blue", "red"]}, {"env": "game", "seats": ["red", "blue"]}],
    }


# MPICH's own mpiexec drops what a process writes right before it aborts.
@pytest.mark.parametrize("way", ["launched", pytest.param("by hand", marks=pytest.mark.openmpi)])
def test_plan_that_can_deadlock_is_refused_with_its_reason(way: str, tmp_path: Path) -> None:
    config = write(tmp_path, crossed("leagues:AtEpisodes"))
    ended = WAYS[way](tmp_path, "train", config, "--run-dir", "run")
    assert ended.code == 2, ended.err
    assert f"arena: error: {config}: the run can deadlock: the workers of blue, red" in ended.err
    assert "blue shares the matches 0, 1 with red" in ended.err
    assert "`schedule = 'ticks'` in the algorithm's class" in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run").exists()


def test_plan_and_refusal_load_torch_only_if_needed(tmp_path: Path) -> None:
    config = write(tmp_path, crossed("leagues:AtEpisodes"))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None  # importing it is an error\n")
    path = ":".join([str(tmp_path), *(entry for entry in sys.path if entry)])
    assert arena(tmp_path, "plan", config, PYTHONPATH=path).code == 0
    ended = train(tmp_path, config, ranks=1, PYTHONPATH=path)
    assert ended.code == 2, ended.err


def duel(blue: str, **changes: Any) -> dict[str, Any]:
    game = {"make": "touchdown", "kwargs": {"max_steps": 9}}
    policies = {"blue": {"algorithm": blue}, "red": {"algorithm": "random"}}
    return one_match(game, policies, ticks=16, checkpoint_every=16) | changes


@pytest.mark.parametrize(
    ("way", "command", "kwargs", "found"),
    [
        ("launched", "train", {"num_actions": 4}, "AssertionError: "),  # a value it does not take
        ("launched", "tournament", {"gravity": 3}, "TypeError: "),  # an argument it does not take
        pytest.param("by hand", "train", {"gravity": 3}, "TypeError: ", marks=pytest.mark.long),
    ],
)
def test_wrong_arguments_of_a_game_are_one_sentence_and_leave_nothing(
    way: str, command: str, kwargs: dict[str, Any], found: str, tmp_path: Path
) -> None:
    config = write(tmp_path, duel("random", envs={"game": {"make": "pettingzoo:classic.rps_v2", "kwargs": kwargs}}))
    ended = WAYS[way](tmp_path, command, config)
    assert ended.code == 2, ended.err
    line = next(line for line in ended.err.splitlines() if "arena: error: " in line)
    assert f"environment 'game' could not be made with {kwargs}: {found}" in line
    assert "Traceback" not in ended.err
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.long
def test_many_processes_are_refused_at_once_and_none_hangs(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    data = duel("random", ticks=10)
    data["matches"] = [{**data["matches"][0], "copies": 10}]
    for _ in range(5):  # Open MPI's launcher hung every second time when 31 exited with a status of their own
        ended = train(tmp_path, data)
        assert ended.code == 2, ended.err
        assert "the run folder holds files already" in ended.err


def test_later_round_that_can_deadlock_is_refused_before_play(tmp_path: Path) -> None:
    data = duel("leagues:StatefulAtEpisodes", rounds=2)
    data["envs"]["game"]["kwargs"]["team_size"] = 2
    data["policies"]["gray"] = {"algorithm": "random"}
    data["matches"] = [{"knockout": {"env": "game", "policies": ["blue", "red", "gray"], "team_size": 2}}]
    ended = train(tmp_path, data, ranks=2)
    assert ended.code == 2, ended.err
    assert "Traceback" not in ended.err
    assert "config.yaml: the run can deadlock: the workers of blue may meet" in ended.err
    assert "round 0 of" in ended.out + ended.err
    assert "round 1 of" not in ended.out + ended.err
    assert (tmp_path / "run" / "boundaries" / "000000000016.json").exists()  # round 0 is kept


def refused(folder: Path, data: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """What a run in this process writes before it has begun; checks that no file of it is left."""
    assert main(["train", str(folder / write(folder, data)), "--run-dir", str(folder / "run"), "--ranks", "1"]) == 2
    assert not (folder / "run").exists()
    return capsys.readouterr().err


def test_damaged_samples_are_refused_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (part,) = alone(tmp_path, duel("random", record="samples"), run="old").rglob("*.npz")
    part.write_bytes(part.read_bytes()[:-100])
    blue = {"algorithm": "bc", "options": {"data": str(tmp_path / "old"), "train_every": 8}}
    data = duel("bc", policies={"blue": blue, "red": {"algorithm": "random"}})
    words = refused(tmp_path, data, capsys)
    assert "policies.blue.options.data: " in words
    assert f"{part.relative_to(tmp_path / 'old')}: is not a part of recorded samples" in words
