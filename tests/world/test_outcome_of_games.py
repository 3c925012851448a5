"""Winners in general-sum games: every command obeys `outcome`, and explains why a game is not rated."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from arena.config import parse_config
from arena.errors import ConfigError
from arena.league.read_results import read
from arena.records.folder import RunFolder
from arena.report.page import page
from arena.report.read_run import read_run
from arena.report.sections import page_data
from command import Command, Printed

Train = Callable[..., Printed]
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


@pytest.fixture
def train(tmp_path: Path, command: Command) -> Train:
    """Trains in the folder `run` and returns what it prints."""

    def trained(outcome: str | None, *more: str, code: int = 0, **keys: Any) -> Printed:
        path = tmp_path / "league.yaml"
        path.write_text(yaml.safe_dump(config(outcome, **keys)))
        return command("train", path, "--ranks", "1", "--run-dir", tmp_path / "run", *more, code=code)

    return trained


def table(text: str) -> list[str]:
    rows = [line.split() for line in text.splitlines()]
    return [row[1] for row in rows if len(row) > 2 and row[0].isdigit() and row[1] in FORAGERS]


def test_the_higher_return_ranks_players_of_a_general_sum_game(train: Train, tmp_path: Path) -> None:
    assert table(train("higher_return").out) == ["forager", "chance", "idler"]
    found = page_data(read_run(tmp_path / "run"))
    assert found.standings is not None
    assert [row.player for row in found.standings.tables[0]] == ["forager", "chance", "idler"]
    assert found.without_winner == []


def test_league_without_a_rule_is_refused_with_the_one_that_fits(train: Train, tmp_path: Path) -> None:
    said = train(None, code=2).err
    assert "envs.forage.outcome: found null, and the game does not say who has won" in said
    assert "set higher_return, which fits 20 episodes of random actions" in said
    assert not (tmp_path / "run").exists()


def test_run_without_a_rule_has_returns_and_no_winners(train: Train, tmp_path: Path) -> None:
    out = train(None, rounds=1).out
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


def test_check_suggests_the_rule_that_fits(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    for outcome, suggested in ((None, True), ("none", False)):
        path.write_text(yaml.safe_dump(config(outcome, rounds=1)))
        assert ("`outcome: higher_return` fits 20 episodes" in command("check", path).out) == suggested


def test_rule_zero_sum_ends_the_run_on_a_violation(train: Train) -> None:
    said = train("zero_sum", code=1).err
    assert "round 0, match 0, lane 0, episode 0 has the returns 4 and " in said
    assert "`envs.forage.outcome` is zero_sum" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"matches": [{"knockout": {"env": "forage", "policies": [*FORAGERS]}}]}, r"matches\[0\].knockout"),
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
    ids=["knockout", "decided", "gate"],
)
def test_features_with_winners_are_refused_without_winners(keys: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError, match=rf"envs.forage.outcome: found none, but {path} needs? winners"):
        parse_config(config("none", **keys), source="x.yaml")
    parse_config(config("higher_return", **keys), source="x.yaml")


def test_league_that_needs_winners_is_refused_in_a_game_that_declares_none(train: Train) -> None:
    matches = [{"knockout": {"env": "forage", "policies": [*FORAGERS]}}]
    envs = {"forage": {"make": "matrix", "kwargs": {"game": "prisoners_dilemma"}}}
    said = train(None, matches=matches, envs=envs, code=2).err
    assert "declares none, but matches[0].knockout needs winners" in said


def test_game_that_declares_zero_sum_is_held_to_it(train: Train) -> None:
    envs = {"line": {"make": f"{__name__}:Claimed"}}
    said = train(None, envs=envs, matches=[{"env": "line", "seats": [*FORAGERS]}], code=1).err
    assert "round 0, match 0, lane 0, episode 0 has the returns 1, " in said
    assert "Claimed' declares zero_sum" in said


def test_pettingzoo_games_rate_by_their_declared_rule(train: Train, tmp_path: Path) -> None:
    policies: dict[str, Any] = {
        "rock": {"algorithm": "scripted", "options": {"action": 0}},
        "paper": {"algorithm": "scripted", "options": {"action": 1}},
        "chance": {"algorithm": "random"},
    }
    robin = [{"round_robin": {"env": "g", "policies": ["rock", "paper"], "both_sides": True}}]
    envs = {"g": {"make": "pettingzoo:classic.rps_v2", "kwargs": {"max_cycles": 5}}}
    rows = [line.split() for line in train(None, envs=envs, policies=policies, matches=robin).out.splitlines()]
    assert [row[1] for row in rows if row and row[0] in ("1", "2")] == ["paper", "rock"]
    duel = [{"env": "g", "seats": ["chance", "other"]}]
    policies = {name: {"algorithm": "random"} for name in ("chance", "other")}
    envs = {"g": {"make": "pettingzoo:classic.connect_four_v3"}}
    shutil.rmtree(tmp_path / "run")
    train(None, envs=envs, policies=policies, matches=duel, ticks=100)
    found = read(RunFolder(tmp_path / "run"))
    assert found.results.games == found.episodes - found.aborted > 0


def test_three_sides_are_ranked_and_each_two_of_them_have_met(train: Train, tmp_path: Path) -> None:
    envs = {"line": {"make": f"{__name__}:Line", "outcome": "higher_return"}}
    seats = ["forager", "chance", "idler"]
    train(None, envs=envs, matches=[{"env": "line", "seats": seats}])
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


class Untold(Line):
    """The same; says that its infos say who has won."""

    outcome = "info"


class Both(Untold):
    """The same for two, who both win."""

    def __init__(self) -> None:
        super().__init__()
        del self.observation_spaces[2:], self.action_spaces[2:]

    def reset(self) -> list[int]:
        return [0] * 2

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        return [0] * 2, [0.0] * 2, True, [{"outcome": "win"}] * 2


def test_missing_outcomes_are_named_after_the_first_round_and_at_the_end(train: Train) -> None:
    envs = {"forage": {"make": f"{__name__}:Untold"}}
    text = "no winners in 'forage', so its games are not rated: its rule is info, but no episode ended with the key"
    policies = {name: FORAGERS[name] for name in ("chance", "idler")}
    matches = [{"env": "forage", "seats": ["chance", "idler", "chance"]}]
    lines = train(None, rounds=3, envs=envs, policies=policies, matches=matches).out.splitlines()
    told = [place for place, line in enumerate(lines) if line.startswith(text)]
    second = [place for place, line in enumerate(lines) if line.startswith("round 1 of")]
    assert [told[0] + 1, told[1]] == [*second, len(lines) - 1]


def test_run_whose_infos_lack_outcomes_says_so_at_its_end(train: Train, tmp_path: Path) -> None:
    envs = {"forage": {"make": f"{__name__}:Untold"}}
    policies = {name: FORAGERS[name] for name in ("chance", "idler")}
    matches = [{"env": "forage", "seats": ["chance", "idler", "chance"]}]
    *_, last = train(None, rounds=1, envs=envs, policies=policies, matches=matches).out.splitlines()
    assert "its rule is info" in last
    assert [last] == [*read(RunFolder(tmp_path / "run")).without_winner]


def test_run_in_which_both_sides_always_win_says_so_at_its_end(train: Train) -> None:
    envs = {"forage": {"make": f"{__name__}:Both"}}
    policies = {name: FORAGERS[name] for name in ("chance", "idler")}
    matches = [{"env": "forage", "seats": ["chance", "idler"]}]
    said = train(None, rounds=1, envs=envs, policies=policies, matches=matches).out
    assert re.match(r"not rated: \d+ games of 'forage' in which both sides won", said.splitlines()[-1])
    assert "no winners" not in said


def test_tournament_without_winners_names_the_reason(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "league.yaml"
    rule = ["--set", "envs.forage.outcome=higher_return"]  # the remedy for runs of before games had rules
    for outcome, given, status in ((None, [], 2), ("none", [], 2), (None, rule, 0)):
        path.write_text(yaml.safe_dump(config(outcome)))
        target = ["--run-dir", str(tmp_path / f"tournament-{outcome}-{status}")]
        said = command("tournament", path, "--sample", "--episodes", "100", "--json", *target, *given, code=status)
        if status:
            assert "envs.forage.outcome: " in said.err
            assert (" ".join(rule) in said.err) == (outcome is None)
        else:
            found = json.loads(said.out)
            assert [row["player"] for row in found["players"]] == ["forager", "chance", "idler"]
            assert found["without_winner"] == []


def test_resumed_run_may_set_the_rule_for_later_games(train: Train, tmp_path: Path) -> None:
    train(None, rounds=1, ticks=20)
    before = read(RunFolder(tmp_path / "run")).episodes
    said = train("higher_return", "--resume", rounds=1, ticks=40).out
    assert 'envs.forage.outcome was null, is "higher_return"' in said
    found = read(RunFolder(tmp_path / "run"))
    assert (found.unrated, found.results.games) == (before, found.episodes - before)
