"""Processes are killed and the run is started again: real mpirun, real SIGKILL, any rank, at any moment."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from arena.diagnostics import segments
from arena.diagnostics.segments import SHARED_MEMORY, find_unmapped
from arena.records.journal import JournalReader
from arena.records.lock import is_left
from arena.roles.stop import ONE_REQUEST_SECONDS
from in_process import one_match
from run_cli import (
    PATIENCE,
    Ended,
    alone,
    children,
    differences,
    finish,
    left_by,
    newest_boundary,
    ranks_in,
    reached_by_hand,
    started,
    train,
    trained,
    wait_for,
    write,
)

LEARNER = {"algorithm": "learners:LearnerWithActor"}  # imports no torch: a second and a half of CPU in each process
PPO = {"algorithm": "ppo", "options": {"n_steps": 32, "n_epochs": 2, "minibatch_size": 64, "hidden_sizes": [16]}}
RANDOM = {"algorithm": "random"}
PAUSE = 0.002  # seconds per tick: time to kill a process in, at no CPU time
LAUNCHER = -1  # in the place of a rank: MPI's


def duel(**changes: Any) -> dict[str, Any]:
    """Two matches of a learner against random play: seven roles."""
    game = {"make": "games:SlowTouchdown", "kwargs": {"max_steps": 60, "seconds": PAUSE}}
    given = {"name": "duel", "seed": 4, "checkpoint_every": 1000, "match": {"lanes": 4, "copies": 2}}
    return one_match(game, {"blue": LEARNER, "red": RANDOM}, ticks=1500, **given) | changes


def killed(cwd: Path, config: dict[str, Any], *victims: int, when: str = "updates", **keys: Any) -> Ended:
    """Trains, see `started`, and kills a rank at each of several events; returns how the run ended."""
    process, run = started(cwd, config, **keys), cwd / "run"
    for turn, victim in enumerate(victims):
        wait_for(lambda turn=turn: deaths(run) == turn, process)
        wait_for(lambda turn=turn: seen(run, when, turn), process)
        os.kill(children(process.pid)[0] if victim == LAUNCHER else ranks_in(cwd)[victim], signal.SIGKILL)
    return finish(process)


def deaths(run: Path) -> int:
    """How many deaths are on record."""
    return len(list(JournalReader(run / "faults.jsonl"))) if (run / "faults.jsonl").exists() else 0


def seen(run: Path, when: str = "updates", turn: int = 0) -> bool:
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
        return left_by(alone(Path(folder), json.loads(config.replace(f'"seconds": {PAUSE}', '"seconds": 0'))))


def check(ended: Ended, run: Path, config: dict[str, Any]) -> list[dict[str, Any]]:
    """The deaths on record; checks that the run has ended well, with the bytes of the run without them."""
    assert (ended.code, ended.err) == (0, "")
    assert differences(left_by(run), undisturbed(json.dumps(config))) == []
    return [line for line in JournalReader(run / "faults.jsonl") if line["kind"] == "process"]


def test_run_is_started_again_after_each_of_several_deaths(tmp_path: Path) -> None:
    """A worker dies, the root, an environment, MPI's launcher."""
    victims = 3, 0, 1, LAUNCHER
    config = duel(record="samples", ticks=4500, checkpoint_every=3000)  # each death is in the first leg
    ended = killed(tmp_path, config, *victims)
    lines = check(ended, tmp_path / "run", config)
    assert len(lines) == len(victims)
    assert all(set(line["ranks"]) <= {victim} - {LAUNCHER} for line, victim in zip(lines, victims, strict=True))
    assert all(line["replayed"] > 0 for line in lines)
    assert f"back to tick 0, {lines[0]['replayed']} ticks to be played again" in ended.out
    assert ended.out.count(" died; starting again\n") + ended.out.count(" of SIGKILL; starting again\n") == 4
    assert "has died of SIGKILL" in lines[-1]["done"]


MPICH = Path(__file__).parents[2] / ".venv-mpich" / "bin" / "python"


@pytest.mark.long
def test_run_is_started_again_with_mpich(tmp_path: Path) -> None:
    assert MPICH.exists(), f"{MPICH} has MPICH in the place of Open MPI: `make .venv-mpich/.ready`"
    before = find_unmapped(SHARED_MEMORY, segments.MPICH)
    ended = killed(tmp_path, duel(), 3, 0, LAUNCHER, program=[str(MPICH), "-m", "arena"])
    assert len(check(ended, tmp_path / "run", duel())) == 3
    assert find_unmapped(SHARED_MEMORY, segments.MPICH).keys() <= before.keys(), "shared memory of the killed processes"


