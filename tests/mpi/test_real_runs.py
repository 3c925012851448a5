"""Real processes under a real MPI: start, play on any number of ranks, end well."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from arena.run import mpirun
from in_process import one_match
from run_cli import (
    ARENA,
    TESTS,
    alone,
    by_hand,
    children,
    differing,
    episodes,
    finish,
    has_played,
    reached_by_hand,
    start,
    started,
    train,
    trained,
    wait_for,
    write,
)

CONFIGS = Path(__file__).parent.parent.parent / "configs"
LEARNER = {"algorithm": "learners:VectorLearner"}
PPO = {"algorithm": "ppo", "options": {"n_steps": 20, "n_epochs": 2, "minibatch_size": 16, "hidden_sizes": [8]}}
DQN = {
    "n_step": 1,
    "log_every": 20,
    "learning_starts": 8,
    "batch_size": 8,
    "hidden_sizes": [8],
    "target_update_interval": 1,
}
RANDOM = {"algorithm": "random"}


def duel(blue: Any = None, *, ticks: int = 200, env: Any = None) -> dict[str, Any]:
    game = env or {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
    return one_match(game, {"blue": blue or RANDOM, "red": RANDOM}, ticks=ticks, seed=4)


def teams(*, copies: int = 2, size: int = 1, **changes: Any) -> dict[str, Any]:
    """A policy of `copies` x `size` learning workers against random play."""
    game = {"make": "touchdown", "kwargs": {"team_size": size, "max_steps": 12}}
    seats, match = ["blue"] * size + ["red"] * size, {"copies": copies, "lanes": 2}
    return one_match(game, {"blue": PPO, "red": RANDOM}, seats=seats, ticks=80, seed=11, match=match) | changes


def masked() -> dict[str, Any]:
    """Learned values that depend on last masks: every episode is cut, by the time limit or by the end of the run."""
    data = duel({"algorithm": "dqn", "options": {**DQN, "log_every": 20}}, ticks=61)
    data["envs"]["game"] = {"make": "games:Narrow", "kwargs": {"entities": 2, "length": 3}}
    return {**data, "matches": [{"env": "game", "seats": [["blue", "blue"]], "lanes": 3}]}


def overlapped(blue: Any = PPO, env: Any = None, pipeline: int = 2) -> dict[str, Any]:
    """A match that steps its lanes in two halves."""
    data = teams(copies=1, policies={"blue": blue, "red": RANDOM})
    data["matches"][0] |= {"lanes": 5, "pipeline": pipeline}
    return {**data, "envs": {"game": env}} if env else data


def crowd() -> dict[str, Any]:
    """Policies with several workers of one lane, which collect together where they share a process."""
    policies = {"blue": PPO, "red": {"algorithm": "a2c"}, "green": {**PPO, "sync": "samples"}}
    game = {"make": "touchdown", "kwargs": {"team_size": 1, "max_steps": 12}}
    pairs = [["blue", "red"], ["red", "green"]]
    data = one_match(game, policies, ticks=90, seed=2)
    return {**data, "matches": [{"env": "game", "seats": pair, "copies": 3, "lanes": 1} for pair in pairs]}


def remembering_teams() -> dict[str, Any]:
    """A mappo team of two workers and an hppo policy, both with memory."""
    memory = {"recurrent": "gru", "hidden_size": 6, "sequence_length": 5}
    options = {"n_steps": 10, "minibatch_size": 16, "hidden_sizes": [8], **memory}
    policies = {
        "blue": {"algorithm": "mappo", "options": options},
        "red": {"algorithm": "hppo", "options": {**options, "option_ticks": 3}},
    }
    return teams(size=2, copies=1, policies=policies)


@pytest.mark.parametrize(
    ("config", "ranks", "transport", "said"),
    [
        (remembering_teams(), 3, "auto", "6 roles on 3 processes"),
        (crowd(), 2, "auto", "19 roles on 2 processes"),
        (crowd(), 3, "mpi", "19 roles on 3 processes"),
        pytest.param(crowd(), None, "auto", "19 processes", marks=pytest.mark.long),
        (teams(), None, "auto", "7 processes"),
        (teams(), 3, "mpi", "7 roles on 3 processes"),
        (masked(), None, "mpi", "3 processes"),
        (overlapped(), 4, "auto", "4 processes"),
        pytest.param(masked(), None, "auto", "3 processes", marks=pytest.mark.long),
        pytest.param(teams(copies=10), 31, "auto", "31 processes", marks=pytest.mark.long),
        pytest.param(teams(size=2), 11, "auto", "11 processes", marks=pytest.mark.long),
    ],
    ids=lambda value: "" if isinstance(value, dict) else str(value),
)
def test_runs_are_equal_on_any_number_of_ranks(
    config: dict[str, Any], ranks: int | None, transport: str, said: str, tmp_path: Path
) -> None:
    expected = alone(tmp_path, config)
    ended = train(tmp_path, {**config, "transport": transport}, ranks=ranks)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[0].rpartition(", ")[2] == said
    assert differing(tmp_path / "run", expected) == []
    updates = [json.loads(line) for line in (expected / "metrics.jsonl").read_text().splitlines()]
    assert len(updates) > 1 and episodes(expected) != [], "it has learned something"


@pytest.mark.parametrize("transport", [pytest.param("auto", marks=pytest.mark.long), "mpi"])
def test_overlapped_match_equals_a_plain_one(transport: str, tmp_path: Path) -> None:
    drawn = {"make": "games:RandomLengths"}
    one = alone(tmp_path, overlapped(RANDOM, drawn, pipeline=1))
    many = trained(tmp_path, overlapped(RANDOM, drawn) | {"transport": transport})
    assert episodes(many) == episodes(one) and len(episodes(one)) > 20


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


def test_own_names_are_known_in_every_process_and_a_game_may_change_its_directory(tmp_path: Path) -> None:
    own = {
        "ticks": 10,
        "imports": ["own_names"],
        "envs": {"game": {"make": "roaming", "kwargs": {"length": 3}, "wrappers": ["doubled"]}},
        "policies": {"a": {"algorithm": "uniform"}},
        "matches": [{"env": "game", "seats": ["a"]}],
        "callbacks": ["counts"],
        "loggers": ["writes"],
    }
    ended = train(tmp_path, own, run="runs/own", ranks=3)
    assert ended.code == 0, ended.err
    assert "run folder: runs/own" in ended.out
    run = tmp_path / "runs" / "own"
    assert (run / "written").read_text() == "10" and (run / "counted").read_text() == str(len(episodes(run))) != "0"


def test_game_is_imported_by_its_environment_alone(tmp_path: Path) -> None:
    noted = "import os\nfrom games import Countdown\nopen(f'imported-{os.getpid()}', 'w').close()\n"
    (tmp_path / "noted.py").write_text(noted)
    game = {"make": "noted:Countdown"}
    ended = train(tmp_path, one_match(game, {"blue": RANDOM}, ticks=200), ranks=3)
    assert ended.code == 0, ended.err
    assert len([*tmp_path.glob("imported-*")]) == 1


@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.openmpi)])
def test_sigterm_to_the_mpi_launcher_is_reported(own: bool, tmp_path: Path) -> None:
    config = {**duel(ticks=10**9), "restarts": 0, "checkpoint_every": 10**9}  # no boundary but the first
    run = tmp_path / "run"
    if own:
        given = "train", write(tmp_path, config), "--run-dir", "run"
        process = reached_by_hand(tmp_path, 2, *given, reached=lambda: has_played(run))
    else:
        process = started(tmp_path, config, ranks=2)
        wait_for(lambda: has_played(run))
    os.kill(process.pid if own else children(process.pid)[0], signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 1
    words = "arena: SIGTERM from the MPI launcher" if own else "arena: the run has ended: "
    assert words in ended.err
    assert "--resume goes on from tick 0" in ended.err


@pytest.mark.openmpi
@pytest.mark.parametrize("rank", [1, 2])
def test_death_under_an_own_mpirun_says_in_a_file_where_to_go_on(rank: int, tmp_path: Path) -> None:
    given = "train", write(tmp_path, {**duel(ticks=10**9), "checkpoint_every": 10**9}), "--run-dir", "run"
    line, settings = mpirun.command(mpirun.find_launcher(), 3, [*ARENA, *given])
    added = {name: value for name, value in settings.items() if name not in os.environ}
    process = start(["sh", "-c", f"exec {shlex.join(line)} > output 2>&1"], tmp_path, **added)  # not `>>`
    wait_for(lambda: has_played(tmp_path / "run"))
    (pid,) = (
        pid
        for pid in children(process.pid)
        if f"OMPI_COMM_WORLD_RANK={rank}\0" in Path(f"/proc/{pid}/environ").read_text()
    )
    os.kill(pid, signal.SIGKILL)
    finish(process)
    assert "--resume goes on from tick 0" in (tmp_path / "output").read_text()


@pytest.mark.openmpi
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
