"""Rules and generators of a user's own, listed rounds, and matches that a callback proposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from arena.config import Config, parse_config, resolved_yaml, yaml
from arena.errors import ConfigError
from arena.league import LeagueView
from arena.league.custom import check_custom
from arena.league.next_round import first_round, next_round
from arena.preflight.later_seats import later_plans
from arena.testing import ContractBroken, check_pairings, check_rule
from own_leagues import Above, Ladder
from simulated_leagues import entry, league, played, timeline

HERE = "test_league_custom"


class Stateful:
    calls = 0

    def opponents(self, learner: str, league: LeagueView, count: int, rng: np.random.Generator) -> Sequence[str]:
        Stateful.calls += 1
        return [league.players[Stateful.calls % 2]] * count


class GlobalRandom:
    def opponents(self, learner: str, league: LeagueView, count: int, rng: np.random.Generator) -> Sequence[str]:
        np.random.rand()
        return [learner] * count


class Changing:
    def pairings(self, league: LeagueView, rng: np.random.Generator) -> Sequence[tuple[str, str]]:
        league.results.add(("a",), ("b",), "win")
        return [("a", "b")]


class Answers:
    """Returns what its option says."""

    def __init__(self, *, answer: Any = None) -> None:
        self.answer = answer

    def opponents(self, learner: str, league: LeagueView, count: int, rng: np.random.Generator) -> Any:
        return self.answer

    def pairings(self, league: LeagueView, rng: np.random.Generator) -> Any:
        return self.answer


class Failing:
    def opponents(self, learner: str, league: LeagueView, count: int, rng: np.random.Generator) -> Sequence[str]:
        raise KeyError("what I looked for")


class WrongSignature:
    def opponents(self, learner: str) -> Sequence[str]:
        return [learner]


def own_rule(rule: Any = "own_leagues:Above", **more: Any) -> dict[str, Any]:
    return entry("matchmaking", policies=["a", "b", "c", "d"], rule=rule, copies=2, both_sides=True, **more)


def own_pairings(generator: str = "own_leagues:Ladder", **more: Any) -> dict[str, Any]:
    return entry("pairings", policies=["a", "b", "c", "d"], generator=generator, both_sides=True, **more)


# ------------------------------------------------------------------------------------------------- rules and generators


def test_own_rule_draws_players_rated_above() -> None:
    last = played(league(own_rule(), rounds=4)).rounds[-1]
    view_of_a = {name.split("@")[0] for match in last.matches for name in match.names if "a" in match.names}
    assert view_of_a & {"b", "c", "d"}, "the weakest meets stronger ones"
    assert {*last.places} == {"matches[0].matchmaking"}


def test_own_pairings_pair_neighbors_in_the_ratings() -> None:
    found = played(league(own_pairings(opening=[["a", "b"], ["c", "d"]]), rounds=3))
    pairs = [{frozenset(match.names) for match in made.matches} for made in found.rounds]
    assert pairs[0] == {frozenset("ab"), frozenset("cd")}
    assert pairs[1] == {frozenset("bd"), frozenset("ac")}, "the winners of the first round meet, and the losers"


def test_options_reach_the_class_and_survive_the_file() -> None:
    config = league(own_rule({"own_leagues:Above": {"elo": 5}}), rounds=3)
    assert parse_config(yaml.load(resolved_yaml(config), source=""), source="league.yaml") == config
    check_custom(config)


@pytest.mark.parametrize(
    ("rule", "path", "words"),
    [
        ("nowhere:Above", "rule", "no module 'nowhere'"),
        (f"{HERE}:Nothing", "rule", "no 'Nothing'"),
        ("own_leagues:Ladder", "rule", r"no method opponents\(\)"),
        (f"{HERE}:WrongSignature", "rule", r"cannot be called with \(learner, league, count, rng\)"),
        ({"own_leagues:Above": {"eloo": 1}}, "rule.options.eloo", "did you mean 'elo'"),
        ({"own_leagues:Above": {"elo": "much"}}, "rule.options.elo", "expected a number"),
        ({"own_leagues:Above": {"elo": -1}}, "rule.options", "elo is -1; above 0"),
    ],
)
def test_wrong_class_or_options_are_refused_at_their_place(rule: Any, path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_custom(league(own_rule(rule), rounds=3))
    assert caught.value.path == f"matches[0].matchmaking.{path}"


@pytest.mark.parametrize(
    ("kind", "answer", "words"),
    [
        ("rule", None, "returned None; expected a list of 2 names"),
        ("rule", "a", "expected a list of 2 names"),
        ("rule", ["a"], "returned 1 names; expected 2"),
        ("rule", ["a", "x"], "returned 'x', which may not play here"),
        ("rule", Failing(), r"Failing.opponents\(\) raised KeyError: 'what I looked for' .*line"),
        ("generator", [], "returned 0 pairings; at least 1, and at most 6"),
        ("generator", [["a", "b"]] * 7, "returned 7 pairings"),
        ("generator", [["a", "b", "c"]], "returned the pairing"),
        ("generator", [["a", "x"]], "returned 'x'"),
        ("generator", [["a", ["b", "c"]]], "returned the side"),
    ],
)
def test_wrong_answers_of_a_rule_or_generator_are_refused(kind: str, answer: Any, words: str) -> None:
    rule = f"{HERE}:Failing" if isinstance(answer, Failing) else {f"{HERE}:Answers": {"answer": answer}}
    of_rule, of_generator = own_rule(rule), own_pairings(f"{HERE}:Answers", options={"answer": answer})
    config = league(of_rule if kind == "rule" else of_generator, rounds=3)
    with pytest.raises(ConfigError, match=words) as caught:
        next_round(config, [first_round(config)], timeline(), {})
    assert str(caught.value.path).startswith("matches[0].matchmaking.rule" if kind == "rule" else "matches[0].pairings")


@pytest.mark.parametrize(
    ("opening", "words"),
    [
        ([], "is empty"),
        ([["a"]], "has 1 sides"),
        ([["a", "x"]], "unknown policy 'x'"),
        ([["a", ["b", "c"]]], "names 2 policies"),
    ],
)
def test_wrong_opening_is_refused(opening: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        league(own_pairings(opening=opening), rounds=3)


def test_conformance_accepts_pure_classes() -> None:
    check_rule(Above)
    check_pairings(Ladder)


@pytest.mark.parametrize(
    ("check", "cls", "words"),
    [
        (check_rule, Stateful, "from the same league and stream"),
        (check_rule, GlobalRandom, "global stream"),
        (check_rule, Answers, "expected a list"),
        (check_pairings, Changing, "has changed the league"),
    ],
)
def test_conformance_refuses_breaches(check: Any, cls: type[Any], words: str) -> None:
    with pytest.raises(ContractBroken, match=words):
        check(cls)


# ---------------------------------------------------------------------------------------------------- listed rounds


def curriculum(*rounds: Any, **more: Any) -> Config:
    data = {
        "ticks": 100,
        "rounds": list(rounds),
        "envs": {"game": {"make": "matrix"}},
        "policies": {name: {"algorithm": "random"} for name in "abc"},
        **more,
    }
    return parse_config(data, source="league.yaml")


def duel(*seats: str, **more: Any) -> dict[str, Any]:
    return {"env": "game", "seats": list(seats), **more}


def test_listed_rounds_are_played_in_their_order() -> None:
    config = curriculum([duel("a", "b")], [{"gauntlet": {"env": "game", "policies": ["a"], "against": ["b", "c"]}}])
    assert config.round_count == 2
    first = first_round(config)
    second = next_round(config, [first], timeline(), {})
    assert [match.names for match in first.matches] == [("a", "b")]
    assert [match.names for match in second.matches] == [("a", "b"), ("a", "c")]
    assert second.places == ("rounds[1][0].gauntlet",) * 2
    assert parse_config(yaml.load(resolved_yaml(config), source=""), source="league.yaml") == config


def test_largest_listed_round_determines_the_processes() -> None:
    assert curriculum([duel("a", "b")], [duel("a", "b", copies=3)], [duel("a", "c")]).roles == 9


def test_seats_of_all_listed_rounds_are_checked() -> None:
    config = curriculum([duel("a", "b")], [duel("c", "b", env_kwargs={"rounds": 3})])
    (later,) = later_plans(config)
    assert {seat.policy for match in later.matches for seat in match.seats} == {"a", "b", "c"}
    assert "rounds[1][0]" in {match.path for match in later.matches}


@pytest.mark.parametrize(
    ("rounds", "more", "path", "words"),
    [
        ([], {}, "rounds", "is empty"),
        ([[]], {}, "rounds[0]", "is empty"),
        ([[{"env": "game", "seats": ["a", "b"]}]], {"matches": [{"env": "game", "seats": ["a"]}]}, "matches", "beside"),
        ([[{"env": "game", "seats": ["a", "x"]}]], {}, "rounds[0][0].seats[1]", "unknown policy"),
        ([[{"swiss": {"env": "game", "policies": ["a", "b"]}}]], {}, "rounds[0][0].swiss", "not allowed in a list"),
    ],
)
def test_wrong_lists_of_rounds_are_refused(rounds: Any, more: Any, path: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        curriculum(*rounds, **more)
    assert caught.value.path == path
