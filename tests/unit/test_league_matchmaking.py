"""Opponents of learners: past selves, all by priority, mains and exploiters, the least known."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.config.league import Snapshots
from arena.config.matches import Match, Matchmaking
from arena.league.matchmaking import OpponentPool, beats_all, draw, priorities, systematic
from arena.league.metagame.payoff import payoff
from arena.league.next_round import first_round, next_round
from arena.league.results import Encounter, Results, Score
from arena.league.snapshots import balanced, leaving
from arena.records.formats import GateRecord, Round
from simulated_leagues import by_elo, encounters, entry, league, played, results_of, timeline

DRAWS = 400_000  # from a posterior: a mean of numbers in [0, 1] is then known to 0.003, four standard errors


def rule_of(rule: Any, **keys: Any) -> Matchmaking:
    (made,) = league(entry("matchmaking", rule=rule, **keys)).matches
    return made  # type: ignore[return-value]


def drawn(made: Matchmaking, field: OpponentPool, learner: str, *, seed: int = 0) -> Counter[str]:
    return Counter(draw(made, field, np.random.default_rng(seed))[learner])


LEARN = frozenset("abcdefgh")


# Draws


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8).filter(sum), st.integers(1, 50), st.integers(0, 10**6))
def test_draw_counts_match_shares_within_one(weights: list[float], count: int, seed: int) -> None:
    named = {str(place): weight for place, weight in enumerate(weights)}
    found = Counter(systematic(named, count, np.random.default_rng(seed)))
    assert found.total() == count
    for name, weight in named.items():
        assert abs(found[name] - count * weight / sum(weights)) < 1 + 1e-9
        assert weight or not found[name]


# Priorities


@pytest.mark.parametrize("score", [(0, 0, 0), (2, 5, 1), (0, 0, 30)])
@pytest.mark.parametrize("weighting", ["hard", "variance", "linear"])
def test_a_priority_is_the_mean_over_the_posterior(score: tuple[int, int, int], weighting: str) -> None:
    results = results_of(a_b=score)
    p = payoff(results, ["a", "b"]).sample(np.random.default_rng(0), DRAWS)[:, 0, 1]
    weights = {"hard": (1 - p) ** 2, "variance": p * (1 - p), "linear": 1 - p}
    assert priorities(results, "a", ["b"], weighting=weighting)["b"] == pytest.approx(
        weights[weighting].mean(), abs=0.003
    )


@pytest.mark.parametrize(("wins", "expected"), [(9, False), (60, True)])
def test_few_games_do_not_establish_a_win(wins: int, expected: bool) -> None:
    results = results_of(a_b=(wins, 0, 1), a_c=(50, 0, 0))
    assert beats_all(results, "a", ["b", "c"], score=0.8, confidence=0.95) is expected


# Past selves


def test_past_selves_are_uniform_and_self_has_its_share() -> None:
    field = OpponentPool(Results(), {"a": ["a@100", "a@200"], "b": ["b@100"]}, LEARN)
    made = rule_of({"past_selves": {"self": 0.2}}, policies=["a"], copies=10)
    assert drawn(made, field, "a") == {"a": 2, "a@100": 4, "a@200": 4}


@pytest.mark.parametrize(
    ("share", "against", "expected"),
    [
        (0.0, ["random", "b"], {"random": 4}),
        (0.5, ["random", "b"], {"a": 2, "random": 2}),
        (0.0, ["b"], {"a": 4}),
        (1.0, [], {"a": 4}),
    ],
    ids=["others", "both", "who-learns", "itself"],
)
def test_in_round_1_past_selves_are_other_frozen_policies(
    share: float, against: list[str], expected: dict[str, int]
) -> None:
    rule = {"past_selves": {"self": share}}
    duel = {"env": "game", "seats": ["b", "c"]}
    made = league(duel, entry("matchmaking", policies=["a"], against=against, rule=rule, copies=4))
    found = Counter({match.seats[1]: match.copies for match in first_round(made).matches if match.seats[0] == "a"})
    assert found == expected


# Fictitious self-play


def test_fictitious_self_play_prefers_unbeaten_opponents() -> None:
    results = results_of(**{"a_a@100": (90, 0, 10), "a_b": (10, 0, 90), "a_b@100": (50, 0, 50), "a_random": (99, 0, 1)})
    field = OpponentPool(results, {"a": ["a@100"], "b": ["b@100"]}, LEARN)
    made = rule_of({"fictitious": {"self": 0.0}}, policies=["a", "b"], against=["random"], copies=1000)
    found = drawn(made, field, "a")
    assert found.keys() <= {"a@100", "b", "b@100", "random"}
    assert [name for name, _ in found.most_common()][:2] == ["b", "b@100"]
    assert found["b"] / found["b@100"] == pytest.approx(0.81 / 0.25, rel=0.05)


@pytest.mark.parametrize(("share", "expected"), [(1.0, {("a", "a"), ("b", "b")}), (0.5, {*product("ab", "ab")})])
def test_pure_self_play_begins_in_round_1(share: float, expected: Any) -> None:
    config = league(entry("matchmaking", policies=["a", "b"], rule={"fictitious": {"self": share}}, copies=2))
    assert {match.seats for match in first_round(config).matches} == expected


# Exploiters

EXPLOITERS = {"exploiters": {"main": ["a", "b"], "main_exploiters": ["c"], "league_exploiters": ["d"]}}


def test_mains_meet_mains_in_their_share_and_else_snapshots() -> None:
    field = OpponentPool(Results(), {"a": ["a@100"], "c": ["c@100"]}, LEARN)
    made = rule_of(EXPLOITERS, policies=list("abcd"), copies=100)
    found = drawn(made, field, "a")
    assert found["a"] + found["b"] == 35
    assert found["a@100"] + found["c@100"] == 65


def test_main_exploiter_meets_mains_or_their_snapshots() -> None:
    snapshots = {"a": ["a@100", "a@200"], "c": ["c@100"]}
    made = rule_of(EXPLOITERS, policies=list("abcd"), copies=10)
    assert drawn(made, OpponentPool(Results(), snapshots, LEARN), "c") == {"a": 5, "b": 5}
    hopeless = results_of(**{"a_c": (99, 0, 1), "b_c": (99, 0, 1), "c_a@200": (1, 0, 99)})
    assert drawn(made, OpponentPool(hopeless, snapshots, LEARN), "c") == {"a@100": 5, "b": 5}


def test_a_league_exploiter_meets_snapshots_alone() -> None:
    made = rule_of(EXPLOITERS, policies=list("abcd"), copies=10)
    assert drawn(made, OpponentPool(Results(), {"b": ["b@100"], "d": ["d@100"]}, LEARN), "d") == {
        "b@100": 5,
        "d@100": 5,
    }


def exploiters(**keys: Any) -> dict[str, Any]:
    lists = {"main": ["a"], "main_exploiters": ["b"], "league_exploiters": ["c"]}
    return entry("matchmaking", policies=["a", "b", "c"], copies=2, rule={"exploiters": {**lists, **keys}})


def test_exploiters_reset_after_their_time_and_leave_a_snapshot() -> None:
    config = league(exploiters(reset={"after": 2, "share": 0.0}), rounds=7)
    rounds = played(config, lambda *_: Score(draws=1)).rounds
    assert [made.resets for made in rounds] == [(), (), ("b",), (), ("b",), (), ("b",)]
    joined = [{name for name in made.snapshots if name[0] != "a"} for made in rounds]
    assert joined == [set(), set(), {"b@200", "c@200"}, set(), {"b@400", "c@400"}, set(), {"b@600", "c@600"}]


def test_successful_exploiter_is_reset_with_its_games() -> None:
    config = league(exploiters(reset={"after": None, "share": 1.0}))
    results = results_of(a_b=(0, 0, 60), a_c=(0, 0, 60))
    made = next_round(config, [first_round(config)], timeline(results, learners=config.learners), {})
    assert made.resets == ("b",)  # the league exploiter has no snapshot to beat yet
    assert set(made.snapshots) == {"a@100", "b@100"}


def test_league_exploiter_must_beat_frozen_policies_too() -> None:
    lists = {"main": ["a"], "league_exploiters": ["c"], "reset": {"after": None, "share": 1.0}}
    config = league(entry("matchmaking", policies=["a", "c"], against=["random"], rule={"exploiters": lists}))
    before = [first_round(config)]
    before += [next_round(config, before, timeline(), {})]
    won = {"a@100_c": (0, 0, 60)}
    for against_random, resets in (((60, 0, 0), ()), ((0, 0, 60), ("c",))):
        results = results_of(**won, random_c=against_random)
        assert next_round(config, before, timeline(results, learners=config.learners), {}).resets == resets


# Uncertainty


def test_uncertainty_prefers_close_ratings() -> None:
    results = results_of(a_b=(30, 0, 30), a_c=(60, 0, 0), b_c=(60, 0, 0), c_d=(60, 0, 0))
    made = rule_of("uncertainty", policies=["a"], against=["b", "c", "d"], copies=1)
    assert drawn(made, OpponentPool(results, {}, LEARN), "a") == {"b": 1}


# Sides


@pytest.mark.parametrize("number", [0, 1])
def test_with_both_sides_every_opponent_is_met_from_each_of_them(number: int) -> None:
    made = rule_of("fictitious", policies=["a"], against=["b"], copies=4, both_sides=True)
    drawn = {"a": ["b", "a", "b", "a@100"]}
    found = {match.seats: match.copies for match in made.drawn(drawn, number=number, tested={"a": "a@100"})}
    assert found == {("a", "b"): 2, ("b", "a"): 2, ("a", "a"): 2, ("a", "a@100"): 1, ("a@100", "a"): 1}
    assert made.roles == 3 * sum(found.values())


# Snapshots


def test_snapshots_join_every_so_many_rounds_and_the_newest_stay() -> None:
    rules = {"snapshots": {"every": 2, "keep": 2}}
    rounds = played(league(entry("matchmaking", policies=["a"], rule="past_selves"), league=rules, rounds=9)).rounds
    assert [made.snapshots for made in rounds if made.snapshots] == [("a@200",), ("a@400",), ("a@600",), ("a@800",)]
    assert {made.number: made.dropped for made in rounds if made.dropped} == {6: ("a@200",), 8: ("a@400",)}


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.integers(-400, 400), min_size=4, max_size=9, unique=True), st.integers(3, 6))
def test_by_spread_the_newest_and_the_extremes_stay(strengths: list[int], keep: int) -> None:
    snapshots = [f"a@{100 * place}" for place in range(len(strengths))]
    results = Results()
    for name, elo in zip(snapshots, strengths, strict=True):
        chance = 1 / (1 + 10 ** (-elo / 400))
        results.add_score((name,), ("zero",), Score(round(10**6 * chance), 0, round(10**6 * (1 - chance))))
    gone = leaving(Snapshots(keep=keep, keep_by="spread"), snapshots, results)
    assert len(gone) == max(0, len(snapshots) - keep)
    assert not {snapshots[-1], snapshots[np.argmin(strengths)], snapshots[np.argmax(strengths)]} & set(gone)


def test_unplayed_snapshot_is_rated_between_its_neighbors() -> None:
    results = results_of(**{"a@100_zero": (50, 0, 50), "a@300_zero": (52, 0, 48), "a@400_zero": (90, 0, 10)})
    rule = Snapshots(keep=3, keep_by="spread")
    assert leaving(rule, ["a@100", "a@200", "a@300", "a@400"], results) == ["a@200"]


# The gate

GATED = {"snapshots": {"gate": {"elo": 100}}}
TESTED = entry("matchmaking", policies=["a"], rule={"past_selves": {"self": 1.0}}, copies=2)


def test_gate_admits_only_better_policies() -> None:
    config = league(TESTED, league=GATED)
    joined = played(config, by_elo({"a": 0}, np.random.default_rng(0), games=500)).rounds
    assert [made.snapshots for made in joined] == [(), ("a@100",), (), (), (), ()]
    verdicts = [gate.verdict for made in joined for gate in made.gates]
    assert verdicts == ["open", *["not_better"] * 3], "open as long as one side was played alone"

    def improving(first: str, second: str, copies: int) -> Score:
        return Score(draws=1) if first == second else Score(wins=60, losses=20) if first == "a" else Score(20, 0, 60)

    joined = played(config, improving).rounds
    assert [made.snapshots for made in joined] == [(), ("a@100",), (), ("a@300",), (), ("a@500",)]
    llr = 120 * math.log(2 / (1 + 10**-0.25)) + 40 * math.log(2 / (1 + 10**0.25))
    assert joined[3].gates[0] == GateRecord("a", "a@100", "better", pytest.approx(llr), 160)


def after_three_rounds(*games: tuple[str, str, Score]) -> Round:
    """The fourth round, when these games were played in the second one and in the third one; the fit knows of none."""
    config = league(TESTED, league=GATED)
    before = [first_round(config)]
    before += [next_round(config, before, timeline(), {})]
    before += [next_round(config, before, timeline(), {})]
    found: list[dict[int, list[Encounter]]] = [{}, {}, {}]
    for number, (first, second, score) in enumerate(games, start=1):
        at = next(at for at, match in enumerate(before[number].matches) if match.seats == (first, second))
        found[number][at] = encounters((first,), (second,), score)
    return next_round(config, before, timeline(), {}, found)


def test_a_gate_counts_equally_many_games_from_each_side() -> None:
    once = after_three_rounds(("a@100", "a", Score(0, 0, 500)))
    assert (once.snapshots, once.gates[0].games, once.gates[0].llr) == ((), 0, 0.0)
    more = after_three_rounds(("a@100", "a", Score(0, 0, 500)), ("a", "a@100", Score(0, 0, 7)))
    assert (more.snapshots, more.gates[0].games) == ((), 14)
    assert more.gates[0].llr < 0, "7 won from one side, 7 lost from the other"


def test_games_are_balanced_in_each_setting_by_itself() -> None:
    here = Match(env="here", seats=("a", "b"), sides=((0,), (1,)))
    there = msgspec.structs.replace(here, env="there")
    games = [
        (here, encounters(("a",), ("b",), Score(wins=9))),
        (msgspec.structs.replace(here, seats=("b", "a"), copies=3), encounters(("b",), ("a",), Score(2, 1, 0))),
        (there, encounters(("a",), ("b",), Score(wins=5))),
        (msgspec.structs.replace(here, seats=("b", "c")), encounters(("b",), ("c",), Score(wins=5))),
    ]
    assert balanced(games, "a", "b") == Score(wins=3, draws=1, losses=2)
    assert balanced([], "a", "b") == Score()


@pytest.mark.parametrize(("copies", "both_sides"), [(5, False), (2, True)])
def test_gated_learner_meets_its_snapshot_from_both_sides(copies: int, both_sides: bool) -> None:
    rule = {"past_selves": {"self": 0.0}}
    matchmaking = entry("matchmaking", policies=["a"], rule=rule, copies=copies, both_sides=both_sides)
    found = played(league(matchmaking, league=GATED, rounds=9), lambda *_: Score(draws=1)).rounds
    first = [sum(match.copies for match in made.matches if match.seats == ("a", "a@100")) for made in found]
    second = [sum(match.copies for match in made.matches if match.seats == ("a@100", "a")) for made in found]
    matches = copies * (2 if both_sides else 1)
    assert {one + other for one, other in zip(first[1:], second[1:], strict=True)} == {matches}
    assert max(abs(one - other) for one, other in zip(first, second, strict=True)) <= (0 if both_sides else copies % 2)
    assert sum(first) == sum(second)


def test_games_before_a_fork_do_not_count_for_the_gate() -> None:
    learners = entry("matchmaking", policies=["a", "b"], rule={"past_selves": {"self": 1.0}}, copies=2)
    config = league(learners, league={**GATED, "evolution": {"every": 3, "share": 0.5}})
    before = [first_round(config)]
    games: list[dict[int, list[Encounter]]] = [{}]
    for _ in range(4):
        before += [next_round(config, before, timeline(), {"a": [0.0], "b": [1.0]}, games)]
        tested = [(at, match.seats) for at, match in enumerate(before[-1].matches) if len({*match.seats}) == 2]
        games += [{at: encounters((first,), (second,), Score(draws=9)) for at, (first, second) in tested}]
    assert [[*made.forks] for made in before] == [[], [], [], ["a"], []]
    made = next_round(config, before, timeline(), {}, games)
    assert {gate.policy: gate.games for gate in made.gates} == {"a": 2 * 9, "b": 4 * 9}
