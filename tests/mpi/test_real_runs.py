"""Real processes under a real MPI: start, play, end well, fail well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena.run import mpirun
from run_cli import ARENA, TESTS, arena, by_hand, episodes, finish, left_behind, start, wait_for, write

CONFIGS = Path(__file__).parent.parent.parent / "configs"
PPO = {"algorithm": "ppo", "options": {"n_steps": 20}}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def duel(blue: Any = None, *, ticks: int = 200, env: Any = None, copies: int = 1) -> dict[str, Any]:
    return {
        "name": "duel",
        "seed": 4,
        "ticks": ticks,
        "envs": {"game": env or {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}},
        "policies": {"blue": blue or {"algorithm": "random"}, "red": {"algorithm": "random"}},
        "matches": [{"env": "game", "seats": ["blue", "red"], "copies": copies}],
    }


def test_run_is_equal_under_all_ways_to_start(
    tmp_path: Path,
) -> None:
    config = str(CONFIGS / "touchdown_2v2.yaml")
    small = ["--set", "ticks=400", "--set", "envs.touchdown.kwargs.max_steps=40"]
    small += [part for p in ("blue", "red") for part in ("--set", f"policies.{p}.options.n_steps=64")]
    by = by_hand(tmp_path, 6, "train", config, *small, "--run-dir", "by-hand")
    alone = arena(tmp_path, "train", config, *small, "--run-dir", "launched")
    one = arena(tmp_path, "train", config, *small, "--run-dir", "threads", "--ranks", "1")
    assert (by.code, alone.code, one.code) == (0, 0, 0), by.err + alone.err + one.err
    expected = episodes(tmp_path / "threads")
    assert len(expected) >= 100
    assert episodes(tmp_path / "by-hand") == expected
    assert episodes(tmp_path / "launched") == expected
    updates = [json.loads(line) for line in (tmp_path / "by-hand" / "metrics.jsonl").read_text().splitlines()]
    assert {update["policy"] for update in updates} == {"blue", "red"}


@pytest.mark.long
def test_the_round_robin_of_151_processes_starts_plays_and_ends(tmp_path: Path) -> None:
    ended = arena(
        tmp_path,
        "train",
        str(CONFIGS / "round_robin_4x5.yaml"),
        "--run-dir",
        "run",
        "--ranks",
        "one_per_role",
        timeout=600,
    )
    assert ended.code == 0, ended.err
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 151
    assert "151 processes" in ended.out


def test_the_root_and_the_environments_never_import_torch(tmp_path: Path) -> None:
    data = duel({"algorithm": "ppo", "options": {"n_steps": 50}})
    ended = arena(tmp_path, "train", write(tmp_path, data), "--run-dir", "run", PYTHONVERBOSE="1")
    assert ended.code == 0, ended.err
    logs = {path.name: path.read_text() for path in (tmp_path / "run" / "logs").iterdir()}
    imports = "import 'torch'"
    assert imports in logs["rank-0002.log"], "the learner's log shows what it imports"
    assert "import 'arena.roles.environment.environment'" in logs["rank-0001.log"] + ended.err
    assert imports not in logs["rank-0001.log"]
    root = [line for line in ended.err.splitlines() if imports in line]
    assert len(root) == 0, "the root's stderr is the launcher's"


def test_few_processes_play_the_same_and_surplus_ones_are_idle(tmp_path: Path) -> None:
    config = write(tmp_path, duel())
    said = {
        3: "4 roles on 3 processes",
        4: "4 processes",
        6: "2 of the processes are idle: the plan has no role for them",
    }
    for ranks, words in said.items():
        ended = by_hand(tmp_path, ranks, "train", config, "--run-dir", f"on-{ranks}")
        assert ended.code == 0, ended.err
        assert words in ended.out
    assert episodes(tmp_path / "on-3") == episodes(tmp_path / "on-4") == episodes(tmp_path / "on-6") != []


@pytest.mark.long
def test_31_processes_play_the_same_as_one(tmp_path: Path) -> None:
    config = write(tmp_path, duel(copies=10, ticks=60))
    assert arena(tmp_path, "train", config, "--run-dir", "many").code == 0
    assert arena(tmp_path, "train", config, "--run-dir", "one", "--ranks", "1").code == 0
    assert episodes(tmp_path / "many") == episodes(tmp_path / "one")


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The episodes of a run of one learner in one process."""
    folder = tmp_path_factory.mktemp("one")
    config = write(folder, duel(PPO, ticks=100))
    assert arena(folder, "train", config, "--run-dir", "one", "--ranks", "1").code == 0
    return episodes(folder / "one")


@pytest.mark.parametrize(
    "elsewhere", ["2,3", "0", *(pytest.param(rank, marks=pytest.mark.long) for rank in ("1", "3"))]
)
def test_processes_on_two_nodes_play_the_same_as_on_one(
    elsewhere: str, in_one_process: list[str], tmp_path: Path
) -> None:
    config = write(tmp_path, duel(PPO, ticks=100))
    program = [sys.executable, str(TESTS / "cli_on_other_node.py")]
    two = by_hand(tmp_path, 4, "train", config, "--run-dir", "two", program=program, RANKS_ELSEWHERE=elsewhere)
    assert two.code == 0, two.err
    assert episodes(tmp_path / "two") == in_one_process


