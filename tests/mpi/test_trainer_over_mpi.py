"""A Trainer over MPI: processes that wait between two iterations, play the bytes of the command, and never stay."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from arena import Trainer
from arena.errors import ConfigError
from in_process import one_match
from run_cli import alone, differing, finish, living, start, trained, wait_for, write
from slow_results import json_lines, without_clock

PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
DUEL: dict[str, Any] = one_match(
    {"make": "touchdown", "kwargs": {"max_steps": 15}},
    {"blue": PPO, "red": {"algorithm": "random"}},
    **{"ticks": 120, "name": "duel", "seed": 5, "checkpoint_every": 20, "match": {"lanes": 2}},
    **{"results": {"every": 20, "smoothing": 7}, "evaluation": {"every": 60, "episodes": 2}},
)


@pytest.fixture(autouse=True)
def _in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_iterations_leave_the_bytes_of_the_command(tmp_path: Path) -> None:
    known = alone(tmp_path, DUEL)
    trainer = Trainer("config.yaml", run_dir="run", ranks="one_per_role")
    for number in (1, 2, 3):
        result = trainer.train()
        assert (result["ticks"], trainer.ticks, trainer.done) == (20 * number, 20 * number, False)
    assert "evaluation" in result
    trainer.evaluate(2)
    trainer.compute_action(trainer.policy().observation_space.sample())
    trainer.set_state("blue", trainer.state("blue"))
    with pytest.raises(ConfigError, match="process"):
        Trainer.restore("run")
    trainer.train()
    trainer.close()
    assert living(tmp_path) == []
    with Trainer.restore("run", ranks=2, hosts="localhost:2") as again:
        assert [line["ticks"] for line in again] == [100, 120]
        assert again.done
    assert differing(tmp_path / "run", known) == []
    assert without_clock(tmp_path / "run") == without_clock(known)


def test_workers_that_join_play_the_same_on_any_number_of_processes(tmp_path: Path) -> None:
    for run, ranks in (("one", 1), ("two", 2)):
        with Trainer({**DUEL, "ticks": 60, "evaluation": None}, run_dir=run, ranks=ranks) as trainer:
            trainer.train()
            trainer.change({"matches[0].copies": 2})
            trainer.train()
            trainer.change({"matches[0].copies": 1, "envs.game.kwargs.max_steps": 5})
            assert trainer.train()["ticks"] == 60
    assert living(tmp_path) == []
    assert differing(tmp_path / "two", tmp_path / "one") == []
    assert {line["match"] for line in json_lines(tmp_path / "two" / "episodes.jsonl")} == {0, 1}


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)"])
def test_program_that_does_not_close_its_trainer_ends_silently(end: str, tmp_path: Path) -> None:
    alone(tmp_path, DUEL)
    text = (
        f'from arena import Trainer\ntrainer = Trainer("config.yaml", run_dir="run", ranks=2)\ntrainer.train()\n{end}'
    )
    (tmp_path / "program.py").write_text(text)
    ended = finish(start([sys.executable, "program.py"], tmp_path), timeout=400)
    assert (ended.code, ended.err) == (3 if end else 0, "")
    assert living(tmp_path) == []
    assert Trainer.restore("run").ticks == 20


@pytest.mark.long
def test_iterations_of_several_processes_leave_the_same_bytes(tmp_path: Path) -> None:
    data = {**DUEL, "ticks": 400, "evaluation": {"every": 100, "episodes": 2}}
    known = alone(tmp_path, data)
    program = """
import sys
from arena import Trainer
begin, end = map(int, sys.argv[1:3])
ranks = "one_per_role"
trainer = Trainer("config.yaml", run_dir="run", ranks=ranks) if begin == 0 else Trainer.restore("run", ranks=ranks)
with trainer:
    assert trainer.ticks == begin
    observation = None
    while trainer.ticks < end:
        result = trainer.train()
        assert result["ticks"] == 20 * result["training_iteration"] == trainer.ticks
        player = trainer.policy("blue")
        observation = player.observation_space.sample() if observation is None else observation
        assert trainer.compute_action(observation, policy="blue") == player.act(observation)
        trainer.evaluate(2, greedy=result["training_iteration"] % 2 == 0)
        trainer.set_state("blue", trainer.state("blue"))
        if trainer.ticks == 160:
            trainer.save("saved")
