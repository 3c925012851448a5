"""Tournaments and exploitations on several processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from arena.cli.main import main
from run_cli import ARENA, alone, arena, episodes, finish, kill_all, newest_boundary, start, wait_for, write

ROCK = {"algorithm": "scripted", "options": {"action": 0}}
CONFIG = {
    "ticks": 20,
    "envs": {"g": {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 2}}},
    "policies": {"one": {"algorithm": "random"}, "other": {"algorithm": "random"}, "rock": ROCK},
    "matches": [{"env": "g", "seats": ["rock", "one"], "lanes": 4}],
}


def test_a_tournament_is_the_same_on_any_number_of_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(tmp_path / write(tmp_path, CONFIG))
    words = ["tournament", config, "--episodes", "200", "--json", "--run-dir"]
    assert main([*words, str(tmp_path / "run-1"), "--ranks", "1"]) == 0
    one = json.loads(capsys.readouterr().out)
    ended = arena(tmp_path, *words, "run-3", "--ranks", "3")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out) | {"run_dir": None} == one | {"run_dir": None}
    assert one["games"] == 192  # whole meetings of eight lanes on both sides
    assert episodes(tmp_path / "run-1") == episodes(tmp_path / "run-3")
    assert len((tmp_path / "run-3" / "rounds.jsonl").read_text().splitlines()) > 2


def test_killed_and_resumed_tournament_is_bit_equal(tmp_path: Path) -> None:
    budget = ["tournament", str(tmp_path / write(tmp_path, CONFIG)), "--episodes", "2000", "--elo", "0.1"]
    process = start([*ARENA, *budget, "--ranks", "3", "--run-dir", "broken"], tmp_path)
    wait_for(lambda: newest_boundary(tmp_path / "broken") > 0)
    assert process.poll() is None, "it is still playing"
    assert kill_all(tmp_path) >= 4
    assert finish(process).code != 0
    assert main([*budget, "--ranks", "1", "--run-dir", str(tmp_path / "broken"), "--resume"]) == 0
    assert main([*budget, "--ranks", "1", "--run-dir", str(tmp_path / "whole")]) == 0
    for name in ("episodes.jsonl", "rounds.jsonl"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_responder_learns_on_several_processes(tmp_path: Path) -> None:
    alone(tmp_path, CONFIG, run="run")
    steps = ["--ticks", "64", "--set", "options.n_steps=16", "--episodes", "40"]
    ended = arena(tmp_path, "exploit", "run:rock", "--ranks", "2", "--json", "--run-dir", "x", *steps)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["games"], found["zero_sum"]) == (40, True)
