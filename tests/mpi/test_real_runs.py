"""Real processes under a real MPI: start, play on any number of ranks, end well."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.records import checkpoint
from run_cli import (
    TESTS,
    alone,
    by_hand,
    children,
    differing,
    episodes,
    finish,
    has_played,
    started,
    started_by_hand,
    train,
    trained,
    wait_for,
    write,
)

CONFIGS = Path(__file__).parent.parent.parent / "configs"
LEARNER = {"algorithm": "learners:VectorLearner"}
PPO = {"algorithm": "ppo", "options": {"n_steps": 20, "n_epochs": 2, "minibatch_size": 16, "hidden_sizes": [8]}}
RANDOM = {"algorithm": "random"}


def duel(blue: Any = None, *, ticks: int = 200, env: Any = None, copies: int = 1) -> dict[str, Any]:
    return {
        "name": "duel",
        "seed": 4,
        "ticks": ticks,
        "envs": {"game": env or {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}},
        "policies": {"blue": blue or RANDOM, "red": RANDOM},
        "matches": [{"env": "game", "seats": ["blue", "red"], "copies": copies}],
    }


def teams(*, copies: int = 2, size: int = 1, **changes: Any) -> dict[str, Any]:
    """A policy of `copies` x `size` learning workers against random play."""
    return {
        "name": "teams",
        "seed": 11,
        "ticks": 80,
        "envs": {"game": {"make": "touchdown", "kwargs": {"team_size": size, "max_steps": 12}}},
        "policies": {"blue": PPO, "red": RANDOM},
        "matches": [{"env": "game", "seats": ["blue"] * size + ["red"] * size, "copies": copies, "lanes": 2}],
        **changes,
    }


def weights_hash(run: Path) -> str:
    """Of every array of the learner's network, at the end of the run."""
    files = checkpoint.list_checkpoints(run / "checkpoints" / "blue")
    network, first = (checkpoint.load(file).state["network"] for file in (files[-1], files[0]))
    assert any((network[name] != first[name]).any() for name in network), "it has learned something"
    parts = (name.encode() + np.ascontiguousarray(network[name]).tobytes() for name in sorted(network))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_games_and_weights_are_equal_on_any_number_of_ranks(tmp_path: Path) -> None:
    expected = alone(tmp_path, teams())
    for ranks, transport, said in ((None, "auto", "7 processes"), (3, "mpi", "7 roles on 3 processes")):
        ended, run = train(tmp_path, teams(transport=transport), run=transport, ranks=ranks), tmp_path / transport
        assert ended.code == 0, ended.err
        assert ended.out.splitlines()[0].rpartition(", ")[2] == said
        assert weights_hash(run) == weights_hash(expected)
        assert episodes(run) == episodes(expected) != []


@pytest.mark.long
@pytest.mark.parametrize(("copies", "size", "ranks"), [(10, 1, 31), (2, 2, 11)])
def test_games_and_weights_are_equal_on_many_ranks(copies: int, size: int, ranks: int, tmp_path: Path) -> None:
    few, many = (trained(tmp_path, teams(copies=copies, size=size), run=f"{n}", ranks=n) for n in (3, ranks))
    assert weights_hash(few) == weights_hash(many)
    assert episodes(few) == episodes(many) != []


def test_run_started_by_hand_equals_one_in_a_process(tmp_path: Path) -> None:
    config = str(CONFIGS / "touchdown_2v2.yaml")
    small = ["--set", "ticks=400", "--set", "envs.touchdown.kwargs.max_steps=40"]
    small += [part for p in ("blue", "red") for part in ("--set", f"policies.{p}.options.n_steps=64")]
    by = by_hand(tmp_path, 6, "train", config, *small, "--run-dir", "run")
    assert by.code == 0, by.err
    assert differing(tmp_path / "run", alone(tmp_path, config, *small)) == []
    assert len(episodes(tmp_path / "run")) >= 100
    updates = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {update["policy"] for update in updates} == {"blue", "red"}


@pytest.mark.long
def test_the_round_robin_of_151_processes_starts_plays_and_ends(tmp_path: Path) -> None:
    ended = train(tmp_path, str(CONFIGS / "round_robin_4x5.yaml"), "--ranks", "one_per_role")
    assert ended.code == 0, ended.err
    assert len(list((tmp_path / "run" / "logs").iterdir())) == 151
    assert "151 processes" in ended.out


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


