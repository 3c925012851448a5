"""Generators: the pairings of the first round and of later ones."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.league.next_round import Round, champions, first_round, is_over, next_round, round_config
from arena.league.results import Results, Score
from arena.plan.build import make_plan
from simulated_leagues import encounters, entry, league, played, roles, timeline

Pairs = list[tuple[str, ...]]


def pairs(made: Round) -> Pairs:
    return [tuple(map(str, match.seats)) for match in made.matches]


# What is the same in every round


def test_a_gauntlet_is_every_challenger_against_each_of_the_others() -> None:
    config = league(entry("gauntlet", policies=["a", "b"], against=["c", "random"]))
    assert pairs(first_round(config)) == [("a", "c"), ("a", "random"), ("b", "c"), ("b", "random")]


def test_mixtures_are_all_pairs_of_different_teams_that_can_be_formed() -> None:
    config = league(entry("mixtures", policies=["a", "b"]))
    matches = first_round(config).matches
    teams = [tuple("".join(str(match.seats[seat]) for seat in side) for side in match.sides or ()) for match in matches]
    assert teams == [("aa", "ab"), ("aa", "bb"), ("ab", "bb")]


def test_fixed_entries_are_the_same_in_every_round() -> None:
    config = league(
        {"env": "game", "seats": ["a", "random"]},
        entry("round_robin", policies=["a", "b", "c"]),
        entry("gauntlet", policies=["a"], against=["b"]),
        entry("mixtures", policies=["a", "b"]),
    )
    before = [first_round(config)]
    assert next_round(config, before, timeline(), {}).matches == before[0].matches


# Knockout


@pytest.mark.parametrize("size", range(2, 9))
def test_knockout_takes_log2_rounds(size: int) -> None:
    config = league(entry("knockout", policies=list("abcdefgh"[:size])), rounds=9)
    rounds = played(config).rounds
    assert len(rounds) == math.ceil(math.log2(size))
    losses = Counter(min(pair) for made in rounds for pair in pairs(made))
    assert losses == dict.fromkeys("abcdefgh"[: size - 1], 1)
    ((first, second),) = (names for names in rounds[-1].pairings["matches[0].knockout"] if len(names) == 2)
    assert max(first, second) == "abcdefgh"[size - 1]


def test_second_bye_comes_after_all_had_one() -> None:
    found = played(league(entry("knockout", policies=list("abcde")), rounds=3))
    resting = [names[0] for made in found.rounds for names in made.pairings["matches[0].knockout"] if len(names) == 1]
    assert len(resting) == len(set(resting)) == 2


@pytest.mark.parametrize(("by", "seed"), [("points", 0), ("rating", 0), ("coin", 0), ("coin", 1)])
def test_knockout_winner_continues_in_other_matches(by: str, seed: int) -> None:
    matches = entry("knockout", policies=["a", "b"]), entry("round_robin", policies=["c", "d"])
    config, results = league(*matches, rounds=3, seed=seed), Results()
    results.add_score(("a",), ("b",), Score(wins=by == "rating", draws=2))
    final = Score(wins=1, draws=3) if by == "points" else Score(wins=1, losses=1)
    games = [{0: encounters(("b",), ("a",), final)}]
    (won,) = champions(config, [first_round(config)], lambda _: timeline(results, learners=config.learners), games)
    rounds = [first_round(config)]
    for _ in range(2):
        rounds.append(
            next_round(config, rounds, timeline(results, learners=config.learners), {}, [*games, {}][: len(rounds)])
        )
        assert rounds[-1].pairings["matches[0].knockout"] == ((won.player,),)
    assert champions(config, rounds, lambda _: timeline(results, learners=config.learners), [*games, {}, {}]) == [won]
    assert (won.by, won.points, won.games) == (by, 2.5 if by == "points" else 1.0, 4 if by == "points" else 2)
    assert won.player == {"points": "b", "rating": "a"}.get(by, won.player)


def test_forked_knockout_winner_advances() -> None:
    config = league(entry("knockout", policies=list("abcd")), rounds=2, league={"evolution": {}})
    games = [
        {place: encounters((loser,), (winner,), Score(2, 0, 8)) for place, (winner, loser) in enumerate(("ba", "dc"))}
    ]
    returns = {"a": [9.0], "b": [0.0], "c": [5.0], "d": [6.0]}
    made = next_round(config, [first_round(config)], timeline(), returns, games)
    assert made.forks["b"].source == "a"
    assert made.pairings["matches[0].knockout"] == (("b", "d"),)


def test_league_continues_while_other_matches_are_played() -> None:
    knockout = entry("knockout", policies=["a", "b"])
    alone, beside = league(knockout), league(knockout, entry("round_robin", policies=["a", "b"]))
    assert is_over(alone, [first_round(alone)], timeline())
    assert not is_over(beside, [first_round(beside)], timeline())
    assert len(next_round(beside, [first_round(beside)], timeline(), {}).matches) == 1


# Swiss


@pytest.mark.slow
@given(st.permutations("abcdefgh"), st.integers(3, 8))
@settings(max_examples=10)  # the first one imports networkx
def test_swiss_pairs_do_not_meet_twice_if_avoidable(order: list[str], size: int) -> None:
    config = league(entry("swiss", policies=order[:size]), rounds=max(2, size // 2))
    met = Counter(frozenset(pair) for made in played(config).rounds for pair in pairs(made))
    assert set(met.values()) == {1}


def test_points_stay_won_when_a_resumed_run_has_other_lanes_and_copies() -> None:
    games = [{0: encounters(("a",), ("b",), Score(wins=3)), 1: encounters(("c",), ("d",), Score(wins=3))}]

    def paired(**changes: Any) -> set[frozenset[str]]:
        before, now = (league(entry("swiss", policies=list("abcd"), **keys)) for keys in ({}, changes))
        made = next_round(now, [first_round(before)], timeline(), {}, games)
        return {frozenset(names) for names in made.pairings["matches[0].swiss"]}

    assert paired() == {frozenset("ac"), frozenset("bd")}
    assert paired() == paired(lanes=4, pipeline=2) == paired(copies=3)


def test_games_outside_the_pairing_score_no_points() -> None:
    order = list("abcd")
    beside = {"env": "game", "seats": ["a", "b"]}
    config = league(beside, entry("knockout", policies=order, lanes=2), rounds=2)
    before = [first_round(config)]
    assert pairs(before[0]) == [("a", "b"), ("a", "b"), ("c", "d")]
    ends = [Score(wins=50), Score(losses=2), Score(losses=2)]
    games = [{n: encounters((a,), (b,), ends[n]) for n, (a, b) in enumerate(pairs(before[0]))}]
    made = next_round(config, before, timeline(), {}, games)
    assert made.pairings["matches[1].knockout"] == (("b", "d"),)


def test_swiss_byes_rotate() -> None:
    found = played(league(entry("swiss", policies=list("abcde")), rounds=5))
    resting = [names[0] for made in found.rounds for names in made.pairings["matches[0].swiss"] if len(names) == 1]
    assert sorted(resting) == list("abcde")


@pytest.mark.parametrize(
    "generator",
    [
        entry("swiss", policies=["a", "b", "c"]),
        entry("matchmaking", policies=["b"], against=["c", "a"], rule="uncertainty", both_sides=True),
    ],
)
def test_order_needs_games_of_absent_players(generator: Any) -> None:
    policies = {name: {"algorithm": "random"} for name in "abc"}
    config = league(generator, policies=policies, league={"decided": {"elo": 100}})
    results = Results()
    results.add_score(("b",), ("c",), Score(wins=400, losses=10))
    assert {*map(frozenset, pairs(first_round(config)))} == {frozenset("bc")}
    assert not is_over(config, [first_round(config)], timeline(results))
    results.add_score(("a",), ("b",), Score(wins=400, losses=10))
    assert is_over(config, [first_round(config)], timeline(results))


# What holds for all

GENERATORS = st.sampled_from(
    [
        entry("round_robin", policies=["a", "b", "c"], both_sides=True),
        entry("gauntlet", policies=["a", "b"], against=["c"], copies=2),
        entry("knockout", policies=list("abcdefg"), team_size=2),
        entry("swiss", policies=list("abcde"), both_sides=True),
        entry("mixtures", policies=["a", "b"]),
        entry("matchmaking", policies=["a", "b"], against=["random"], rule="fictitious", copies=3),
        entry("matchmaking", policies=["c"], rule="past_selves", copies=2, both_sides=True, team_size=2),
        entry("matchmaking", policies=["d", "e"], rule="uncertainty", copies=2),
        entry(
            "matchmaking",
            policies=["f", "g", "h"],
            copies=2,
            rule={"exploiters": {"main": ["f"], "main_exploiters": ["g"], "league_exploiters": ["h"]}},
        ),
    ]
)
LEAGUES = st.sampled_from(
    [None, {"snapshots": {"keep": 3, "keep_by": "spread", "every": 2}}, {"snapshots": {"keep": 1}}]
)


@pytest.mark.slow
@given(st.lists(GENERATORS, min_size=1, max_size=3), LEAGUES, st.integers(0, 3))
@settings(max_examples=8)
def test_rounds_of_any_league_fit_and_are_planned_again(entries: list[Any], rules: Any, seed: int) -> None:
    rules = rules if any("matchmaking" in made for made in entries) else None  # of snapshots, where there are any
    config = league(*entries, league=rules, seed=seed, rounds=5)
    rounds = played(config).rounds
    assert max(map(roles, rounds)) == roles(rounds[0]) == config.roles, "no later round has more than the first"
    assert played(config).rounds == rounds
    assert msgspec.json.decode(msgspec.json.encode(rounds), type=list[Round]) == rounds
    for made in rounds:
        plan = make_plan(round_config(config, made, lambda name: Path("snapshots") / name), number=made.number)
        assert {name for name in plan.policies if "@" in name} == set(made.players)
        assert all(plan.policies[name].config.frozen for name in made.players)
        assert all(match.sides for match in plan.matches)