SEVERAL = {"env": "game", "seats": ["blue", "red"], "lanes": 4, "copies": 3}
INTERVALS = {"blue": {**PPO, "options": {**PPO["options"], "n_steps": 128}}, "red": {"algorithm": "a2c"}}
TEAM = {"n_steps": 25, "minibatch_size": 300, "hidden_sizes": [16], "normalize_observations": True}
SPREAD = {
    "envs": {"game": {"make": "pettingzoo:mpe2.simple_spread_v3", "kwargs": {"N": 2, "max_cycles": 28}}},
    "policies": {"p": {"algorithm": "mappo", "options": TEAM}},
    "matches": [{"env": "game", "seats": ["p", "p"], "lanes": 4, "copies": 2}],
}


@pytest.mark.parametrize(
    ("changes", "ranks", "victim", "when"),
    [
        pytest.param({"policies": INTERVALS, "matches": [SEVERAL]}, 4, 2, "updates", id="groups of other intervals"),
        pytest.param(SPREAD, None, 4, "updates", id="second of a team"),
        pytest.param({"policies": {"blue": PPO, "red": RANDOM}}, None, 0, "start", id="before play"),
        pytest.param({"policies": {"blue": PPO, "red": PPO}}, 3, 1, "updates", id="several roles"),
        pytest.param({"record": "replays"}, None, 0, "updates", id="root and replays"),
        pytest.param({"record": "replays"}, None, 1, "updates", id="environment and replays"),
    ],
)
@pytest.mark.long
def test_run_of_any_kind_is_started_again(
    changes: dict[str, Any], ranks: int | None, victim: int, when: str, tmp_path: Path
) -> None:
    ended = killed(tmp_path, duel(**changes), victim, when=when, ranks=ranks)
    assert len(check(ended, tmp_path / "run", duel(**changes))) == 1


def test_death_during_an_evaluation_starts_the_run_again(tmp_path: Path) -> None:
    config = duel(evaluation={"every": 500, "episodes": 160}, checkpoint_every=500, ticks=1000)
    config |= {"policies": {"blue": PPO, "red": RANDOM}, "matches": [{**config["matches"][0], "copies": 1}]}
    ended = killed(tmp_path, config, 2, when="evaluation")
    assert len(check(ended, tmp_path / "run", config)) == 1
    evaluations = list(JournalReader(tmp_path / "run" / "evaluations.jsonl"))
    ticks = [(line["ticks"], line["policy"], line["episodes"]) for line in evaluations]
    assert ticks == [(tick, name, 160) for tick in (500, 1000) for name in ("blue", "red")]


RANDOM_RUNS = 100
"""How many random configurations are killed at random moments."""


@pytest.mark.parametrize("seed", range(RANDOM_RUNS))
@pytest.mark.long
def test_random_runs_survive_random_kills(seed: int) -> None:
    from chaos import chaos, equal  # of the benchmarks
    from random_runs import random_run

    found = chaos(seed, root=seed % 2 == 0)
    assert equal(found), (found, random_run(seed))


