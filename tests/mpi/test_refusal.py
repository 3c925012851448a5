"""A run that can deadlock is refused before play, however it is started."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from run_cli import Ended, arena, by_hand, left_behind, wait_for, write

WAYS: dict[str, Callable[..., Ended]] = {
    "launched": lambda folder, *words: arena(folder, *words),
    "by hand": lambda folder, *words: by_hand(folder, 3, *words),
    "one process": lambda folder, *words: arena(folder, *words, "--ranks", "1"),
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


@pytest.mark.parametrize("way", WAYS)
def test_plan_that_can_deadlock_is_refused_with_its_reason(way: str, tmp_path: Path) -> None:
    config = write(tmp_path, crossed("leagues:AtEpisodes"))
    ended = WAYS[way](tmp_path, "train", config, "--run-dir", "run")
    assert ended.code == 2, ended.err
    assert f"arena: error: {config}: the run can deadlock: the workers of blue, red" in ended.err
    assert "blue shares the matches 0, 1 with red" in ended.err
    assert "`schedule = 'ticks'` in the algorithm's class" in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run").exists()
    wait_for(lambda: not left_behind(tmp_path))


COMMANDS: dict[str, Callable[[Path, str], Ended]] = {
    **{f"train {way}": lambda folder, config, way=way: WAYS[way](folder, "train", config) for way in WAYS},
    "evaluate": lambda folder, config: arena(folder, "evaluate", config),
    "tournament": lambda folder, config: arena(folder, "tournament", config),
    "tournament over ranks": lambda folder, config: arena(folder, "tournament", config, "--ranks", "2"),
}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"gravity": 3}, "TypeError: "),  # an argument it does not take
    ({"num_actions": 4}, "AssertionError: "),  # a value it does not take
]


@pytest.mark.parametrize(
    ("command", "kwargs", "found"),
    [
        pytest.param(command, *wrong, marks=[pytest.mark.long] * (wrong is WRONG[1] and command != "train launched"))
        for command in COMMANDS
        for wrong in WRONG
    ],
)
def test_wrong_arguments_of_a_game_are_one_sentence_and_leave_nothing(
    command: str, kwargs: dict[str, Any], found: str, tmp_path: Path
) -> None:
    game = {"make": "pettingzoo:classic.rps_v2", "kwargs": kwargs}
    config = write(tmp_path, duel({"algorithm": "random"}, envs={"game": game}))
    ended = COMMANDS[command](tmp_path, config)
    assert ended.code == 2, ended.err
    line = next(line for line in ended.err.splitlines() if "arena: error: " in line)
    assert f"environment 'game' could not be made with {kwargs}: {found}" in line
    assert "Traceback" not in ended.err
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.long)])
def test_many_processes_are_refused_at_once_and_none_hangs(times: int, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    data = duel({"algorithm": "random"}, ticks=10)
    data["matches"] = [{**data["matches"][0], "copies": 10}]
    for _ in range(times):  # Open MPI's launcher hung every second time when 31 exited with a status of their own
        ended = arena(tmp_path, "train", write(tmp_path, data), "--run-dir", "run")
        assert ended.code == 2, ended.err
        assert "the run folder holds files already" in ended.err


@pytest.mark.parametrize("way", WAYS)
def test_same_plan_is_played_if_its_workers_meet_at_ticks(way: str, tmp_path: Path) -> None:
    ended = WAYS[way](tmp_path, "train", write(tmp_path, crossed("leagues:AtTicks")), "--run-dir", "run")
    assert ended.code == 0, ended.err


def test_run_that_deadlocks_ends_with_its_cycle(tmp_path: Path) -> None:
    config = write(tmp_path, crossed("odd_workers:SaysTicks"))
    ended = arena(tmp_path, "train", config, "--run-dir", "run", "--ranks", "1")
    assert ended.code == 1, ended.err
    assert "worker of policy 'blue' in seat 0 of match 0 waits for" in ended.err


def test_plan_and_refusal_load_torch_only_if_needed(tmp_path: Path) -> None:
    config = write(tmp_path, crossed("leagues:AtEpisodes"))
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None  # importing it is an error\n")
    assert arena(tmp_path, "plan", config, PYTHONPATH=_path(tmp_path)).code == 0
    ended = arena(tmp_path, "train", config, "--ranks", "1", "--run-dir", "run", PYTHONPATH=_path(tmp_path))
    assert ended.code == 2, ended.err


PPO = {"algorithm": "ppo", "options": {"n_steps": 8, "minibatch_size": 16, "hidden_sizes": [8]}}


def duel(blue: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "name": "duel",
        "ticks": 16,
        "checkpoint_every": 16,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 9}}},
        "policies": {"blue": blue, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"]}],
        **changes,
    }


def refused(way: str, folder: Path, data: dict[str, Any]) -> str:
    """The one-sentence message of a mistake; checks that no file of the run is left."""
    ended = WAYS[way](folder, "train", write(folder, data), "--run-dir", "run")
    assert ended.code == 2, ended.err
    assert "Traceback" not in ended.err
    assert not (folder / "run").exists()
    wait_for(lambda: not left_behind(folder))
    return next(line for line in ended.err.splitlines() if "arena: error:" in line)


@pytest.mark.parametrize("way", ["launched", *(pytest.param(way, marks=pytest.mark.long) for way in list(WAYS)[1:])])
def test_unfit_evaluation_seats_are_refused_before_training(way: str, tmp_path: Path) -> None:
    data = duel(PPO, evaluation={"every": 16, "seats": ["red", "blue"]})
    data["envs"]["game"]["kwargs"]["red_obs"] = "image"
    assert "config.yaml: evaluation.seats[1]: policy 'blue' (ppo): observes Box(0, 255" in refused(way, tmp_path, data)


@pytest.mark.parametrize("way", ["launched", "by hand"])
def test_later_round_that_can_deadlock_is_refused_before_play(way: str, tmp_path: Path) -> None:
    data = duel({"algorithm": "leagues:StatefulAtEpisodes"}, rounds=2)
    data["envs"]["game"]["kwargs"]["team_size"] = 2
    data["policies"]["gray"] = {"algorithm": "random"}
    data["matches"] = [{"knockout": {"env": "game", "policies": ["blue", "red", "gray"], "team_size": 2}}]
    ended = WAYS[way](tmp_path, "train", write(tmp_path, data), "--run-dir", "run")
    assert ended.code == 2, ended.err
    assert "Traceback" not in ended.err
    assert "config.yaml: the run can deadlock: the workers of blue may meet" in ended.err
    wait_for(lambda: not left_behind(tmp_path))
    assert "round 0 of" in ended.out + ended.err
    assert "round 1 of" not in ended.out + ended.err
    assert (tmp_path / "run" / "boundaries" / "000000000016.json").exists()  # round 0 is kept


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of PPO, with recorded samples."""
    folder = tmp_path_factory.mktemp("old")
    ended = arena(folder, "train", write(folder, duel(PPO, record="samples")), "--run-dir", "old", "--ranks", "1")
    assert ended.code == 0, ended.err
    return folder / "old"


