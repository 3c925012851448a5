"""Winners in general-sum games: every command obeys `outcome`, and explains why a game is not rated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.cli.main import main
from arena.config import parse_config
from arena.errors import ConfigError
from arena.league.read_results import read
from arena.records.folder import RunFolder
from arena.report.page import page
from arena.report.read_run import read_run
from arena.report.sections import page_data

PAYOFFS = [[[0, 0], [0, 1]], [[1, 0], [1, 1]]]  # a tick of foraging is worth 1, whatever the other one does
FORAGERS: dict[str, Any] = {
    "forager": {"algorithm": "scripted", "options": {"action": 1}},
    "chance": {"algorithm": "random"},
    "idler": {"algorithm": "scripted", "options": {"action": 0}},
}
KEY = "`envs.forage.outcome`"


def config(outcome: str | None, **keys: Any) -> dict[str, Any]:
    game = {"make": "matrix", "kwargs": {"payoffs": PAYOFFS, "rounds": 4}, "outcome": outcome}
    robin = {"env": "forage", "policies": [*FORAGERS], "lanes": 2, "both_sides": True}
    usual = {"ticks": 40, "rounds": 2, "envs": {"forage": game}, "matches": [{"round_robin": robin}]}
    return {**usual, "policies": FORAGERS, **keys}


def train(tmp_path: Path, outcome: str | None, *more: str, **keys: Any) -> int:
    path = tmp_path / "league.yaml"
    path.write_text(yaml.safe_dump(config(outcome, **keys)))
    return main(["train", str(path), "--ranks", "1", "--run-dir", str(tmp_path / "run"), *more])


def table(text: str) -> list[str]:
    rows = [line.split() for line in text.splitlines()]
    return [row[1] for row in rows if len(row) > 2 and row[0].isdigit() and row[1] in FORAGERS]


def test_the_higher_return_ranks_players_of_a_general_sum_game(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, "higher_return") == 0
    assert table(capsys.readouterr().out) == ["forager", "chance", "idler"]
    found = page_data(read_run(tmp_path / "run"))
    assert found.standings is not None
    assert [row.player for row in found.standings.rows] == ["forager", "chance", "idler"]
    assert found.without_winner == []


def test_league_without_a_rule_is_refused_with_the_one_that_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, None) == 2
    said = capsys.readouterr().err
    assert "envs.forage.outcome: found null, and the game does not say who has won" in said
    assert "set higher_return, which fits 20 episodes of random actions" in said
    assert not (tmp_path / "run").exists()


def test_run_without_a_rule_has_returns_and_no_winners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, None, rounds=1) == 0
    out = capsys.readouterr().out
    assert not [line for line in out.splitlines() if "won " in line]
    reading = read(RunFolder(tmp_path / "run"))
    assert (reading.results.games, reading.unrated) == (0, reading.episodes)
    assert [KEY in reason for reason in reading.without_winner] == [True]
    found = page_data(read_run(tmp_path / "run"))
    assert found.standings is None
    assert [row.wins for row in found.policies] == [None] * 3
    assert found.learning.won == {}
    assert found.without_winner == [*reading.without_winner]
    assert "Not rated: no winners in" in page(read_run(tmp_path / "run"))


def test_check_suggests_the_rule_that_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yaml"
    for outcome, suggested in ((None, True), ("none", False)):
        path.write_text(yaml.safe_dump(config(outcome, rounds=1)))
        assert main(["check", str(path)]) == 0
        assert ("`outcome: higher_return` fits 20 episodes" in capsys.readouterr().out) == suggested


def test_rule_none_records_no_winners(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "none") == 0
    out = capsys.readouterr().out
    assert table(out) == []
    assert f"no winners in 'forage': {KEY} is none" in out


def test_rule_zero_sum_ends_the_run_on_a_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "zero_sum") == 1
    said = capsys.readouterr().err
    assert "round 0, match 0, lane 0, episode 0 has the returns 4 and " in said
    assert "`envs.forage.outcome` is zero_sum" in said
    assert "Traceback" not in said


def test_an_unknown_rule_is_refused_with_the_ones_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"outcome: found 'higher'.*higher_return, info, none, zero_sum"):
        parse_config(config("higher"), source="x.yaml")


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"matches": [{"knockout": {"env": "forage", "policies": [*FORAGERS]}}]}, r"matches\[0\].knockout"),
        ({"matches": [{"swiss": {"env": "forage", "policies": [*FORAGERS]}}]}, r"matches\[0\].swiss"),
        ({"league": {"decided": {}}}, "league.decided"),
        (
            {
                "policies": {**FORAGERS, "learner": {"algorithm": "ppo"}},
                "matches": [
                    {
                        "matchmaking": {
                            "env": "forage",
                            "policies": ["learner"],
                            "against": ["chance"],
                            "rule": "fictitious",
                            "copies": 2,
                        }
                    }
                ],
                "league": {"snapshots": {"gate": {"elo": 400}}},
                "rounds": 9,
            },
            r"matches\[0\].matchmaking and league.snapshots.gate",
        ),
    ],
    ids=["knockout", "swiss", "decided", "gate"],
)
def test_features_with_winners_are_refused_without_winners(keys: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError, match=rf"envs.forage.outcome: found none, but {path} needs? winners"):
        parse_config(config("none", **keys), source="x.yaml")
    parse_config(config("higher_return", **keys), source="x.yaml")


def test_league_that_needs_winners_is_refused_in_a_game_that_declares_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matches = [{"knockout": {"env": "forage", "policies": [*FORAGERS]}}]
    envs = {"forage": {"make": "matrix", "kwargs": {"game": "prisoners_dilemma"}}}
    assert train(tmp_path, None, matches=matches, envs=envs) == 2
    assert "declares none, but matches[0].knockout needs winners" in capsys.readouterr().err


def test_game_that_declares_zero_sum_is_held_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    envs = {"line": {"make": f"{__name__}:Claimed"}}
    assert train(tmp_path, None, envs=envs, matches=[{"env": "line", "seats": [*FORAGERS]}]) == 1
    said = capsys.readouterr().err
    assert "round 0, match 0, lane 0, episode 0 has the returns 1, " in said
    assert "Claimed' declares zero_sum" in said


def test_pettingzoo_games_rate_by_their_declared_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies: dict[str, Any] = {
        "rock": {"algorithm": "scripted", "options": {"action": 0}},
        "paper": {"algorithm": "scripted", "options": {"action": 1}},
        "chance": {"algorithm": "random"},
    }
    robin = [{"round_robin": {"env": "g", "policies": ["rock", "paper"], "both_sides": True}}]
    envs = {"g": {"make": "pettingzoo:classic.rps_v2", "kwargs": {"max_cycles": 5}}}
    assert train(tmp_path, None, envs=envs, policies=policies, matches=robin) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows if row and row[0] in ("1", "2")] == ["paper", "rock"]
    duel = [{"env": "g", "seats": ["chance", "other"]}]
    policies = {name: {"algorithm": "random"} for name in ("chance", "other")}
    envs = {"g": {"make": "pettingzoo:classic.connect_four_v3"}}
    again = tmp_path / "connect_four"
    again.mkdir()
    assert train(again, None, envs=envs, policies=policies, matches=duel, ticks=100) == 0
    found = read(RunFolder(again / "run"))
    assert found.results.games == found.episodes - found.aborted > 0


def test_three_sides_are_ranked_and_each_two_of_them_have_met(tmp_path: Path) -> None:
    envs = {"line": {"make": f"{__name__}:Line", "outcome": "higher_return"}}
    seats = ["forager", "chance", "idler"]
    assert train(tmp_path, None, envs=envs, matches=[{"env": "line", "seats": seats}]) == 0
    reading = read(RunFolder(tmp_path / "run"))
    assert reading.episodes == 80
    assert reading.results.games == 3 * 80
    assert reading.results.between("forager", "idler").wins == 80
    chance = reading.results.between("forager", "chance")
    assert chance.losses == 0
    assert chance.wins > 0 < chance.draws


class Line:
    """A game of one tick for three; each is paid for its own action alone."""

    def __init__(self) -> None:
        from gymnasium import spaces

        self.observation_spaces = [spaces.Discrete(1)] * 3
        self.action_spaces = [spaces.Discrete(2)] * 3

    def reset(self) -> list[int]:
        return [0] * 3

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        return [0] * 3, [float(action) for action in actions], True, [{}] * 3


class Claimed(Line):
    """The same; says that it is zero-sum."""

    outcome = "zero_sum"


def test_tournament_without_winners_names_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "league.yaml"
    rule = ["--set", "envs.forage.outcome=higher_return"]  # the remedy for runs of before games had rules
    for outcome, given, status in ((None, [], 2), ("none", [], 2), (None, rule, 0)):
        path.write_text(yaml.safe_dump(config(outcome)))
        target = ["--run-dir", str(tmp_path / f"tournament-{outcome}-{status}")]
        assert main(["tournament", str(path), "--sample", "--episodes", "300", "--json", *target, *given]) == status
        said = capsys.readouterr()
        if status:
            assert "envs.forage.outcome: " in said.err
            assert (" ".join(rule) in said.err) == (outcome is None)
        else:
            found = json.loads(said.out)
            assert [row["player"] for row in found["players"]] == ["forager", "chance", "idler"]
            assert found["without_winner"] == []


def test_resumed_run_may_set_the_rule_for_later_games(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, None, rounds=1, ticks=20) == 0
    before = read(RunFolder(tmp_path / "run")).episodes
    capsys.readouterr()
    assert train(tmp_path, "higher_return", "--resume", rounds=1, ticks=40) == 0
    assert 'envs.forage.outcome was null, is "higher_return"' in capsys.readouterr().out
    found = read(RunFolder(tmp_path / "run"))
    assert (found.unrated, found.results.games) == (before, found.episodes - before)