"""
    (tmp_path / "program.py").write_text(program)
    for begin, end in ((0, 160), (160, 280), (280, 400)):  # a new process goes on each time
        ended = finish(start([sys.executable, "program.py", str(begin), str(end)], tmp_path), timeout=400)
        assert ended.code == 0, ended.err
    for run in (trained(tmp_path, "config.yaml", "--resume", run="saved", ranks=2), tmp_path / "run"):
        assert differing(run, known) == []
        assert without_clock(run) == without_clock(known)


INTERRUPTED = """
import os, signal, sys, threading
from pathlib import Path
from arena import Trainer

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell has started this in the background

def interrupt():  # as a terminal does: the process that holds the run alone, in the middle of an iteration
    while journal.stat().st_size <= before:
        threading.Event().wait(0.01)
    os.kill(os.getpid(), 2)

with Trainer("config.yaml", run_dir="run", ranks=2, every=1000, ticks=2000) as trainer:
    trainer.train()
    journal = Path("run/episodes.jsonl")
    before = journal.stat().st_size
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        trainer.train()
    except KeyboardInterrupt:
        print("interrupted at", trainer.ticks, flush=True)
    else:
        sys.exit("it was not interrupted")
    if len(sys.argv) > 1:
        raise KeyboardInterrupt
    assert trainer.train()["ticks"] == 2000 and trainer.done
"""


@pytest.mark.parametrize("leaves", [pytest.param(False, marks=pytest.mark.long), True], ids=["goes on", "leaves"])
def test_ctrl_c_saves_a_held_run_of_several_processes(leaves: bool, tmp_path: Path) -> None:
    game = {"make": "games:SlowTouchdown", "kwargs": {"max_steps": 15, "seconds": 0.002}}
    blue = {"algorithm": "learners:VectorLearner"}
    slow = {"envs": {"game": game}, "policies": {"blue": blue, "red": {"algorithm": "random"}}, "evaluation": None}
    write(tmp_path, {**DUEL, **slow})
    (tmp_path / "program.py").write_text(INTERRUPTED)
    ended = finish(start([sys.executable, "program.py", *["leave"] * leaves], tmp_path))
    assert ended.out.startswith("interrupted at "), ended.err
    assert (ended.code != 0) == leaves, ended.err
    tick = int(ended.out.split()[-1])
    assert 1000 < tick < 2000, "saved in mid-iteration, as `arena train` does"
    wait_for(lambda: not living(tmp_path))
    if leaves:
        alone(tmp_path, "config.yaml", "--resume", "--ticks", "2000", run="run")
    lines = json_lines(tmp_path / "run" / "result.json")
    assert lines[-1]["ticks"] == 2000 and lines[-1]["done"]


HOLDER = """
import time
from arena import Trainer
trainer = Trainer("config.yaml", run_dir="run", ranks=2)
trainer.train()
print("held", flush=True)
trainer.train()
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.long
def test_processes_end_when_the_program_is_killed(tmp_path: Path) -> None:
    write(tmp_path, DUEL)
    (tmp_path / "holder.py").write_text(HOLDER)
    program = start([sys.executable, "holder.py"], tmp_path)
    assert program.stdout is not None
    assert [program.stdout.readline() for _ in range(2)] == ["held\n", "held\n"]
    os.kill(program.pid, signal.SIGKILL)
    finish(program)
    wait_for(lambda: not living(tmp_path))
    alone(tmp_path, "config.yaml", "--resume", run="run")


def test_failure_in_a_process_is_raised_and_closes_the_trainer(tmp_path: Path) -> None:
    wrong = {**DUEL, "envs": {"game": {"make": "touchdown", "kwargs": {"max_step": 15}}}}
    with pytest.raises(ConfigError, match="max_step"):
        Trainer(wrong, run_dir="wrong", ranks=2).train()
    with pytest.raises(ConfigError, match="are for several processes; set ranks"):
        Trainer(DUEL, hosts="localhost:2")
    with pytest.raises(ConfigError, match="objects as callbacks need ranks=1"):
        Trainer(DUEL, ranks=2, callbacks=[object()])
    with pytest.raises(ConfigError, match="a class of this program"):
        Trainer({**DUEL, "envs": {"game": {"make": "__main__:Game"}}}, ranks=2)
