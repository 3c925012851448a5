"""What a league has in mind from round to round, and what a kill or `--resume` finds of it in the run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.errors import Unwritable
from arena.launch import hosting
from arena.launch.prepare import begin, prepare
from arena.records import rounds as records
from arena.records.boundary import discard_after
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.run import Run
from arena.screen.display import silent_display

TICKS = 20  # of a round
LEARNER = {"algorithm": "learners:MeetsItself"}


def prepared(data: dict[str, Any], path: Path, *, resume: bool = False) -> Run:
    """Rounds in which episodes have 4 ticks."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 4}}
    common = {"name": "league", "seed": 3, "ticks": TICKS, "rounds": 3, "checkpoint_every": TICKS}
    config = parse_config({**common, "envs": {"game": game}, **data}, source="test")
    return prepare(config, ranks=1, run_dir=str(path), resume=resume)


def play(data: dict[str, Any], path: Path, *, resume: bool = False, **changes: Any) -> RunFolder:
    """Plays all rounds in this process; `changes` are fields of the `Run`."""
    run = replace(prepared(data, path, resume=resume), **changes)
    assert hosting.alone(run, lambda run, scoreboard: None, silent_display()) == 0
    return run.folder


def past_selves() -> dict[str, Any]:
    """Two learners that meet nobody but their past selves."""
    rule = {"past_selves": {"self": 0.0}}
    meets = {"matchmaking": {"env": "game", "policies": ["one", "two"], "rule": rule, "lanes": 2}}
    return {"policies": {"one": LEARNER, "two": LEARNER}, "matches": [meets]}


def test_the_profile_of_a_league_knows_the_roles_of_all_rounds(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    knockout = {"knockout": {"env": "game", "policies": names}}
    data = {"policies": dict.fromkeys(names, LEARNER), "matches": [knockout], "rounds": 2}
    folder = play(data, tmp_path / "run", profile=True)
    roles = folder.read_profile()["roles"]
    assert {(role["match"], role["policy"]) for role in roles if role["policy"]} == {
        (match["match"], seat["policy"])
        for line in JournalReader(folder.rounds)
        for match in line["matches"]
        for seat in match["seats"]
    }
    assert [role["role"] for role in roles[:2]] == ["root", "environment"]


def test_a_fork_is_evaluated_and_rehearsed_with_the_options_that_it_has_taken_over(tmp_path: Path) -> None:
    sizes = {"one": [8], "two": [4]}
    policies = {
        name: {"algorithm": "ppo", "options": {"n_steps": 8, "minibatch_size": 8, "hidden_sizes": size}}
        for name, size in sizes.items()
    }
    data = {
        "policies": policies,
        "matches": [{"env": "game", "seats": ["one", "two"], "lanes": 2}],
        "league": {"evolution": {"share": 0.5}},
        "evaluation": {"every": TICKS, "episodes": 1, "seats": ["two", "one"]},
    }
    folder = play(data, tmp_path / "run")
    assert records.read(folder)[1].forks
    discard_after(folder, 2 * TICKS)
    play(data, folder.path, resume=True)
    assert [line["ticks"] for line in JournalReader(folder.evaluations)] == [20, 20, 40, 40, 60, 60]


def test_who_has_not_played_since_has_no_newer_past_self(tmp_path: Path) -> None:
    rule = {"fictitious": {"self": 1.0}}
    meets = {"matchmaking": {"env": "game", "policies": ["one"], "against": ["two"], "rule": rule}}
    data = {"policies": {"one": LEARNER, "two": LEARNER}, "matches": [meets]}
    folder = play(data, tmp_path / "run")
    assert [line["snapshots"] for line in JournalReader(folder.rounds)] == [[], ["one@20"], ["one@40"]]


def test_a_round_that_is_played_on_has_the_matches_that_it_began_with(tmp_path: Path) -> None:
    data = past_selves()
    folder = play(data, tmp_path / "run")
    discard_after(folder, 2 * TICKS)
    run = prepared(data, folder.path, resume=True)
    assert run.words == (), "who meets whom is not what it was in the first round, but nobody has changed that"
    assert [seat.policy for match in run.plan.matches for seat in match.seats] == ["one", "one@20", "two", "two@20"]


def test_a_league_that_goes_on_knows_no_rounds_that_are_to_come(tmp_path: Path) -> None:
    data = past_selves()
    folder = play(data, tmp_path / "run")
    lines = folder.rounds.read_bytes().splitlines()
    discard_after(folder, 2 * TICKS)
    begin(prepared(data, folder.path, resume=True), resumable=True)
    assert folder.rounds.read_bytes().splitlines() == lines[:2]
    assert not folder.snapshot_path("one", 2 * TICKS).exists()


def test_a_league_that_was_killed_before_it_had_begun_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Unwritable("as by a kill, which leaves what is there")

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_config", killed)
        with pytest.raises(Unwritable):
            begin(prepared(past_selves(), tmp_path / "run"), resumable=True)
    folder = play(past_selves(), tmp_path / "run")
    assert [planned.number for planned in records.read(folder)] == [0, 1, 2]
