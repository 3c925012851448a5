"""A league whose root dies between two rounds is started again and plans the next round as it was."""

from __future__ import annotations

from pathlib import Path

from test_rounds_over_mpi import everything

from arena.records.journal import JournalReader
from run_cli import arena, left_behind, wait_for, write


def test_round_replanned_after_a_failure_is_the_same(tmp_path: Path) -> None:
    names = ["one", "two", "three", "four"]
    meets = {"env": "game", "policies": names[:2], "rule": {"past_selves": {"self": 0.0}}, "lanes": 2}
    data = {
        "name": "league",
        "seed": 3,
        "ticks": 40,
        "rounds": 4,
        "checkpoint_every": 30,  # no divisor of a round
        "envs": {"game": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 4}}},
        "policies": {name: {"algorithm": "learners:LearnerWithActor"} for name in names},
        "matches": [{"knockout": {"env": "game", "policies": names, "lanes": 2}}, {"matchmaking": meets}],
        "league": {"evolution": {"share": 0.5}},
    }
    config = write(tmp_path, data)
    assert arena(tmp_path, "train", config, "--run-dir", "whole", "--ranks", "1").code == 0
    killed = write(tmp_path, {**data, "imports": ["killed_at_plan"]}, "killed.yaml")
    ended = arena(tmp_path, "train", killed, "--run-dir", "run", "--ranks", "4")
    assert ended.code == 0, ended.err
    (fault,) = JournalReader(tmp_path / "run" / "faults.jsonl")
    assert fault["ranks"] == [0]
    assert everything(tmp_path / "run") == everything(tmp_path / "whole")
    wait_for(lambda: not left_behind(tmp_path))
