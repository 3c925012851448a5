"""Which rule says who has won: that of the configuration, else the one that the game declares."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from gymnasium import spaces

from arena.config import parse_config
from arena.config.fields import OutcomeRule
from arena.errors import ConfigError
from arena.plan.build import make_plan
from arena.plan.plan import MatchPlan
from arena.preflight.examine import make_game
from arena.preflight.outcomes import outcome_rule, require_rules, rule_lines


class Pair:
    """A list game of one tick for two, which declares nothing: both are paid what both have chosen."""

    def __init__(self) -> None:
        self.observation_spaces = [spaces.Discrete(1)] * 2
        self.action_spaces = [spaces.Discrete(2)] * 2

    def reset(self) -> list[int]:
        return [0, 0]

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        return [0, 0], [float(sum(actions))] * 2, True, [{}, {}]


class Opposed(Pair):
    """Declares that its returns add up to zero."""

    outcome = "zero_sum"


class Finished(Pair):
    """Uses the name for something else."""

    outcome = "over"


def match_of(make: str, outcome: OutcomeRule | None = None, **kwargs: Any) -> MatchPlan:
    game = {"make": make, "kwargs": kwargs, "outcome": outcome}
    policies = {name: {"algorithm": "random"} for name in ("a", "b")}
    data = {"ticks": 9, "envs": {"g": game}, "policies": policies, "matches": [{"env": "g", "seats": ["a", "b"]}]}
    return make_plan(parse_config(data, source="test")).matches[0]


@pytest.mark.parametrize(
    ("make", "kwargs", "rule"),
    [
        ("touchdown", {}, "zero_sum"),
        ("skirmish", {}, "info"),
        ("cover", {"players": 2}, "none"),
        ("matrix", {"game": "rock_paper_scissors"}, "zero_sum"),
        ("matrix", {"game": "stag_hunt"}, "none"),
        ("matrix", {"payoffs": [[1, -1], [-1, 1]]}, "zero_sum"),
        ("matrix", {"payoffs": [[[1, 2]]]}, None),
        ("pettingzoo:classic.rps_v2", {}, "higher_return"),
        ("pettingzoo:classic.tictactoe_v3", {}, "higher_return"),
        (f"{__name__}:Pair", {}, None),
        (f"{__name__}:Opposed", {}, "zero_sum"),
        (f"{__name__}:Finished", {}, None),
    ],
    ids=str,
)
def test_games_declare_their_rule(make: str, kwargs: dict[str, Any], rule: str | None) -> None:
    match = match_of(make, **kwargs)
    with closing(make_game(match, 1)) as game:
        assert outcome_rule(match, game.interface) == rule


def test_rule_of_the_configuration_comes_first() -> None:
    match = match_of(f"{__name__}:Opposed", "none")
    with closing(make_game(match, 1)) as game:
        assert outcome_rule(match, game.interface) == "none"


class Rivals(Pair):
    """Pays the higher choice, and declares nothing."""

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        first, second = (float(action) for action in actions)
        return [0, 0], [first, 2 * second], True, [{}, {}]


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        ("stop.policy_win_rate/a", {"stop": {"policy_win_rate/a": 0.9}}),
        ("best.metric", {"best": {"metric": "policy_win_rate/b"}}),
        ("stop.evaluation/policies/a/wins", {"stop": {"evaluation/policies/a/wins": 1}, "evaluation": {"every": 9}}),
    ],
)
def test_win_rates_need_a_rule_that_says_who_wins(place: str, keys: dict[str, Any]) -> None:
    def refused(make: str, outcome: str | None = None, **more: Any) -> str:
        policies = {name: {"algorithm": "random"} for name in ("a", "b")}
        matches = [{"env": "g", "seats": ["a", "b"]}]
        envs = {"g": {"make": f"{__name__}:{make}", "outcome": outcome}}
        data = {"ticks": 9, "checkpoint_every": 9, "envs": envs, "policies": policies, "matches": matches, **more}
        try:
            config = parse_config(data, source="test")
            require_rules(config, make_plan(config))
        except ConfigError as error:
            return f"{error.path}: {error.message}"
        return ""

    assert refused("Rivals") == refused("Opposed", **keys) == refused("Rivals", "higher_return", **keys) == ""
    assert f"but {place} needs winners: set higher_return, which fits 20 episodes" in refused("Rivals", **keys)
    assert f"but {place} needs winners: leave that out" in refused("Pair", **keys)
    assert f"envs.g.outcome: found none, but {place} needs winners" in refused("Rivals", "none", **keys)


def test_shared_rewards_suggest_none() -> None:
    policies = {name: {"algorithm": "random"} for name in ("a", "b")}
    matches = [{"env": "g", "seats": ["a", "b"]}]
    data = {"ticks": 9, "envs": {"g": {"make": f"{__name__}:Pair"}}, "policies": policies, "matches": matches}
    (line,) = rule_lines(make_plan(parse_config(data, source="test")))
    assert "`outcome: none` fits 20 episodes" in line
    alone = {**data, "matches": [{"env": "g", "seats": [["a", "a"]]}], "policies": {"a": {"algorithm": "random"}}}
    config = parse_config(alone, source="test")
    require_rules(config, make_plan(config))
    assert rule_lines(make_plan(config)) == [], "a match of one seat has no winner"
