"""The seats that policies may take in later rounds, compared with tournaments played for all possible winners."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from arena.config import Config, parse_config
from arena.config.matches import Knockout, Swiss
from arena.config.members import Sides, later_matches, sides_of
from arena.errors import ConfigError
from arena.league import pairings
from arena.league.results import Results

LEARNS = {"algorithm": "ppo"}
STAYS = {"algorithm": "random"}


def config(entry: dict[str, Any], *more: Any, rounds: int = 8, league: Any = None, **policies: Any) -> Config:
    """A league of one generator, whose policies learn unless something else is said of them."""
    names = [name for part in entry.values() for name in (*part["policies"], *part.get("against", ()))]
    data = {
        "name": "league",
        "ticks": 10,
        "rounds": rounds,
        "envs": {"g": {"make": "matrix"}},
        "policies": {**dict.fromkeys(names, LEARNS), **policies},
        "matches": [{kind: {"env": "g", **part} for kind, part in entry.items()}, *more],
        **({} if league is None else {"league": league}),
    }
    return parse_config(data, source="test")


def sides(made: Config) -> Sides:
    (_, entry), *_ = made.places()
    return sides_of(made, entry)  # type: ignore[arg-type]


def played(entry: Knockout | Swiss, rounds: int) -> tuple[set[str], set[str]]:
    """The sides of the players in a tournament, over all possible results."""
    first: set[str] = set()
    second: set[str] = set()
    left = [[pairings.opening(entry)]]
    while left:
        before = left.pop()
        pairs = [players for players in before[-1] if len(players) > 1]
        first, second = first | {pair[0] for pair in pairs}, second | {pair[1] for pair in pairs}
        if len(before) == rounds:
            continue
        byes = {players[0]: 1.0 for players in before[-1] if len(players) == 1}
        for winners in itertools.product(*pairs):
            made = [{name: float(name in winners or name in byes) for name in entry.policies}]
            judge = pairings.KnockoutRules(Results(), np.random.default_rng(len(left)))
            shares = [*[dict.fromkeys(entry.policies, 0.5)] * (len(before) - 1), *made]
            left.append([*before, pairings.next_pairings(entry, before, shares, judge)])
    return first, second


@pytest.mark.parametrize("players", [*range(2, 8)])
def test_knockout_sides_cover_all_possible_results(players: int) -> None:
    names = tuple(f"p{number}" for number in range(players))
    entry = Knockout(env="g", policies=names)
    found = sides(config({"knockout": {"policies": list(names)}}))
    assert all({*side} >= possible for side, possible in zip(found, played(entry, entry.rounds), strict=True))
    assert (found == ((names[0],), (names[1],))) == (players == 2), "one round: its seats are known"


@pytest.mark.parametrize("players", [2, 3, 4])
def test_swiss_players_may_have_either_side(players: int) -> None:
    names = tuple(f"p{number}" for number in range(players))
    found = sides(config({"swiss": {"policies": list(names)}}))
    assert tuple(map(set, found)) == played(Swiss(env="g", policies=names), 4)


def meets(rule: Any, **more: Any) -> dict[str, Any]:
    return {"matchmaking": {"policies": ["a", "b"], "rule": rule, **more}}


GATE = {"snapshots": {"gate": {"elo": 200}}}
EXPLOITERS = {"main": ["a"], "main_exploiters": ["b"]}


@pytest.mark.parametrize(
    ("entry", "more", "first", "second"),
    [
        (meets("past_selves"), {}, "ab", "ab"),
        (meets("past_selves", against=["x"]), {"x": STAYS}, "ab", "abx"),
        (meets("fictitious", against=["x"]), {}, "ab", "abx"),
        (meets({"fictitious": {"self": 1}}), {}, "ab", "ab"),
        (meets("uncertainty", policies=["a", "s"]), {"a": STAYS, "s": STAYS}, "as", "as"),
        (meets("uncertainty", policies=["s"], against=["x"]), {"s": STAYS}, "s", "x"),
        (meets({"exploiters": EXPLOITERS}), {}, "ab", "ab"),  # snapshots of b
        (meets("past_selves", policies=["a"], against=["x"], both_sides=True, copies=2), {"x": STAYS}, "ax", "ax"),
    ],
)
def test_learners_meet_opponents_of_their_rule(
    entry: dict[str, Any], more: dict[str, Any], first: str, second: str
) -> None:
    assert sides(config(entry, **more)) == (tuple(first), tuple(second))


@pytest.mark.parametrize("rule", ["past_selves", {"exploiters": EXPLOITERS}])
def test_learner_without_snapshots_to_draw_is_refused(rule: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        config(meets(rule, against=["x"]))
    assert caught.value.path == "matches[0].matchmaking.against[0]"
    assert "'x' learns" in caught.value.message
    assert config(meets(rule, against=["x"]), {"env": "g", "seats": ["a", "x"]}).matches


def test_gated_policy_has_both_sides() -> None:
    entry = {"matchmaking": {"policies": ["a"], "against": ["x"], "rule": "uncertainty", "copies": 2}}
    assert "a" in sides(config(entry, x=STAYS, league=GATE)).second


def test_a_fixed_generator_has_no_later_seats() -> None:
    assert later_matches(config({"round_robin": {"policies": ["a", "b"]}}, rounds=3)) == ()


def test_later_matches_have_every_policy_on_each_of_its_sides() -> None:
    names = ["a", "b", "c", "d", "e"]
    made = config({"knockout": {"policies": names, "copies": 3, "team_size": 2}})
    found = later_matches(made)
    assert {path for path, _ in found} == {"matches[0].knockout"}
    later = [(match.names[0], match.names[2]) for _, match in found]
    assert all(first != second for first, second in later)
    assert [{pair[side] for pair in later} for side in (0, 1)] == [{*sides(made).first}, {*sides(made).second}]
    assert [match.copies for _, match in found] == [3 if "a" in pair else 1 for pair in later], "a rests at first"


def test_frozen_newcomer_needs_no_copies() -> None:
    made = config({"knockout": {"policies": ["a", "b", "c"], "copies": 3}}, a=STAYS)
    assert {match.copies for _, match in later_matches(made)} == {1}