def test_the_root_and_the_environments_never_import_torch(tmp_path: Path) -> None:
    ended = train(tmp_path, duel(PPO, ticks=50), PYTHONVERBOSE="1")
    assert ended.code == 0, ended.err
    logs = {path.name: path.read_text() for path in (tmp_path / "run" / "logs").iterdir()}
    imports = "import 'torch'"
    assert imports in logs["rank-0002.log"], "the learner's log shows what it imports"
    assert "import 'arena.roles.environment.environment'" in logs["rank-0001.log"] + ended.err
    assert imports not in logs["rank-0001.log"]
    assert imports not in ended.err, "the root's stderr is the launcher's"


def test_surplus_processes_are_idle(tmp_path: Path) -> None:
    ended = by_hand(tmp_path, 6, "train", write(tmp_path, duel()), "--run-dir", "run")
    assert ended.code == 0, ended.err
    assert "2 of the processes are idle: the plan has no role for them" in ended.out
    assert episodes(tmp_path / "run") == episodes(alone(tmp_path, duel())) != []


@pytest.mark.parametrize(
    "elsewhere", ["2,3", *(pytest.param(rank, marks=pytest.mark.long) for rank in ("0", "1", "3"))]
)
def test_processes_on_two_nodes_play_the_same_as_on_one(elsewhere: str, tmp_path: Path) -> None:
    config, program = write(tmp_path, duel(LEARNER)), [sys.executable, str(TESTS / "cli_on_other_node.py")]
    two = by_hand(tmp_path, 4, "train", config, "--run-dir", "run", program=program, RANKS_ELSEWHERE=elsewhere)
    assert two.code == 0, two.err
    assert differing(tmp_path / "run", alone(tmp_path, config)) == []


def test_a_mistake_in_the_configuration_is_one_message_and_exit_2(tmp_path: Path) -> None:
    ended = train(tmp_path, duel({"algorithm": "pppo"}))
    assert ended.code == 2, ended.err
    assert "did you mean 'ppo'" in ended.err
    assert "Traceback" not in ended.err
    assert ended.err.count("arena: error:") == 1, ended.err


def test_a_game_that_changes_the_directory_trains_on_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "roams.py").write_text(
        "import os, tempfile\nfrom games import Countdown\n"
        "class Roams(Countdown):\n"
        "    def reset(self, **settings):\n"
        "        os.chdir(tempfile.mkdtemp())\n"
        "        return super().reset(**settings)\n"
    )
    config = duel(ticks=40, env={"make": "roams:Roams"})
    config |= {"checkpoint_every": 20, "matches": [{"env": "game", "seats": ["blue"]}]}
    ended = train(tmp_path, config, run="runs/two", ranks=2)
    assert ended.code == 0, ended.err
    assert "run folder: runs/two" in ended.out
    assert len(episodes(tmp_path / "runs" / "two")) == 8


@pytest.mark.parametrize("own", [False, True])
def test_sigterm_to_the_mpi_launcher_is_reported(own: bool, tmp_path: Path) -> None:
    config = {**duel(ticks=10**9), "restarts": 0}
    if own:
        process = started_by_hand(tmp_path, 2, "train", write(tmp_path, config), "--run-dir", "run")
    else:
        process = started(tmp_path, config, ranks=2)
    wait_for(lambda: has_played(tmp_path / "run"))
    os.kill(process.pid if own else children(process.pid)[0], signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 1
    words = "arena: SIGTERM from the MPI launcher" if own else "arena: the run has ended: "
    assert words in ended.err
    assert "--resume goes on from the newest boundary" in ended.err


def test_ranks_on_one_host_listen_at_no_port(tmp_path: Path) -> None:
    process = started(tmp_path, duel(ticks=10**9), ranks=2)
    wait_for(lambda: has_played(tmp_path / "run"))
    listening = {
        line.split()[9]
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    }
    ranks = children(children(process.pid)[0])
    sockets = {os.readlink(file) for rank in ranks for file in Path(f"/proc/{rank}/fd").iterdir()}
    process.send_signal(signal.SIGTERM)
    assert finish(process).code == 143
    assert len(ranks) > 1
    assert {f"socket:[{inode}]" for inode in listening} & sockets == set()
