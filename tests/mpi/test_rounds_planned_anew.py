"""A league whose root dies between two rounds: the survivors plan the next round again, with the same result."""

from __future__ import annotations

import sys
from pathlib import Path

from test_rounds_over_mpi import everything

from arena.records.journal import JournalReader
from run_cli import TESTS, arena, by_hand, left_behind, wait_for, write


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
    program = [sys.executable, str(TESTS / "cli_killed_at_plan.py")]
    ended = by_hand(tmp_path, 4, "train", config, "--run-dir", "run", program=program, tolerant=True)
    assert ended.out.count("\nround ") == data["rounds"], ended.err
    (fault,) = JournalReader(tmp_path / "run" / "faults.jsonl")
    matches = [len(told["matches"]) for told in JournalReader(tmp_path / "run" / "rounds.jsonl")]
    assert fault["ranks"] == [0] and matches[1] > matches[2], "the failed rank hosted roles that no longer exist"
    assert everything(tmp_path / "run") == everything(tmp_path / "whole")
    wait_for(lambda: not left_behind(tmp_path))