def test_damaged_samples_are_refused_before_training(old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, tmp_path / "old")
    (part,) = (tmp_path / "old").rglob("*.npz")
    part.write_bytes(part.read_bytes()[:-100])
    words = refused("launched", tmp_path, duel({"algorithm": "bc", "options": {"data": "old", "train_every": 8}}))
    assert "policies.blue.options.data: " in words
    assert f"{part.relative_to(tmp_path)}: is not a part of recorded samples" in words


@pytest.mark.parametrize(
    ("blue", "words"),
    [
        ({"algorithm": "a2c"}, "is of the algorithm 'ppo', the policy uses 'a2c'"),
        (
            {"algorithm": "sb3:PPO", "options": {"n_steps": 8, "batch_size": 8}},
            "is of the algorithm 'ppo', the policy uses 'sb3:PPO'",
        ),
        (
            {**PPO, "options": {**PPO["options"], "hidden_sizes": [9]}},
            "actor 4-8-5 stored, 4-9-5 here",
        ),
    ],
    ids=["another algorithm", "not the library's", "another size"],
)
def test_unfit_checkpoint_is_refused_before_training(
    blue: dict[str, Any], words: str, old: Path, tmp_path: Path
) -> None:
    told = refused("one process", tmp_path, duel({**blue, "load": str(old)}))
    assert "config.yaml: policies.blue.load: " in told
    assert f"{old}/checkpoints/blue" in told
    assert words in told


def _path(first: Path) -> str:
    return ":".join([str(first), *(entry for entry in sys.path if entry)])
