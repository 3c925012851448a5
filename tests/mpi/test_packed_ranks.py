"""Any number of ranks plays the same games and learns the same weights, and ends well."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.records import checkpoint
from run_cli import ARENA, Ended, arena, by_hand, episodes, finish, left_behind, start, wait_for, write

CONFIGS = Path(__file__).parent.parent.parent / "configs"
PPO = {"algorithm": "ppo", "options": {"n_steps": 20, "n_epochs": 2, "minibatch_size": 16, "hidden_sizes": [8]}}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def teams(*, copies: int = 2, size: int = 2, red: Any = None) -> dict[str, Any]:
    """A policy of `copies` x `size` learning workers against another one."""
    return {
        "name": "teams",
        "seed": 11,
        "ticks": 80,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": size, "max_steps": 12}}},
        "policies": {"blue": PPO, "red": red or PPO},
        "matches": [{"env": "game", "seats": ["blue"] * size + ["red"] * size, "copies": copies, "lanes": 2}],
    }


def weights_hash(run: Path, policy: str) -> str:
    """Of every array of the policy's network, at the end of the run."""
    files = checkpoint.list_checkpoints(run / "checkpoints" / policy)
    digest = hashlib.sha256()
    network = checkpoint.load(files[-1]).state["network"]
    for name in sorted(network):
        digest.update(name.encode() + np.ascontiguousarray(network[name]).tobytes())
    first = checkpoint.load(files[0]).state["network"]
    assert any((network[name] != first[name]).any() for name in network), "it has learned something"
    return digest.hexdigest()


def train(folder: Path, config: str, ranks: int | None) -> tuple[Ended, Path]:
    asked = [] if ranks is None else ["--ranks", str(ranks)]
    run = f"on-{ranks or 'as-many-as-roles'}"
    return arena(folder, "train", config, "--run-dir", run, *asked), folder / run


def test_weights_are_equal_on_1_3_and_11_ranks(tmp_path: Path) -> None:
    config = write(tmp_path, teams(red={"algorithm": "random"}))
    hashes, games, said = set(), set(), []
    for ranks in (1, 3, None):
        ended, run = train(tmp_path, config, ranks)
        assert ended.code == 0, ended.err
        said.append(ended.out.splitlines()[0])
        hashes.add(weights_hash(run, "blue"))
        games.add(tuple(episodes(run)))
    assert len(hashes) == 1
    assert len(games) == 1
    assert len(games.pop()) >= 20
    assert [line.rpartition(", ")[2] for line in said] == [
        "11 roles on 1 process",
        "11 roles on 3 processes",
        "11 processes",
    ]


@pytest.mark.long
def test_weights_are_equal_on_3_and_31_ranks(tmp_path: Path) -> None:
    config = write(tmp_path, teams(copies=10, size=1, red={"algorithm": "random"}))
    (few, in_few), (many, in_many) = (train(tmp_path, config, ranks) for ranks in (3, 31))
    assert (few.code, many.code) == (0, 0), few.err + many.err
    assert weights_hash(in_few, "blue") == weights_hash(in_many, "blue")
    assert episodes(in_few) == episodes(in_many) != []


def test_three_processes_started_by_hand_play_all_30_matches(tmp_path: Path) -> None:
    config = str(CONFIGS / "round_robin_4x5.yaml")
    ended = by_hand(tmp_path, 3, "train", config, "--ticks", "20", "--run-dir", "run")
    assert ended.code == 0, ended.err
    assert "30 matches of 20 ticks, 151 roles on 3 processes" in ended.out
    assert "600/600 ticks" in ended.out
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert (plan["processes"], len(plan["matches"])) == (3, 30)
    hosted = [role["match"] for rank in plan["ranks"] for role in rank["roles"] if role["role"] == "environment"]
    assert sorted(hosted) == list(range(30))


def test_messages_without_shared_memory_change_nothing(tmp_path: Path) -> None:
    config = write(tmp_path, {**teams(red={"algorithm": "random"}), "transport": "mpi"})
    (one, in_one), (few, in_few) = (train(tmp_path, config, ranks) for ranks in (1, 4))
    assert (one.code, few.code) == (0, 0), one.err + few.err
    assert weights_hash(in_one, "blue") == weights_hash(in_few, "blue")
    assert episodes(in_one) == episodes(in_few)


FAILING = [("init", 5), ("late", 2), ("state", 5)]
FURTHER = [("init", 2), ("late", 5), ("state", 2)]


@pytest.mark.parametrize(
    ("where", "ranks"), [*FAILING, *(pytest.param(*case, marks=pytest.mark.long) for case in FURTHER)]
)
def test_failing_worker_on_a_shared_rank_gives_one_traceback(where: str, ranks: int, tmp_path: Path) -> None:
    data = teams(size=1, copies=3, red={"algorithm": "random"})
    data["policies"]["blue"] = {"algorithm": "odd_workers:Fails", "options": {"where": where}}
    ended = arena(tmp_path, "train", write(tmp_path, data), "--ranks", str(ranks))
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1, ended.err
    assert "worker of policy 'blue' in seat 0 of match 0" in ended.err
    assert f"ZeroDivisionError: {where}" in ended.err


@pytest.mark.parametrize("where", [pytest.param("reset", marks=pytest.mark.long), "step"])
def test_failing_game_on_a_shared_rank_gives_one_traceback(where: str, tmp_path: Path) -> None:
    data = teams()
    data["envs"] = {"game": {"make": "games:Raises", "kwargs": {"where": where}}}
    data["policies"] = {"blue": {"algorithm": "random"}}
    data["matches"] = [{"env": "game", "seats": ["blue"], "copies": 4}]
    ended = arena(tmp_path, "train", write(tmp_path, data), "--ranks", "3")
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1, ended.err
    assert "environment of match" in ended.err


def test_signal_ends_roles_on_the_roots_rank_and_keeps_records(tmp_path: Path) -> None:
    data = {**teams(size=1, red={"algorithm": "random"}), "ticks": 10**9}
    data["policies"]["blue"] = {"algorithm": "random"}
    command = [*ARENA, "train", write(tmp_path, data), "--run-dir", "run", "--ranks", "2"]
    process = start(command, tmp_path)
    journal = tmp_path / "run" / "episodes.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 128 + signal.SIGINT
    assert ended.err.startswith("arena: stopped at tick "), "it ended on request, and was not killed"
    assert len(episodes(tmp_path / "run")) > 0


def test_a_game_that_changes_the_directory_trains_on_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "roams.py").write_text(
        "import os, tempfile\nfrom games import Countdown\n"
        "class Roams(Countdown):\n"
        "    def reset(self, **settings):\n"
        "        os.chdir(tempfile.mkdtemp())\n"
        "        return super().reset(**settings)\n"
    )
    config = {
        "name": "roams",
        "ticks": 40,
        "checkpoint_every": 20,
        "envs": {"game": {"make": "roams:Roams"}},
        "policies": {"a": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["a"]}],
    }
    ended = arena(tmp_path, "train", write(tmp_path, config), "--run-dir", "runs/two", "--ranks", "2")
    assert ended.code == 0, ended.err
    assert "run folder: runs/two" in ended.out
    assert len(episodes(tmp_path / "runs" / "two")) == 8
