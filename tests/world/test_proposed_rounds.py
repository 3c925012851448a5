"""Rounds whose matches a callback has proposed: checked, recorded, and played as they are on record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from arena.callbacks import Callback
from arena.league import rounds_file
from arena.records.boundary import discard_after
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.roles.protocol import Failed
from in_process import one_match, train

TICKS = 20  # of a round
GAME = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors", "rounds": 4}}


class Alternates(Callback):
    """Answers differently each time, as no callback should."""

    calls = 0

    def on_next_round(self, league: Any) -> Any:
        Alternates.calls += 1
        first, *_, last = league.policies
        names = [first, last] if Alternates.calls % 2 else [last, first]
        return [{"env": "game", "seats": names, "lanes": 1 + Alternates.calls}]


class Fails(Callback):
    def on_next_round(self, league: Any) -> Any:
        raise RuntimeError("no idea whom to seat")


def league(callback: Any) -> dict[str, Any]:
    policies = {name: {"algorithm": "learners:LearnerWithActor"} for name in ("one", "two", "three")}
    matches = [{"round_robin": {"env": "game", "policies": ["one", "two", "three"], "lanes": 2}}]
    given = {"seed": 3, "rounds": 3, "checkpoint_every": TICKS, "callbacks": [callback], "matches": matches}
    return one_match(GAME, policies, ticks=TICKS, **given)


def play(data: dict[str, Any], path: Path, **given: Any) -> tuple[RunFolder, str]:
    """The folder, and what was said of a failure."""
    failures: list[Failed] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("arena.run.console.write_failure", failures.append)
        folder = train(data, path, **given)
    return folder, "\n".join(f"{failure.who}: {failure.message}" for failure in failures)


def test_callback_proposes_the_matches_of_later_rounds(tmp_path: Path) -> None:
    data = league("own_leagues:Proposes")
    folder, _ = play(data, tmp_path / "run")
    first, *later = rounds_file.read(folder)
    assert (len(first.matches), first.proposed_by) == (3, "")
    for made in later:
        (match,) = made.matches
        assert len(match.names) == 2
        assert made.proposed_by == "callback own_leagues:Proposes"
        played = {line["match"] for line in JournalReader(folder.episodes) if line["round"] == made.number}
        assert played == {0}


def test_resumed_run_plays_the_proposal_on_record(tmp_path: Path) -> None:
    Alternates.calls = 0
    data = league("test_proposed_rounds:Alternates")
    folder, _ = play(data, tmp_path / "run")
    known, episodes = rounds_file.read(folder), folder.episodes.read_bytes()
    discard_after(folder, TICKS)  # a kill in round 1, which was on record already
    calls = Alternates.calls
    play(data, folder.path, resume=True)
    assert rounds_file.read(folder)[1] == known[1], "the round on record, though the callback has another answer now"
    assert Alternates.calls == calls + 1, "asked for round 2 alone"
    first = b"".join(line for line in episodes.splitlines(keepends=True) if b'"round":1' in line)
    assert first in folder.episodes.read_bytes()


@pytest.mark.parametrize(
    ("matches", "words"),
    [
        ([], r"on_next_round\(\): is empty"),
        ([{"env": "game", "seats": ["one", "four"]}], r"on_next_round\(\)\[0\]\.seats\[1\]: unknown policy 'four'"),
        ([{"env": "game", "seat": ["one", "two"]}], r"on_next_round\(\)\[0\]\.seat: unknown key 'seat'"),
        ([{"swiss": {"env": "game", "policies": ["one", "two"]}}], "depends on results, and cannot be proposed"),
        ("one", "expected a list"),
    ],
)
def test_wrong_proposal_ends_the_run_with_its_place(matches: Any, words: str, tmp_path: Path) -> None:
    data = league({"class": "own_leagues:Proposes", "options": {"matches": matches}})
    folder, said = play(data, tmp_path / "run", code=2)
    assert re.search(words, said), said
    assert len(rounds_file.read(folder)) == 1, "the round before it is saved, and no other one is on record"


def test_callback_that_raises_ends_the_run(tmp_path: Path) -> None:
    _, said = play(league("test_proposed_rounds:Fails"), tmp_path / "run", code=1)
    assert "no idea whom to seat" in said
