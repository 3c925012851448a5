"""The output at the end of a league."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.league.read_results import read
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.report.page import page
from arena.report.read_run import read_run
from arena.report.sections import page_data
from arena.report.summary import summarize
from command import Command, Printed

Train = Callable[..., Printed]


def plays(action: int) -> dict[str, Any]:
    return {"algorithm": "scripted", "options": {"action": action}}


CONFIG: dict[str, Any] = {
    "ticks": 20,
    "envs": {"g": {"make": "matrix", "kwargs": {"payoffs": [[0, -1], [1, 0]], "rounds": 2}}},
    "policies": {"weak": plays(0), "strong": plays(1)},
    "matches": [{"env": "g", "seats": ["weak", "strong"]}],
}


@pytest.fixture
def train(tmp_path: Path, command: Command) -> Train:
    """Trains in the folder `run`."""

    def trained(data: Any, *more: str) -> Printed:
        (tmp_path / "league.yaml").write_text(yaml.safe_dump(data))
        return command("train", tmp_path / "league.yaml", "--ranks", "1", "--run-dir", tmp_path / "run", *more)

    return trained


@pytest.mark.parametrize("rounds", [1, 2])
def test_only_leagues_end_with_standings_and_their_caveats(train: Train, tmp_path: Path, rounds: int) -> None:
    run = tmp_path / "run"
    shown = train({**CONFIG, "rounds": rounds}).out.splitlines()
    rows = [words for line in shown if (words := line.split()) and words[0].isdigit()]
    prior = [line for line in shown if "a weak prior" in line]
    if rounds == 1:
        assert rows == prior == []
        return
    games = str(read(RunFolder(run)).results.games)
    assert [(row[0], row[1], row[-7], row[-6]) for row in rows if row[1] in CONFIG["policies"]] == [
        ("1", "strong", games, "100.0"),
        ("2", "weak", games, "0.0"),
    ]
    assert len(prior) == 1, "the weak one has lost all games"
    assert not [line for line in shown if line.startswith("short games count too often")]


@pytest.mark.parametrize(
    "how",
    [
        {
            "league": {"decided": {"error": 0.05, "elo": 20}},
            "matches": [{"round_robin": {"env": "g", "policies": ["weak", "strong"], "both_sides": True}}],
        },
        {"matches": [{"knockout": {"env": "g", "policies": ["weak", "strong"]}}]},
    ],
    ids=["decided", "knockout"],
)
def test_decided_league_ends_before_its_last_round(
    command: Command, train: Train, tmp_path: Path, how: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    shown = train({**CONFIG, "ticks": 100, "rounds": 9, **how}).out
    assert ("the order is decided after 1 of 9 rounds, at an error of 0.05" in shown) == ("league" in how)
    assert "the run has finished" in command("watch", run).out.splitlines()
    summary = summarize(read_run(run))
    assert summary.state == "finished"
    assert summary.rounds < 9


def test_knockout_ends_with_its_winner_and_total_ticks(command: Command, train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    players = {"weak": plays(0), "strong": plays(1), "feeble": plays(0), "poor": plays(0)}
    matches = [{"knockout": {"env": "g", "policies": ["feeble", "poor", "weak", "strong"], "copies": 2}}]
    trained = train({**CONFIG, "rounds": 2, "policies": players, "matches": matches}).out.splitlines()
    won = [line for line in trained if "has won matches[0].knockout" in line]
    assert [line.partition(" in the final")[0] for line in won] == [
        "strong has won matches[0].knockout, with 20 of 20 points"
    ]
    watched = command("watch", run).out.splitlines()
    for told in (trained, watched):
        assert any(line.startswith("120/120 ticks of all matches  100 %") for line in told), "4 x 20 and 2 x 20"
    found = page_data(read_run(run))
    assert (found.summary.match_ticks, found.summary.match_ticks_planned) == (120, 120)
    assert [(one.player, one.points, one.games) for one in found.champions] == [("strong", 20, 20)]
    assert "strong has won <code>matches[0].knockout</code>, with" in page(read_run(run))


def test_league_of_draws_reports_equal_players(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    players = {"weak": plays(1), "strong": plays(1)}
    shown = train({**CONFIG, "rounds": 2, "ticks": 300, "policies": players}).out.splitlines()
    said = "s good as each other, as nearly all of their games are drawn, or won by the same side: strong and weak"
    assert f"a{said}" in shown
    assert f"A{said}." in page(read_run(run))


def test_league_that_ends_early_is_evaluated_at_its_end(train: Train, tmp_path: Path) -> None:
    run = tmp_path / "run"
    matches = [{"knockout": {"env": "g", "policies": ["weak", "strong"]}}]
    evaluation = {"every": 60, "episodes": 1, "seats": ["weak", "strong"]}
    changes = {"matches": matches, "evaluation": evaluation, "rounds": 3, "checkpoint_every": 20}
    for again in ([], ["--resume"]):
        train({**CONFIG, **changes}, *again)
        evaluated = [(line["ticks"], line["policy"]) for line in JournalReader(RunFolder(run).evaluations)]
        assert sorted(evaluated) == [(20, "strong"), (20, "weak")]