DIES = """
import os
import re

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
    ended = train(tmp_path, config, ranks=2)
    assert (ended.code, ended.err) == (0, "")
    assert "has died (root and environment of match 0 ('game')); started again with 2 processes" in ended.out
    assert "has won matches[0].knockout" in ended.out


def test_a_lost_learner_without_a_state_begins_again(tmp_path: Path) -> None:
    forgetful = {"algorithm": "odd_workers:Forgetful"}
    config = duel(policies={"blue": forgetful, "red": forgetful}, ticks=2000)  # longer than until lines are on disk
    config["matches"][0] |= {"lanes": 1, "copies": 1}
    (line,) = check(killed(tmp_path, config, 3), tmp_path / "run", config)
    assert line["replayed"] > 0


@pytest.mark.parametrize("victim", [2, pytest.param(LAUNCHER, marks=pytest.mark.long)])
def test_without_restarts_a_death_ends_a_resumable_run(victim: int, tmp_path: Path) -> None:
    config = duel(restarts=0)
    ended = killed(tmp_path, config, victim, ranks=3)
    assert ended.code == 1
    assert "--resume goes on" in ended.err
    trained(tmp_path, config, "--resume", ranks=2)
    assert differences(left_by(tmp_path / "run"), undisturbed(json.dumps(config))) == []


def test_process_that_dies_again_and_again_ends_the_run(tmp_path: Path) -> None:
    ended = train(
        tmp_path,
        duel(policies={"blue": {"algorithm": "faulty_workers:KillsItself"}, "red": RANDOM}, restarts=2),
        ranks=2,
    )
    assert ended.code == 1
    # The other process may end within the same moment.
    assert re.search("ha(s|ve) died, 3 deaths without a new boundary, more than `restarts` allows; ", ended.err)
    assert "--resume goes on from tick 0" in ended.err


@pytest.mark.openmpi
def test_death_under_an_mpirun_of_the_user_ends_the_run_with_a_line(tmp_path: Path) -> None:
    config = write(tmp_path, duel(ticks=10**9, checkpoint_every=10**9))  # no boundary but the first
    run = tmp_path / "run"
    process = reached_by_hand(tmp_path, 3, "train", config, "--run-dir", "run", reached=lambda: seen(run))
    os.kill(ranks_in(tmp_path)[2], signal.SIGKILL)
    ended = finish(process)
    assert ended.code != 0
    assert "--resume goes on from tick 0" in ended.err


def test_processes_end_with_the_command_that_has_started_them(tmp_path: Path) -> None:
    process = started(tmp_path, duel(), ranks=3)
    wait_for(lambda: seen(tmp_path / "run"))
    os.kill(process.pid, signal.SIGKILL)
    assert finish(process).code == -signal.SIGKILL  # and nothing is left behind


@pytest.mark.parametrize(
    ("ranks", "number", "status", "group"),
    [
        (4, signal.SIGINT, 130, False),
        (2, signal.SIGTERM, 143, True),  # to the process and to its group, as `timeout` sends it: one request
        (1, signal.SIGUSR1, 0, False),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (
                *((7, signal.SIGTERM, 143, False), (7, signal.SIGUSR1, 0, False), (7, signal.SIGHUP, 129, False)),
                *((1, signal.SIGINT, 130, False), (1, signal.SIGTERM, 143, True), (1, signal.SIGHUP, 129, False)),
            )
        ),
    ],
)
def test_signal_saves_a_boundary_that_resumes(
    ranks: int, number: signal.Signals, status: int, group: bool, tmp_path: Path
) -> None:
    config, run = duel(ticks=200000, checkpoint_every=100000), tmp_path / "run"
    process = started(tmp_path, config, ranks=ranks)
    wait_for(lambda: seen(run))
    process.send_signal(number)
    if group:
        os.killpg(process.pid, number)
    ended = finish(process)
    assert ended.code == status, ended.err
    assert ended.err.startswith("arena: stopped at tick ")
    assert (run / "requeue").exists() == (number is signal.SIGUSR1)
    tick = int(ended.err.split()[4].rstrip(";"))
    assert 0 < tick < 100000
    alone(tmp_path, {**config, "ticks": tick + 100}, "--resume", run="run")
    assert list(JournalReader(run / "metrics.jsonl"))[-1]["ticks"] > tick
    assert not (run / "requeue").exists()
    assert not (run / "faults.jsonl").exists()


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_waits_for_the_slowest_match_but_not_twice(again: bool, tmp_path: Path) -> None:
    """A match plays on while the other one waits for a file, which comes after the first Ctrl-C, or never."""
    run, file, lines = tmp_path / "run", tmp_path / "file", list[str]()
    process = started(
        tmp_path,
        {
            "ticks": 10**6,
            "envs": {
                "fast": {"make": "games:Slow", "kwargs": {"seconds": 0.001}},
                "slow": {"make": "games:Waiting", "kwargs": {"file": str(file)}},
            },
            "policies": {"blue": RANDOM, "red": RANDOM},
            "matches": [{"env": "fast", "seats": ["blue"]}, {"env": "slow", "seats": ["red"]}],
        },
    )
    assert process.stdout is not None and process.stderr is not None
    reader = threading.Thread(target=lambda: [lines.append(line) for line in process.stdout or ()], daemon=True)
    reader.start()
    played = re.compile(r"^(\d+)/\d+ ticks of all matches")
    wait_for(lambda: any((found := played.match(line)) and int(found[1]) > 2000 for line in lines))
    process.send_signal(signal.SIGINT)
    wait_for(lambda: any("; Ctrl-C again ends it at once, unsaved" in line for line in lines))
    if again:
        time.sleep(ONE_REQUEST_SECONDS)
        process.send_signal(signal.SIGINT)
    else:
        file.touch()
    assert process.wait(PATIENCE) == 130
    reader.join()
    said, end = "".join(lines), process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    if again:
        assert "; what was played is in the run folder; --resume goes on from tick 0\n" in end
        assert is_left(run) and newest_boundary(run) == 0
    else:
        tick = newest_boundary(run)
        assert f"all matches end at tick {tick}; match 1 of 'slow' is at tick " in said
        assert f"arena: stopped at tick {tick}; --resume goes on from there" in end
        assert tick > 2000 and not is_left(run)


def test_interrupt_before_play_leaves_no_folder(tmp_path: Path) -> None:
    config = duel(policies={"blue": {"algorithm": "odd_workers:SlowConstruction"}, "red": RANDOM})
    process = started(tmp_path, config)
    wait_for(lambda: seen(tmp_path / "run", "start"))
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130
    assert "before any tick was played" in ended.err
    assert not (tmp_path / "run").exists()


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path) -> None:
    first = started(tmp_path, duel(ticks=10**7, checkpoint_every=10**6), ranks=2)
    wait_for(lambda: seen(tmp_path / "run"))
    second = train(tmp_path, "config.yaml", "--resume", ranks=1)
    assert second.code == 2
    assert "another run writes into this folder" in second.err
    first.send_signal(signal.SIGINT)
    assert finish(first).code == 130
