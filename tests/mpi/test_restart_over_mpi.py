"""Processes are killed and the run is started again: real mpirun, real SIGKILL, any rank, at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from arena.records.journal import JournalReader
from arena.run import mpirun
from run_cli import ARENA, Ended, arena, finish, left_behind, ranks_in, start, wait_for, write

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # benchmarks are scripts: they find each other so

from chaos import chaos, equal
from random_runs import differences, left_by, random_run

PPO = {"algorithm": "ppo", "options": {"n_steps": 32, "n_epochs": 2, "minibatch_size": 64, "hidden_sizes": [16]}}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


PAUSE = 0.002  # seconds per tick: time to kill a process in, at no CPU time
RANDOM = {"algorithm": "random"}  # imports no torch: a second and a half of CPU time in each process


def duel(**changes: Any) -> dict[str, Any]:
    """Two matches of a learner against random play: seven roles."""
    return {
        "name": "duel",
        "seed": 4,
        "ticks": 2000,
        "checkpoint_every": 1000,
        "envs": {"game": {"make": "games:SlowTouchdown", "kwargs": {"max_steps": 60, "seconds": PAUSE}}},
        "policies": {"blue": PPO, "red": RANDOM},
        "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 4, "copies": 2}],
        **changes,
    }


def killed(cwd: Path, config: dict[str, Any], *victims: Sequence[int], when: str = "updates") -> Ended:
    """Trains, and kills some ranks at each of several events; returns how the run ended."""
    process = start([*ARENA, "train", write(cwd, config), "--run-dir", "run"], cwd)
    for turn, ranks in enumerate(victims):
        wait_for(lambda turn=turn: deaths(cwd / "run") == turn or process.poll() is not None)
        wait_for(lambda turn=turn: seen(cwd / "run", when, turn) or process.poll() is not None)
        pids = ranks_in(cwd)
        for rank in ranks:
            os.kill(pids[rank], signal.SIGKILL)
    return finish(process)


def deaths(run: Path) -> int:
    """How many deaths are on record."""
    return len(list(JournalReader(run / "faults.jsonl"))) if (run / "faults.jsonl").exists() else 0


def seen(run: Path, when: str, turn: int) -> bool:
    """Whether the event for the next kill has occurred."""
    if when == "evaluation":
        return len(list(run.glob("evaluations/*/episodes.jsonl"))) > turn
    if when == "start":
        return len(list((run / "logs").glob("rank-*.log"))) >= 6
    metrics = run / "metrics.jsonl"
    return metrics.exists() and metrics.read_bytes().count(b"\n") >= 4


@cache
def undisturbed(config: str) -> dict[str, Any]:
    """The files of a run of this configuration (JSON) without failures."""
    with TemporaryDirectory() as folder:
        cwd, quick = Path(folder), config.replace(f'"seconds": {PAUSE}', '"seconds": 0')
        ended = arena(cwd, "train", write(cwd, json.loads(quick)), "--run-dir", "run", "--ranks", "1")
        assert ended.code == 0, ended.err
        return left_by(cwd / "run")


def check(run: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    """The deaths on record; checks that the run has left the bytes of the run without them."""
    assert differences(left_by(run), undisturbed(json.dumps(config))) == []
    return [line for line in JournalReader(run / "faults.jsonl") if line["kind"] == "process"]


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param([(3,)], id="worker"),
        pytest.param([(0,)], id="root"),
        pytest.param([(1,)], id="environment"),
        pytest.param([(0, 1, 2)], id="root and a match", marks=pytest.mark.long),
        pytest.param([(6,), (0,)], id="twice"),
    ],
)
def test_run_is_started_again_after_a_death(victims: list[tuple[int, ...]], tmp_path: Path) -> None:
    ended = killed(tmp_path, duel(), *victims)
    assert ended.code == 0, ended.err
    lines = check(tmp_path / "run", duel())
    assert [set(line["ranks"]) <= set(dead) for line, dead in zip(lines, victims, strict=True)] == [True] * len(victims)
    assert f"back to tick 0, {lines[0]['replayed']} ticks to be played again" in ended.out
    assert all(line["replayed"] > 0 for line in lines)
    assert ended.err == ""


@pytest.mark.parametrize("own", [True, False], ids=["launcher", "its caller"])
def test_death_of_the_mpi_launcher_starts_the_run_again(own: bool, tmp_path: Path) -> None:
    process = start([*ARENA, "train", write(tmp_path, duel()), "--run-dir", "run"], tmp_path)
    wait_for(lambda: seen(tmp_path / "run", "updates", 0))
    (launcher,) = children(process.pid)
    os.kill(launcher if own else process.pid, signal.SIGKILL)
    ended = finish(process)
    if own:
        assert ended.code == 0, ended.err
        (line,) = check(tmp_path / "run", duel())
        assert line["ranks"] == [] and "has died of SIGKILL" in line["done"]
    else:
        assert ended.code == -signal.SIGKILL


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    told = (path.read_text().split() for path in Path("/proc", str(pid), "task").glob("*/children"))
    return [int(child) for found in told for child in found]


DIES = """
import os

