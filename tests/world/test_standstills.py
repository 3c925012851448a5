"""A league is refused before anybody trains if a later round can deadlock; `arena plan` and `check` tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main

FREE, TIMED, STAYS = "leagues:KeptAtEpisodes", "leagues:KeptAtTicks", "random"


def league(game: Any, *matches: Any, **algorithms: str) -> dict[str, Any]:
    policies = {name: {"algorithm": algorithm} for name, algorithm in algorithms.items()}
    common = {"ticks": 20, "rounds": 3, "envs": {"game": game}}
    return {"name": "league", **common, "policies": policies, "matches": [*matches]}


AT_ONCE = {"make": "games:Dropout", "kwargs": {"lengths": [5, 5]}, "outcome": "higher_return"}
TEAMS = {"make": "touchdown", "kwargs": {"team_size": 2, "max_steps": 8}}

AGAIN = league(
    AT_ONCE,
    {"env": "game", "seats": ["red", "blue"]},
    {"swiss": {"env": "game", "policies": ["red", "green", "blue", "grey"]}},
    **{"red": FREE, "blue": TIMED, "green": STAYS, "grey": STAYS},
)
NEWCOMER = league(
    TEAMS,
    {"knockout": {"env": "game", "policies": ["red", "blue", "grey"], "team_size": 2}},
    **{"red": FREE, "blue": STAYS, "grey": STAYS},
)


def run(command: str, data: dict[str, Any], *more: str) -> int:
    Path("league.yaml").write_text(yaml.safe_dump(data))
    return main([command, "league.yaml", *(["--ranks", "1"] if command == "train" else []), *more])


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("data", "place", "meetings"),
    [
        (AGAIN, "matches[1].swiss", ["'red' and 'blue', by matches[0]", "'blue' and 'red', by matches[1].swiss"]),
        (NEWCOMER, "matches[0].knockout", ["two workers of 'red' in a match, by matches[0].knockout"]),
    ],
    ids=["two who meet already", "who rests in the first round"],
)
def test_what_only_a_later_round_can_bring_is_told_and_refused_with_who_meets_whom(
    data: dict[str, Any], place: str, meetings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    why = "a later round can deadlock: the workers of red may meet"
    for command in ("plan", "check"):
        assert run(command, data) == 0
        out = capsys.readouterr().out
        assert f"schedule: {why}" in out
        assert all(f"  {line}" in out.splitlines() for line in (f"  {meeting}" for meeting in meetings))
        assert ("--allow-unproved `arena train` refuses it" in out) == (command == "plan")
    assert run("train", data) == 2
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith(f"arena: error: league.yaml: {place}: {why}")
    assert others[:-1] == [f"  {line}" for line in meetings]
    assert others[-1].startswith("What helps: `schedule = 'ticks'`")
    assert not list(Path("runs").glob("*")), "nothing is left of it"


def test_the_same_league_is_played_where_its_workers_meet_at_ticks_or_the_user_allows_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    timed = {**AGAIN, "policies": {**AGAIN["policies"], "red": {"algorithm": TIMED}}}
    assert [run(command, timed) for command in ("plan", "check", "train")] == [0, 0, 0]
    assert "a later round" not in capsys.readouterr().out
    assert run("train", AGAIN, "--allow-unproved") == 0


def test_a_first_round_that_can_deadlock_is_shown_with_its_plan(capsys: pytest.CaptureFixture[str]) -> None:
    data = {**AGAIN, "matches": [*AGAIN["matches"], AGAIN["matches"][0]]}
    assert [run(command, data) for command in ("plan", "check")] == [0, 0]
    assert capsys.readouterr().out.count("schedule: can deadlock") == 2
    assert run("train", data) == 2
    assert "the run can deadlock" in capsys.readouterr().err
