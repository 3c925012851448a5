"""Teams of ppo, recurrent dqn, impala and qmix in one league: killed, resumed, rated, and exploited, by commands."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from arena.cli.main import main
from arena.records.journal import JournalReader
from run_cli import finish, kill_all, newest_boundary, ranks_in, started, wait_for

CONFIG = str(Path(__file__).parents[2] / "configs" / "league_of_algorithms.yaml")
TEAMS = {"ppo", "dqn", "impala", "qmix"}
SHORT = {
    **{"rounds": 2, "ticks": 60, "checkpoint_every": 30, "envs.touchdown.make": "games:SlowTouchdown"},
    **{
        "envs.touchdown.kwargs.max_steps": 20,
        "policies.ppo.options.n_steps": 30,
        "policies.impala.options.n_steps": 10,
    },
    **{f"policies.{name}.options.learning_starts": 100 for name in ("dqn", "qmix")},
}
SETTINGS = [word for key, value in SHORT.items() for word in ("--set", f"{key}={value}")]


def test_league_of_four_algorithms_is_killed_resumed_rated_and_exploited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    process = started(tmp_path, CONFIG, *SETTINGS, ranks=2, TICK_SECONDS="0.05")
    wait_for(lambda: newest_boundary(run) >= 30, process)
    os.kill(ranks_in(tmp_path)[1], signal.SIGKILL)
    wait_for(lambda: newest_boundary(run) >= 60, process)  # in other processes, which go on
    assert [line["ranks"] for line in JournalReader(run / "faults.jsonl")] == [[1]]
    assert process.poll() is None, "it is still playing"
    assert kill_all(tmp_path) >= 3
    assert finish(process).code != 0

    assert main(["train", CONFIG, *SETTINGS, "--resume", "--ranks", "1", "--run-dir", str(run)]) == 0
    assert [line["round"] for line in JournalReader(run / "rounds.jsonl")] == [0, 1]
    assert newest_boundary(run) == 120
    assert {path.parent.name for path in run.glob("checkpoints/*/000000000120.ckpt")} == TEAMS
    learned = {line["policy"] for line in JournalReader(run / "metrics.jsonl") if line["ticks"] > 60}
    assert learned >= {"ppo", "impala"}

    def said(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    tournament = said("tournament", str(run), "--episodes", "48", "--ranks", "1", "--run-dir", str(tmp_path / "all"))
    assert {row["player"] for row in tournament["players"]} == TEAMS
    steps = ["--ticks", "64", "--set", "options.n_steps=32", "--episodes", "8", "--ranks", "1"]
    exploited = said("exploit", f"{run}:qmix", *steps, "--run-dir", str(tmp_path / "responder"))
    assert exploited["games"] >= 8
