"""A Trainer over MPI: processes that wait between two iterations, play the bytes of the command, and never stay."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arena import Trainer
from arena.errors import ConfigError
from run_cli import arena, finish, left_behind, living, start, wait_for, write
from slow_results import json_lines, without_clock

PPO = {"algorithm": "ppo", "options": {"n_steps": 16, "minibatch_size": 32, "hidden_sizes": [8]}}
DUEL: dict[str, Any] = {
    "name": "duel",
    "seed": 5,
    "ticks": 120,
    "checkpoint_every": 20,
    "results": {"every": 20, "smoothing": 7},
    "evaluation": {"every": 60, "episodes": 2},
    "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 15}}},
    "policies": {"blue": PPO, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 2}],
}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    os.chdir("/")
    wait_for(lambda: not [pid for pid in living(tmp_path) if pid != os.getpid()] and not left_behind(tmp_path))


def left(run: Path) -> dict[str, Any]:
    checkpoints = {path.name: path.read_bytes() for path in (run / "checkpoints").rglob("*.ckpt")}
    updates = [{**line, "seconds": 0} for line in json_lines(run / "metrics.jsonl")]
    return {**checkpoints, "episodes": (run / "episodes.jsonl").read_bytes(), "updates": updates}


def test_iterations_leave_the_bytes_of_the_command(tmp_path: Path) -> None:
    ended = arena(tmp_path, "train", write(tmp_path, DUEL), "--run-dir", "known", "--ranks", "1")
    assert ended.code == 0, ended.err
    trainer = Trainer("config.yaml", run_dir="run", ranks=None)
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
    assert [pid for pid in living(tmp_path) if pid != os.getpid()] == []
    with Trainer.restore("run", ranks=2) as again:
        assert [line["ticks"] for line in again] == [100, 120]
        assert again.done
    assert left(tmp_path / "run") == left(tmp_path / "known")
    assert without_clock(tmp_path / "run") == without_clock(tmp_path / "known")


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
    wait_for(lambda: not [pid for pid in living(tmp_path) if pid != os.getpid()], timeout=15)
    ended = arena(tmp_path, "train", "config.yaml", "--run-dir", "run", "--resume", "--ranks", "1")
    assert ended.code == 0, ended.err


def test_failure_in_a_process_is_told_and_closes_the_trainer(tmp_path: Path) -> None:
    wrong = {**DUEL, "envs": {"game": {"make": "touchdown", "kwargs": {"max_step": 15}}}}
    with pytest.raises(ConfigError, match="max_step"):
        Trainer(wrong, run_dir="wrong", ranks=2).train()
    with pytest.raises(ConfigError, match="objects as callbacks need ranks=1"):
        Trainer(DUEL, ranks=2, callbacks=[object()])
    with pytest.raises(ConfigError, match="a class of this program"):
        Trainer({**DUEL, "envs": {"game": {"make": "__main__:Game"}}}, ranks=2)
