"""Who has won an episode: by the declared rule of its game, which is that of the configuration, else of the game."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from arena.config import parse_config
from arena.config.fields import OutcomeRule
from arena.errors import ConfigError, NotZeroSum
from arena.plan.build import make_plan
from arena.plan.plan import MatchPlan
from arena.preflight.examine import make_game
from arena.preflight.outcomes import outcome_rule, require_rules, rule_lines
from arena.records.outcome import Outcome, outcomes, stated_outcome, suggested, without_winner_text
from games import Pair


def judged(
    rule: OutcomeRule | None,
    *returns: float | None,
    stated: Sequence[str | None] = (),
    entities: Sequence[int] = (),
    sides: Sequence[Sequence[int]] = (),
) -> list[Outcome | None]:
    stated, entities = stated or [None] * len(returns), entities or [1] * len(returns)
    return [*outcomes(returns, stated, entities=entities, rule=rule, sides=sides)]


GAIN = sum([0.1] * 1000)  # not 100


@pytest.mark.parametrize(
    ("returns", "entities", "expected"),
    [
        ((1, 1, -1, -1), (), ["win", "win", "loss", "loss"]),
        ((0.0, 0.0, -0.0), (), ["draw"] * 3),
        ((3, -1, -1, -1), (), ["win", "loss", "loss", "loss"]),
        ((2, -1.5, -0.5), (), None),  # three values
        ((1, 1), (), None),
        ((1, -0.9), (), None),
        ((1, 0), (), None),
        ((1, -1, -1), (2, 1, 1), ["win", "loss", "loss"]),  # the sum is over entities and not over seats
        ((2, -1), (1, 2), ["win", "loss"]),
        ((1, -1), (2, 1), None),
        ((GAIN, -100.0), (), ["win", "loss"]),  # rounding of long sums is forgiven
        ((GAIN * (1 + 1e-6), -100.0), (), None),
        *(  # float32 rewards that a team shares
            ((float(np.float32(scale)) * 100, float(np.float32(-scale / 3)) * 100), (1, 3), ["win", "loss"])
            for scale in (1e-3, 1.0, 1e4)
        ),
    ],
)
def test_zero_sum_returns_decide_and_others_are_refused(
    returns: tuple[float, ...], entities: tuple[int, ...], expected: list[Outcome] | None
) -> None:
    if expected is None:
        with pytest.raises(NotZeroSum):
            judged("zero_sum", *returns, entities=entities)
    else:
        assert judged("zero_sum", *returns, entities=entities) == expected


@pytest.mark.parametrize("rule", ["zero_sum", "higher_return"])
@pytest.mark.parametrize("returns", [(5.0,), (None, None), (math.inf, -math.inf), ()], ids=str)
def test_returns_that_show_nothing_have_no_winner(returns: tuple[float | None, ...], rule: OutcomeRule) -> None:
    assert judged(rule, *returns) == [None] * len(returns)


@pytest.mark.parametrize("rule", ["zero_sum", "higher_return"])
def test_seat_that_took_no_part_has_no_outcome_and_changes_none(rule: OutcomeRule) -> None:
    assert judged(rule, None, 2, None, -2) == [None, "win", None, "loss"]
    assert judged(rule, None, 2) == [None, None]


def test_side_that_took_no_part_is_not_beaten() -> None:
    sides = [(0, 1), (2, 3)]
    assert judged("higher_return", None, 1, 3, 0, sides=sides) == [None, "loss", "win", "win"]
    assert judged("higher_return", None, None, 3, 0, sides=sides) == [None] * 4


@pytest.mark.parametrize(
    ("rule", "stated", "expected"),
    [
        ("info", ["win", None], ["win", None]),
        ("info", [None, None], [None, None]),
        (None, ["win", "loss"], [None, None]),
        ("none", ["win", "loss"], [None, None]),
        ("zero_sum", ["loss", "win"], ["win", "loss"]),
    ],
)
def test_infos_decide_by_the_rule_info_alone(rule: OutcomeRule | None, stated: Any, expected: Any) -> None:
    assert judged(rule, 1, -1, stated=stated) == expected


@pytest.mark.parametrize("found", ["won", "Win", "", 1, True, {"win": 1}])
def test_by_the_rule_info_another_outcome_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="known: draw, loss, win, as its game has the rule info"):
        stated_outcome({"outcome": found}, "info")
    assert stated_outcome({"outcome": found}, "zero_sum") == (found if isinstance(found, str) else None)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ((4, 2), ["win", "loss"]),
        ((-4, -2), ["loss", "win"]),
        ((0.1 + 0.2, 0.3), ["draw", "draw"]),
        ((3, 1, 2), ["win", "loss", "loss"]),
        ((3, 3, 2), ["draw", "draw", "loss"]),
        ((1, 1, 1), ["draw"] * 3),
        ((math.inf, 1), [None, None]),
        ((5,), [None]),
    ],
)
def test_with_higher_return_the_best_side_wins(returns: tuple[float, ...], expected: list[Outcome | None]) -> None:
    assert judged("higher_return", *returns) == expected


def test_with_higher_return_a_side_has_the_mean_of_its_entities() -> None:
    # side 0: (1 * 6 + 3 * 0) / 4 = 1.5 against 2, though its seats have the higher mean
    found = judged("higher_return", 6, 0, 2, entities=[1, 3, 1], sides=((0, 1), (2,)))
    assert found == ["loss", "loss", "win"]


@pytest.mark.parametrize(
    ("episodes", "rule"),
    [
        ([([1, -1], [None, None]), ([0, 0], [None, None])], "zero_sum"),
        ([([1, 1], [None, None]), ([3, 3], [None, None])], "none"),
        ([([1, -1], [None, None]), ([2, 1], [None, None])], "higher_return"),
        ([([0, 0], [None, None]), ([5, 5], ["win", "loss"])], "info"),
        ([([0, 0], [None, None])], None),
        ([], None),
    ],
    ids=["opposite", "shared", "general-sum", "stated", "all-drawn", "no-episode"],
)
def test_suggested_rule_fits_the_episodes(episodes: list[tuple[list[float], list[object]]], rule: str | None) -> None:
    assert suggested(episodes, entities=[1, 1]) == rule


def test_line_on_a_game_without_winners_names_the_key() -> None:
    assert "`envs.game.outcome` is none" in without_winner_text({"game": "none"})[0]
    assert "set `outcome` of the game, or `envs.game.outcome`, to zero_sum" in without_winner_text({"game": None})[0]
    assert "no episode ended with the key `outcome` in an info" in without_winner_text({"game": "info"})[0]
    assert without_winner_text({}) == []


# Which rule says who has won: that of the configuration, else the one that the game declares


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
        ("games:Pair", {}, None),
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


class Silent(Pair):
    """Declares the rule info; its infos have no outcome but what it `says`."""

    outcome = "info"

    def __init__(self, says: str = "") -> None:
        super().__init__()
        self.says = {"outcome": says} if says else {}

    def step(self, actions: list[int]) -> tuple[list[int], list[float], bool, list[dict[str, Any]]]:
        return [0, 0], [0.0, 0.0], True, [self.says, {}]


@pytest.mark.parametrize(("says", "configured", "warned"), [("", None, 1), ("", "info", 1), ("win", None, 0)])
def test_check_warns_where_no_info_has_an_outcome(says: str, configured: str | None, warned: int) -> None:
    policies = {name: {"algorithm": "random"} for name in ("a", "b")}
    game = {"make": f"{__name__}:Silent", "kwargs": {"says": says}, "outcome": configured}
    data = {"ticks": 9, "envs": {"g": game}, "policies": policies, "matches": [{"env": "g", "seats": ["a", "b"]}]}
    lines = rule_lines(make_plan(parse_config(data, source="test")))
    text = (
        "warning: environment g: its rule is info, but at the end of 20 episodes of random actions no info had the key"
    )
    assert [line.startswith(text) for line in lines] == [True] * warned


def test_outcomes_of_a_slow_game_are_looked_for_in_fewer_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arena.preflight.outcomes._SECONDS", -1.0)
    policies = {name: {"algorithm": "random"} for name in ("a", "b")}
    game = {"make": f"{__name__}:Silent"}
    data = {"ticks": 9, "envs": {"g": game}, "policies": policies, "matches": [{"env": "g", "seats": ["a", "b"]}]}
    (line,) = rule_lines(make_plan(parse_config(data, source="test")))
    assert "at the end of 1 episode of random actions" in line


def test_shared_rewards_suggest_none() -> None:
    policies = {name: {"algorithm": "random"} for name in ("a", "b")}
    matches = [{"env": "g", "seats": ["a", "b"]}]
    data = {"ticks": 9, "envs": {"g": {"make": "games:Pair"}}, "policies": policies, "matches": matches}
    (line,) = rule_lines(make_plan(parse_config(data, source="test")))
    assert "`outcome: none` fits 20 episodes" in line
    alone = {**data, "matches": [{"env": "g", "seats": [["a", "a"]]}], "policies": {"a": {"algorithm": "random"}}}
    config = parse_config(alone, source="test")
    require_rules(config, make_plan(config))
    assert rule_lines(make_plan(config)) == [], "a match of one seat has no winner"
