"""The rounds of a league over real processes: the same on any number, through kills, failures and `--resume`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_exact_resume import kill_all, left_by, newest_boundary

from arena.records.journal import JournalReader
from run_cli import ARENA, arena, by_hand, finish, left_behind, ranks_in, start, wait_for, write

ROUNDS, TICKS = 5, 100


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


ONLY_PAST = {"past_selves": {"self": 0.0}}


def league(*, ticks: int = TICKS, rounds: int = ROUNDS, rule: Any = "past_selves") -> dict[str, Any]:
    """Two learners that meet their past selves; the worse one becomes a copy of the better one now and then."""
    return {
        "name": "league",
        "seed": 4,
        "ticks": ticks,
        "rounds": rounds,
        "checkpoint_every": ticks // 2,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 20}}},
        "policies": {name: {"algorithm": "learners:LearnerWithActor"} for name in ("blue", "red")},
        "matches": [
            {
                "matchmaking": {
                    "env": "game",
                    "policies": ["blue", "red"],
                    "rule": rule,
                    "lanes": 2,
                    "copies": 1,
                }
            },
            {"env": "game", "seats": ["blue", "red"], "lanes": 2},
        ],
        "league": {"snapshots": {"keep": 2}, "evolution": {"every": 2, "share": 0.5}},
    }


def everything(run: Path) -> dict[str, Any]:
    """The files that must be equal after any events."""
    snapshots = {str(path.relative_to(run)): path.read_bytes() for path in (run / "snapshots").rglob("*.ckpt")}
    return {**left_by(run), **snapshots, "rounds": (run / "rounds.jsonl").read_text()}


def rounds_of(run: Path) -> list[dict[str, Any]]:
    return list(JournalReader(run / "rounds.jsonl"))


def test_a_league_is_the_same_on_any_number_of_processes(tmp_path: Path) -> None:
    config = write(tmp_path, league())
    for ranks in (1, 8):
        ended = arena(tmp_path, "train", config, "--run-dir", f"on-{ranks}", "--ranks", str(ranks))
        assert ended.code == 0, ended.err
    expected = everything(tmp_path / "on-1")
    assert len(rounds_of(tmp_path / "on-1")) == ROUNDS
    assert {line["round"] for line in JournalReader(tmp_path / "on-1" / "episodes.jsonl")} == set(range(ROUNDS))
    assert everything(tmp_path / "on-8") == expected


def test_killed_and_resumed_league_is_bit_equal(tmp_path: Path) -> None:
    config = write(tmp_path, league(ticks=600, rule=ONLY_PAST))
    assert arena(tmp_path, "train", config, "--run-dir", "whole", "--ranks", "1").code == 0
    run = tmp_path / "run"
    for reached, resume in ((600, []), (1500, ["--resume"])):  # a round's end, and the middle of one
        process = start([*ARENA, "train", config, "--run-dir", "run", "--ranks", "3", *resume], tmp_path)
        wait_for(lambda reached=reached: newest_boundary(run) >= reached)
        assert process.poll() is None, "it is still playing"
        assert kill_all(tmp_path) >= 4
        assert finish(process).code != 0
    ended = arena(tmp_path, "train", config, "--run-dir", "run", "--ranks", "2", "--resume")
    assert ended.code == 0, ended.err
    assert "goes on at tick" in ended.out
    assert everything(run) == everything(tmp_path / "whole")


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.long), 2])
def test_league_continues_without_a_failed_process(tmp_path: Path, victim: int) -> None:
    config = write(tmp_path, league(ticks=600))
    process = start([*ARENA, "train", config, "--run-dir", "run", "--ranks", "4"], tmp_path)
    wait_for(lambda: newest_boundary(tmp_path / "run") >= 600)
    os.kill(ranks_in(tmp_path)[victim], signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert "died" in (tmp_path / "run" / "faults.jsonl").read_text()
    rounds = rounds_of(tmp_path / "run")
    assert [line["round"] for line in rounds] == list(range(ROUNDS))
    matches = {(line["round"], match["match"]) for line in rounds for match in line["matches"]}
    played = {(line["round"], line["match"]) for line in JournalReader(tmp_path / "run" / "episodes.jsonl")}
    assert played == matches


def test_rounds_of_another_length_are_refused_and_more_rounds_are_not(tmp_path: Path) -> None:
    config = write(tmp_path, league(rounds=3))
    common = ["train", config, "--run-dir", "run", "--ranks", "1"]
    assert arena(tmp_path, *common).code == 0
    longer = arena(tmp_path, *common, "--resume", "--ticks", "150")
    assert longer.code == 2
    assert "ticks: a round had 100, has 150" in longer.err
    more = arena(tmp_path, *common, "--resume", "--set", "rounds=4")
    assert more.code == 0, more.err
    assert arena(tmp_path, "train", config, "--run-dir", "whole", "--ranks", "1", "--set", "rounds=4").code == 0
    assert json.dumps(rounds_of(tmp_path / "run")) == json.dumps(rounds_of(tmp_path / "whole"))


WATCHED = """
import sys
from arena.cli.main import main
from arena.records.lock import is_held
from arena.run import rounds

plan_next_round = rounds.plan_next_round

def watched(*given):
    print("held" if is_held("run") else "free", flush=True)
    return plan_next_round(*given)

rounds.plan_next_round = watched
sys.exit(main(sys.argv[1:]))
"""


def test_the_folder_is_held_while_a_round_is_planned(tmp_path: Path) -> None:
    config = write(tmp_path, league(rounds=3))
    (tmp_path / "watched.py").write_text(WATCHED)
    ended = by_hand(tmp_path, 3, "train", config, "--run-dir", "run", program=[sys.executable, "watched.py"])
    assert ended.code == 0, ended.err
    assert [word for word in ended.out.split() if word in ("held", "free")] == ["held", "held"]
    assert (tmp_path / "run" / "lock").read_text() == ""
