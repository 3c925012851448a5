"""Leagues of a user's own form, killed and resumed: the same bytes as an undisturbed league."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_exact_resume import kill_all, newest_boundary
from test_rounds_over_mpi import everything, rounds_of

from run_cli import ARENA, arena, finish, left_behind, start, wait_for, write

TICKS = 600  # of a round


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path: Path) -> Iterator[None]:
    yield
    wait_for(lambda: not left_behind(tmp_path))


def league(**keys: Any) -> dict[str, Any]:
    """Four rounds of three policies in touchdown, with two boundaries in each."""
    learner = {"algorithm": "learners:LearnerWithActor"}  # imports no torch
    return {
        "name": "league",
        "seed": 4,
        "ticks": TICKS,
        "rounds": 4,
        "checkpoint_every": TICKS // 2,
        "envs": {"game": {"make": "touchdown", "kwargs": {"max_steps": 20}}},
        "policies": {"blue": learner, "red": learner, "rock": {"algorithm": "random"}},
        **keys,
    }


def duel(first: str, second: str) -> dict[str, Any]:
    return {"env": "game", "seats": [first, second], "lanes": 2}


MEETS = {"env": "game", "policies": ["blue", "red"], "against": ["rock"], "rule": "own_leagues:Above", "copies": 2}
PAIRS = {"env": "game", "policies": ["blue", "red", "rock"], "generator": "own_leagues:Ladder", "lanes": 2}
FORMS: dict[str, dict[str, Any]] = {
    "own rule and generator": {"matches": [{"matchmaking": MEETS}, {"pairings": PAIRS}]},
    "listed rounds": {
        "rounds": [[duel("blue", "rock")], [duel("blue", "red"), duel("red", "blue")], [duel("red", "rock")]]
    },
    "proposed matches": {
        "callbacks": [{"class": "own_leagues:Proposes"}],
        "matches": [{"round_robin": {"env": "game", "policies": ["blue", "red", "rock"], "lanes": 2}}],
    },
}


TAG = {
    "make": "tag:simple_tag",
    "kwargs": {"max_cycles": 20},
    "outcome": "info",
}
HUNT = {
    "env": "game",
    "policies": ["wolf"],
    "versus": ["hare"],
    "rule": {"fictitious": {"self": 0.3}},
    "sides": [3, 1],
    "lanes": 2,
    "copies": 3,
}
FORMS["predators and prey"] = {
    "envs": {"game": TAG},
    "policies": {
        name: {"algorithm": "ppo", "options": {"n_steps": 50, "minibatch_size": 50, "hidden_sizes": [8]}}
        for name in ("wolf", "hare")
    },
    "matches": [{"matchmaking": HUNT}],
    "league": {"snapshots": {"gate": {"elo": 400}}},
    "rounds": 3,
}


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name in ("listed rounds", "predators and prey")))
        for name in FORMS
    ],
)
def test_killed_and_resumed_league_equals_an_undisturbed_one(form: str, tmp_path: Path) -> None:
    config = write(tmp_path, league(**FORMS[form]))
    ended = arena(tmp_path, "train", config, "--run-dir", "whole", "--ranks", "1")
    assert ended.code == 0, ended.err
    run = tmp_path / "run"
    for reached, resume in ((TICKS, []), (TICKS + TICKS // 2, ["--resume"])):  # a round's end, the middle of one
        process = start([*ARENA, "train", config, "--run-dir", "run", "--ranks", "2", *resume], tmp_path)
        wait_for(lambda reached=reached: newest_boundary(run) >= reached)
        assert process.poll() is None, "it is still playing"
        assert kill_all(tmp_path) >= 3
        assert finish(process).code != 0
    ended = arena(tmp_path, "train", config, "--run-dir", "run", "--ranks", "2", "--resume")
    assert ended.code == 0, ended.err
    assert len(rounds_of(run)) == (4 if form in ("own rule and generator", "proposed matches") else 3)
    assert everything(run) == everything(tmp_path / "whole")