@pytest.mark.parametrize("where", ["reset", pytest.param("step", marks=pytest.mark.long)])
def test_raising_game_ends_the_run_with_one_traceback(where: str, tmp_path: Path) -> None:
    data = duel(env={"make": "games:Raises", "kwargs": {"where": where}})
    data["matches"] = [{"env": "game", "seats": ["blue"], "copies": 2}]
    ended = arena(tmp_path, "train", write(tmp_path, data))
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1, ended.err
    assert "environment of match" in ended.err
    assert "the game cannot be" in ended.err


@pytest.mark.parametrize(
    "where", ["late", *(pytest.param(where, marks=pytest.mark.long) for where in ("init", "state"))]
)
def test_raising_worker_ends_the_run_with_one_traceback(where: str, tmp_path: Path) -> None:
    data = duel({"algorithm": "odd_workers:Fails", "options": {"where": where}}, copies=2)
    ended = arena(tmp_path, "train", write(tmp_path, data))
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1, ended.err
    assert "worker of policy 'blue' in seat 0 of match 0" in ended.err
    assert f"ZeroDivisionError: {where}" in ended.err
    assert "MPI_ABORT" not in ended.err, "the launcher's banner is removed"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policies": {"blue": {"algorithm": "pppo"}, "red": {"algorithm": "random"}}}, "did you mean 'ppo'"),
        ({"matches": [{"env": "game", "seats": ["blue", "red"], "entities": [0, 7]}]}, "no entity 7"),
        ({"tiks": 5}, "did you mean 'ticks'"),
        *(
            pytest.param(change, words, marks=pytest.mark.long)
            for change, words in (
                ({"matches": [{"env": "game", "seats": ["blue"]}]}, "no seat plays"),
                ({"matches": [{"env": "game", "seats": ["blue", "green"]}]}, "green"),
                ({"ticks": 0}, "ticks"),
                ({"envs": {"game": {"make": "touchdwn"}}}, "did you mean 'touchdown'"),
            )
        ),
    ],
)
def test_a_mistake_in_the_configuration_is_one_message_and_exit_2(change: Any, words: str, tmp_path: Path) -> None:
    ended = arena(tmp_path, "train", write(tmp_path, {**duel(), **change}))
    assert ended.code == 2, ended.err
    assert words in ended.err
    assert "Traceback" not in ended.err
    assert ended.err.count("arena: error:") == 1, ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_run_and_keeps_its_records(number: signal.Signals, tmp_path: Path) -> None:
    process = start([*ARENA, "train", write(tmp_path, duel(ticks=10**9)), "--run-dir", "run"], tmp_path)
    journal = tmp_path / "run" / "episodes.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    process.send_signal(number)
    ended = finish(process)
    assert ended.code == 128 + number
    assert ended.err.startswith("arena: stopped at tick "), "it ended on request, and was not killed"
    assert len(episodes(tmp_path / "run")) > 0


@pytest.mark.parametrize("victim", ["launcher", "mpirun", "worker"])
def test_killed_process_ends_the_run_without_restarts(victim: str, tmp_path: Path) -> None:
    config = write(tmp_path, {**duel(ticks=10**9), "restarts": 0})
    process = start([*ARENA, "train", config, "--run-dir", "run"], tmp_path)
    journal = tmp_path / "run" / "episodes.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    parent = _children(process.pid)[0]
    target = {"launcher": process.pid, "mpirun": parent, "worker": _children(parent)[-1]}[victim]
    os.kill(target, signal.SIGKILL)
    ended = finish(process)
    assert ended.code != 0
    assert ended.code != 2


@pytest.mark.parametrize("own", [False, True])
def test_sigterm_to_the_mpi_launcher_is_told(own: bool, tmp_path: Path) -> None:
    config = write(tmp_path, {**duel(ticks=10**9), "restarts": 0})
    command = [*ARENA, "train", config, "--run-dir", "run"]
    if own:
        line, settings = mpirun.command(mpirun.find_launcher(), 3, command)
        process = start(line, tmp_path, **{name: value for name, value in settings.items() if name not in os.environ})
    else:
        process = start(command, tmp_path)
    journal = tmp_path / "run" / "episodes.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    os.kill(process.pid if own else _children(process.pid)[0], signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 1
    words = "arena: SIGTERM from the MPI launcher" if own else "arena: the run has ended: "
    assert words in ended.err
    assert "--resume goes on from the newest boundary" in ended.err


def test_ranks_on_one_host_listen_at_no_port(tmp_path: Path) -> None:
    process = start([*ARENA, "train", write(tmp_path, duel(ticks=10**9)), "--run-dir", "run"], tmp_path)
    journal = tmp_path / "run" / "episodes.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    listening = {
        line.split()[9]
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    ranks = _children(_children(process.pid)[0])
    held = {os.readlink(file) for rank in ranks for file in Path(f"/proc/{rank}/fd").iterdir()}
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 143
    assert len(ranks) > 1
    assert {f"socket:[{inode}]" for inode in listening} & held == set()


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]