class Dies:
    def on_end(self) -> None:
        if not os.path.exists("died"):
            open("died", "w").close()
            os.kill(os.getpid(), 9)
"""


def test_result_is_shown_when_the_root_dies_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    knockout = {"env": "game", "policies": ["blue", "red"], "lanes": 4}  # over after the first of four rounds
    config = duel(
        **{"ticks": 40, "checkpoint_every": 20, "rounds": 4},
        policies={"blue": RANDOM, "red": RANDOM},
        callbacks=["dies:Dies"],
        matches=[{"knockout": knockout}],
    )
    ended = arena(tmp_path, "train", write(tmp_path, config), "--run-dir", "run", "--ranks", "4")
    assert ended.code == 0, ended.err
    assert "has died (root); started again with 4 processes" in ended.out
    assert "has won matches[0].knockout" in ended.out
    assert ended.err == ""


@pytest.mark.parametrize("red", [pytest.param({"n_steps": 48}, id="ppo"), pytest.param(None, id="a2c")])
@pytest.mark.long
def test_groups_with_different_intervals_continue(red: dict[str, Any] | None, tmp_path: Path) -> None:
    other = {"algorithm": "a2c"} if red is None else {**PPO, "options": {**PPO["options"], **red}}
    config = duel(policies={"blue": {**PPO, "options": {**PPO["options"], "n_steps": 128}}, "red": other})
    config["matches"][0]["copies"] = 3
    process = start([*ARENA, "train", write(tmp_path, config), "--run-dir", "run", "--ranks", "4"], tmp_path)
    wait_for(lambda: seen(tmp_path / "run", "updates", 0))
    os.kill(ranks_in(tmp_path)[2], signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert len(check(tmp_path / "run", config)) == 1


RANDOM_RUNS = 100
"""How many random configurations are killed at random moments."""


@pytest.mark.parametrize("seed", range(RANDOM_RUNS))
@pytest.mark.long
def test_random_runs_survive_random_kills(seed: int) -> None:
    found = chaos(seed, root=seed % 2 == 0)
    assert equal(found), (found, random_run(seed))


@pytest.mark.long
def test_group_over_a_team_continues(tmp_path: Path) -> None:
    options = {"n_steps": 25, "minibatch_size": 300, "hidden_sizes": [16], "normalize_observations": True}
    config = duel(
        envs={"game": {"make": "pettingzoo:mpe2.simple_spread_v3", "kwargs": {"N": 2, "max_cycles": 28}}},
        policies={"p": {"algorithm": "mappo", "options": options}},
        matches=[{"env": "game", "seats": ["p", "p"], "lanes": 4, "copies": 2}],
    )
    ended = killed(tmp_path, config, (4,))  # the second of the first team
    assert ended.code == 0, ended.err
    assert len(check(tmp_path / "run", config)) == 1
    assert ended.err == ""


@pytest.mark.long
def test_death_before_play_starts_the_run_again(tmp_path: Path) -> None:
    ended = killed(tmp_path, duel(), (0, 2), when="start")
    assert ended.code == 0, ended.err
    check(tmp_path / "run", duel())


@pytest.mark.long
def test_packed_ranks_continue(tmp_path: Path) -> None:
    process = start([*ARENA, "train", write(tmp_path, duel()), "--run-dir", "run", "--ranks", "3"], tmp_path)
    wait_for(lambda: seen(tmp_path / "run", "updates", 0))
    os.kill(ranks_in(tmp_path)[1], signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert len(check(tmp_path / "run", duel())) == 1


@pytest.mark.parametrize(
    ("victims", "every", "episodes"),
    [
        pytest.param([(3,)], 1000, 160, id="worker"),
        # Longer, as it is not to end before the death.
        pytest.param([(0,)], 2000, 1500, id="the last", marks=pytest.mark.long),
    ],
)
def test_death_during_an_evaluation_starts_the_run_again(
    victims: list[tuple[int, ...]], every: int, episodes: int, tmp_path: Path
) -> None:
    config = duel(evaluation={"every": every, "episodes": episodes})
    ended = killed(tmp_path, config, *victims, when="evaluation")
    assert ended.code == 0, ended.err
    assert len(check(tmp_path / "run", config)) == len(victims)
    evaluations = list(JournalReader(tmp_path / "run" / "evaluations.jsonl"))
    ticks = [(line["ticks"], line["policy"]) for line in evaluations]
    assert ticks == [(tick, name) for tick in range(every, 2001, every) for name in ("blue", "red")]
    assert all(line["episodes"] == episodes for line in evaluations)


@pytest.mark.long
def test_a_restarted_run_can_be_resumed(tmp_path: Path) -> None:
    assert killed(tmp_path, duel(), (2,)).code == 0
    ended = arena(tmp_path, "train", "config.yaml", "--run-dir", "run", "--resume", "--ticks", "3000")
    assert ended.code == 0, ended.err
    assert "goes on at tick 2000" in ended.out


def test_a_lost_learner_without_a_state_begins_again(tmp_path: Path) -> None:
    forgetful = {"algorithm": "odd_workers:Forgetful"}
    config = duel(policies={"blue": forgetful, "red": forgetful}, ticks=400)
    config["matches"][0] |= {"lanes": 1, "copies": 1}
    process = start([*ARENA, "train", write(tmp_path, config), "--run-dir", "run"], tmp_path)
    journal = tmp_path / "run" / "episodes.jsonl"
    wait_for(lambda: journal.exists() and journal.stat().st_size > 0)
    os.kill(ranks_in(tmp_path)[3], signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    (line,) = check(tmp_path / "run", config)
    assert line["replayed"] > 0


def test_without_restarts_a_death_ends_a_resumable_run(tmp_path: Path) -> None:
    config = duel(restarts=0)
    ended = killed(tmp_path, config, (3,))
    assert ended.code == 1
    assert "--resume goes on" in ended.err
    assert arena(tmp_path, "train", "config.yaml", "--run-dir", "run", "--resume", "--ranks", "1").code == 0


def test_process_that_dies_again_and_again_ends_the_run(tmp_path: Path) -> None:
    crash = {"algorithm": "odd_workers:Crashes"}
    config = duel(policies={"blue": crash, "red": RANDOM}, restarts=2)
    config["matches"][0] |= {"copies": 1}
    ended = arena(tmp_path, "train", write(tmp_path, config), "--run-dir", "run")
    assert ended.code == 1
    assert "has died, 3 deaths without a new boundary, more than `restarts` allows; " in ended.err
    assert "--resume goes on from the newest boundary" in ended.err


def test_death_under_an_mpirun_of_the_user_ends_the_run_with_a_line(tmp_path: Path) -> None:
    line, settings = mpirun.command(mpirun.find_launcher(), 7, [*ARENA, "train", write(tmp_path, duel())])
    process = start([*line, "--run-dir", "run"], tmp_path, **settings)
    wait_for(lambda: seen(tmp_path / "run", "updates", 0))
    os.kill(ranks_in(tmp_path)[3], signal.SIGKILL)
    ended = finish(process)
    assert ended.code != 0
    assert "--resume goes on from the newest boundary" in ended.err


@pytest.mark.parametrize(
    ("ranks", "number", "status"),
    [
        ("7", signal.SIGINT, 130),
        pytest.param("7", signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param("7", signal.SIGUSR1, 0, marks=pytest.mark.long),
        pytest.param("1", signal.SIGINT, 130, marks=pytest.mark.long),
        pytest.param("1", signal.SIGTERM, 143, marks=pytest.mark.long),
        ("1", signal.SIGUSR1, 0),
        ("1", signal.SIGHUP, 129),
        pytest.param("7", signal.SIGHUP, 129, marks=pytest.mark.long),
    ],
)
def test_signal_saves_a_boundary_that_resumes(number: signal.Signals, status: int, ranks: str, tmp_path: Path) -> None:
    config = duel(ticks=200000, checkpoint_every=100000)
    command = [*ARENA, "train", write(tmp_path, config), "--run-dir", "run", "--ranks", ranks]
    process: subprocess.Popen[str] = start(command, tmp_path)
    wait_for(lambda: seen(tmp_path / "run", "updates", 0))
    process.send_signal(number)
    ended = finish(process)
    assert ended.code == status, ended.err
    assert ended.err.startswith("arena: stopped at tick ")
    assert (tmp_path / "run" / "requeue").exists() == (number is signal.SIGUSR1)
    tick = int(ended.err.split()[4].rstrip(";"))
    assert 0 < tick < 100000
    config |= {"ticks": tick + 100}
    ended = arena(tmp_path, "train", write(tmp_path, config), "--run-dir", "run", "--resume", "--ranks", "1")
    assert ended.code == 0, ended.err
    assert f"goes on at tick {tick}" in ended.out
    assert not (tmp_path / "run" / "requeue").exists()
    assert not (tmp_path / "run" / "faults.jsonl").exists()


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_signal_to_the_process_and_its_group_is_one_request(ranks: str, tmp_path: Path) -> None:
    """As `timeout` sends it."""
    config = write(tmp_path, duel(ticks=200000, checkpoint_every=100000))
    process = start([*ARENA, "train", config, "--run-dir", "run", "--ranks", ranks], tmp_path)
    wait_for(lambda: seen(tmp_path / "run", "updates", 0))
    os.kill(process.pid, signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    ended = finish(process)
    assert ended.code == 143, ended.err
    assert ended.err.startswith("arena: stopped at tick "), "the leg is saved"


def test_interrupt_before_play_leaves_no_folder(tmp_path: Path) -> None:
    config = duel(policies={"blue": {"algorithm": "odd_workers:SlowConstruction"}, "red": RANDOM})
    process = start([*ARENA, "train", write(tmp_path, config), "--run-dir", "run"], tmp_path)
    wait_for(lambda: seen(tmp_path / "run", "start", 0))
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130
    assert "before any tick was played" in ended.err
    assert not (tmp_path / "run").exists()


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    config = duel(ticks=10**7, checkpoint_every=100, policies={"blue": RANDOM, "red": RANDOM})
    first = start([*ARENA, "train", write(tmp_path, config), "--run-dir", "run", "--ranks", "3"], tmp_path)
    wait_for(lambda: (tmp_path / "run" / "boundaries" / "000000000200.json").exists())
    second = arena(tmp_path, "train", "config.yaml", "--run-dir", "run", "--resume", "--ranks", "1")
    assert second.code == 2
    assert "another run writes into this folder" in second.err
    first.send_signal(signal.SIGINT)
    assert finish(first).code == 130


@pytest.mark.parametrize(
    ("record", "victim"),
    [
        ("samples", 1),
        pytest.param("replays", 0, marks=pytest.mark.long),
        pytest.param("samples", 0, marks=pytest.mark.long),
        pytest.param("replays", 1, marks=pytest.mark.long),
    ],
)
def test_records_equal_those_of_an_undisturbed_run(record: str, victim: int, tmp_path: Path) -> None:
    config = duel(record=record)
    ended = killed(tmp_path, config, (victim,))
    assert ended.code == 0, ended.err
    check(tmp_path / "run", config)
