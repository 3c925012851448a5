"""Policy-space response oracles: solvers of the meta-game, who meets whom, and when best responses join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from arena.config import Config
from arena.errors import ConfigError
from arena.league.metagame.oracles import MetaGame, equilibrium_of_two, meta_game, progress
from arena.league.next_round import first_round, next_round
from arena.league.results import Results
from arena.league.timeline import Margin, Period, Timeline
from arena.records.formats import Round
from arena.terminal.rounds import rounds_lines
from simulated_leagues import entry, league, roles, timeline_of

QUICK = {"nash": {"patience": 1}}  # one round without a gain is enough
PENNIES = np.array([[1.0, -1.0], [-1.0, 1.0]])
ROCK_PAPER_SCISSORS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])


def nash(rule: Any = QUICK, rounds: int = 12, **keys: Any) -> Config:
    return league(entry("matchmaking", **{"policies": ["a"], "rule": rule, "copies": 4, **keys}), rounds=rounds)


def margins(**pairs: float) -> Mapping[tuple[int, str, str], Margin]:
    """`a_b=1`: in round 0 `a`, on the first side, has that mean margin against `b`."""
    return {(0, *pair.split("_")): Margin(10, 10 * value) for pair, value in pairs.items()}  # type: ignore[misc]


def played(config: Config, margin: Callable[[int, str, str], float]) -> tuple[list[Round], Timeline]:
    """All rounds of a league, in which a game of two players always has the margin of its round."""
    rounds, found = [first_round(config)], dict[tuple[int, str, str], Margin]()
    while True:
        newest = rounds[-1]
        for match in newest.matches:
            first, second = match.names
            found[newest.number, first, second] = Margin(8, 8 * margin(newest.number, first, second))
        made = timeline_of(config, rounds, [Results() for _ in rounds])
        known = Timeline(made.periods, made.round_ticks, made.learners, made.beginnings, made.snapshots, {}, found)
        if len(rounds) == config.round_count:
            return rounds, known
        rounds.append(next_round(config, rounds, known, {}))


# Solvers


@pytest.mark.parametrize(
    ("payoffs", "first", "second"),
    [
        (PENNIES, [1 / 2, 1 / 2], [1 / 2, 1 / 2]),
        ([[3.0, -1], [-2, 1]], [3 / 7, 4 / 7], [2 / 7, 5 / 7]),
        ([[2.0, 3], [1, 0]], [1, 0], [1, 0]),
        ([[0.0, 0, 0]], [1], [1 / 3] * 3),
        (-5 + PENNIES, [1 / 2, 1 / 2], [1 / 2, 1 / 2]),
        ([[4.0]], [1], [1]),
    ],
)
def test_equilibria_of_two_populations_are_the_known_ones(payoffs: Any, first: Any, second: Any) -> None:
    found = equilibrium_of_two(np.array(payoffs))
    np.testing.assert_allclose(found[0], first, atol=1e-6)
    np.testing.assert_allclose(found[1], second, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_strategy_gains_against_an_equilibrium_of_two(seed: int) -> None:
    payoffs = np.random.default_rng(seed).normal(size=(5, 7))
    first, second = equilibrium_of_two(payoffs)
    assert (payoffs @ second).max() == pytest.approx((first @ payoffs).min(), abs=1e-6)


def test_a_payoff_is_the_mean_over_both_sides() -> None:
    known = Timeline([], 100, frozenset(), margins=margins(a_b=1.0, b_a=0.5, a_c=2.0))
    game = meta_game(known, ["a", "b", "c"], ["a", "b", "c"])
    np.testing.assert_allclose(game.payoffs, [[0, 0.25, 2], [-0.25, 0, np.nan], [-2, np.nan, 0]])
    assert game.to_meet("nash", 1) == [("b", "c")]
    two = meta_game(known, ["a"], ["b", "c", "d"])
    assert two.to_meet("nash", 1) == [("a", "d")]


def test_pairs_of_the_mixture_meet_until_they_have_enough_games() -> None:
    names = ["r", "p", "s", "weak"]
    known = margins(r_s=1.0, s_p=1.0, p_r=1.0, r_weak=1.0, p_weak=1.0, s_weak=1.0)
    once = meta_game(Timeline([], 100, frozenset(), margins=known), names, names)
    assert once.to_meet("nash", 10) == []
    assert once.to_meet("nash", 11) == [("r", "p"), ("r", "s"), ("p", "s")]  # the equilibrium does not play `weak`
    again = {**known, (1, "p", "r"): Margin(1, 1.0)}
    more = meta_game(Timeline([], 100, frozenset(), margins=again), names, names)
    assert more.to_meet("nash", 11) == [("r", "s"), ("p", "s")]
    two = meta_game(
        Timeline([], 100, frozenset(), margins=margins(h_x=1.0, h_y=-1.0, t_x=-1.0, t_y=1.0)), ["h", "t"], ["x", "y"]
    )
    assert len(two.to_meet("nash", 11)) == 4


def test_solvers_give_the_mixture_of_each_population() -> None:
    names = ("r", "p", "s")
    game = MetaGame(names, names, ROCK_PAPER_SCISSORS, np.ones((3, 3)))
    for solver in ("nash", "uniform", "alpha_rank", "rectified"):
        (mixture,) = game.solved(solver)
        assert mixture == pytest.approx(dict.fromkeys(names, 1 / 3))
    first, second = MetaGame(("h", "t"), ("x", "y"), np.array([[3.0, -1], [-2, 1]]), np.ones((2, 2))).solved("nash")
    assert first == pytest.approx({"h": 3 / 7, "t": 4 / 7})
    assert second == pytest.approx({"x": 2 / 7, "y": 5 / 7})
    assert MetaGame(("h", "t"), ("x",), np.array([[1.0], [0]]), np.ones((2, 1))).solved("nash")[0] == {"h": 1.0}


def test_progress_is_the_margin_against_the_mixture_by_rounds() -> None:
    found = {(1, "a", "x"): Margin(10, 10.0), (1, "y", "a"): Margin(10, 10.0), (2, "a", "y"): Margin(5, 10.0)}
    periods = [Period(100 * n, 100 * n + 100, Results(), frozenset()) for n in range(3)]
    known = Timeline(periods, 100, frozenset("a"), margins=found)
    assert progress(known, "a", {"x": 0.75, "y": 0.25}, since=0) == [0.75 * 1 - 0.25 * 1, 2.0]
    assert progress(known, "a", {"x": 0.75, "y": 0.25}, since=200) == [2.0]


# Rounds


def test_best_responses_join_are_compared_and_met() -> None:
    rounds, _ = played(nash({"nash": {"start": "first", "patience": 1}}), lambda *_: 0.0)
    assert [one.snapshots for one in rounds[:5]] == [(), ("a@100",), (), ("a@300",), ()]  # two rounds without a gain
    assert [one.resets for one in rounds[:4]] == [(), ("a",), (), ("a",)]
    assert {match.names for match in rounds[1].matches} == {("a", "a@100")}  # one player: nothing to compare
    assert {match.names for match in rounds[3].matches} == {("a@100", "a@300")}
    assert "a" in {name for match in rounds[4].matches for name in match.names}
    assert all(roles(one) <= roles(rounds[0]) for one in rounds)
    assert not rounds[3].equilibria  # its pairs have not met yet
    assert rounds[4].equilibria == {"matches[0].matchmaking": ({"a@100": 0.5, "a@300": 0.5},)}


def test_a_mixture_counts_once_its_pairs_have_enough_games() -> None:
    rounds, _ = played(nash({"nash": {"patience": 1, "games": 48}}), lambda *_: 0.0)
    met = [one.number for one in rounds if {match.names for match in one.matches} == {("a@100", "a@300")}]
    assert met == [3, 4, 5, 6, 7, 8]  # 8 games each
    assert [bool(one.equilibria) for one in rounds[:10]] == [False, True, True, *[False] * 6, True]


def test_a_best_response_that_gains_does_not_join_until_late() -> None:
    rounds, _ = played(
        nash({"nash": {"after": 5, "patience": 1}}), lambda number, first, _: float(number) * (first == "a")
    )
    joined = [one.number for one in rounds if one.snapshots]
    assert joined[:2] == [1, 6]  # five rounds of learning against a@100, each better than the ones before
    assert not any(one.resets for one in rounds)


def test_patience_waits_for_several_rounds_without_a_gain() -> None:
    gains = [0, 1, 0, 2, 1, 1, 1, 5, 5, 5, 5, 5]
    rounds, _ = played(nash({"nash": {"patience": 3}}), lambda number, first, _: gains[number] * (first == "a"))
    assert [one.number for one in rounds if one.snapshots][:2] == [1, 7]  # the round 3 was the best


def test_a_gain_below_the_threshold_does_not_count() -> None:
    rounds, _ = played(
        nash({"nash": {"gain": 2.0, "patience": 1}}), lambda number, first, _: float(number) * (first == "a")
    )
    assert [one.number for one in rounds if one.snapshots][:2] == [1, 3]


def test_opponents_are_drawn_from_the_equilibrium() -> None:
    """a@100 beats a@300, which beats what comes later, which beats a@100."""

    def margin(_: int, first: str, second: str) -> float:
        if "a" in (first, second):
            return 0.0
        order = [["a@100", "a@300", "a@600"].index(name) for name in (first, second)]
        return ROCK_PAPER_SCISSORS[order[1], order[0]]

    rounds, _ = played(nash(rounds=8, copies=6), margin)
    assert [one.snapshots for one in rounds if one.snapshots] == [("a@100",), ("a@300",), ("a@600",)]
    met = Counter({match.names[1]: match.copies for match in rounds[7].matches})
    assert met == {"a@100": 2, "a@300": 2, "a@600": 2}


def test_a_uniform_mixture_needs_no_comparison() -> None:
    rounds, _ = played(nash({"nash": {"solver": "uniform", "after": 1}}, rounds=4), lambda *_: 0.0)
    assert [one.snapshots for one in rounds] == [(), ("a@100",), ("a@200",), ("a@300",)]
    assert rounds[3].equilibria == {
        "matches[0].matchmaking": (pytest.approx({"a@100": 1 / 3, "a@200": 1 / 3, "a@300": 1 / 3}),)
    }
    assert {match.names for match in rounds[3].matches} == {("a", "a@100"), ("a", "a@200"), ("a", "a@300")}


def test_two_populations_have_a_mixture_each_and_join_together() -> None:
    config = nash(policies=["a"], versus=["b"], rounds=8)
    rounds, _ = played(config, lambda *_: 0.0)
    assert rounds[1].snapshots == ("a@100", "b@100")
    assert {match.names for match in rounds[1].matches} == {("a@100", "b@100")}
    assert {match.names for match in rounds[2].matches} == {("a", "b@100"), ("a@100", "b")}
    assert rounds[2].equilibria == {"matches[0].matchmaking": ({"a@100": 1.0}, {"b@100": 1.0})}
    assert rounds[4].snapshots == ("a@400", "b@400")
    assert {match.names for match in rounds[4].matches} == {
        ("a@100", "b@400"),
        ("a@400", "b@100"),
        ("a@400", "b@400"),
    }


def test_rectified_meets_for_the_newest_snapshots_payoffs_too() -> None:
    def margin(_: int, first: str, second: str) -> float:
        if "a" in (first, second):
            return 0.0
        return 1.0 if (first, second) == ("a@100", "a@300") else -1.0  # so the mixture has the older one alone

    rule = {"nash": {"solver": "rectified", "patience": 1, "games": 24}}
    rounds, known = played(nash(rule, rounds=7), margin)
    assert rounds[6].equilibria == {"matches[0].matchmaking": ({"a@100": 1.0},)}
    games = sum(one.games for (_, *pair), one in known.margins.items() if {*pair} == {"a@100", "a@300"})
    assert games == 24


def test_rectified_leaves_out_what_the_newest_loses_against() -> None:
    def margin(_: int, first: str, second: str) -> float:
        if "a" in (first, second):
            return 0.0
        order = [["a@100", "a@300", "a@600"].index(name) for name in (first, second)]
        return ROCK_PAPER_SCISSORS[order[1], order[0]]  # a@600 beats a@100 and loses against a@300

    rounds, _ = played(nash({"nash": {"solver": "rectified", "patience": 1}}, rounds=8), margin)
    assert {match.names[1] for match in rounds[7].matches} == {"a@100", "a@600"}


# Configuration


def test_the_plan_says_what_the_rule_does() -> None:
    text = "\n".join(rounds_lines(nash()))
    assert "4 matches of a against the mixture of all snapshots by nash, until it gains no more and joins them" in text
    assert "snapshots:" not in text  # which would say how often they join


@pytest.mark.parametrize(
    ("keys", "more", "path", "message"),
    [
        ({"versus": ["b"]}, {"rounds": 2}, "rounds", "set `rounds: 3` or more"),
        ({}, {"rounds": 1}, "rounds", "set `rounds: 2`"),
        ({}, {"league": {"snapshots": {"every": 2}}}, "league.snapshots.every", "joins when its policy gains no more"),
        ({}, {"league": {"snapshots": {"gate": {}}}}, "league.snapshots.gate", "no policy that learns|no effect"),
        ({"policies": ["random"]}, {}, "matches[0].matchmaking.policies[0]", "does not learn"),
        ({"rule": {"nash": {"solver": "lemke"}}}, {}, "matches[0].matchmaking.rule.nash.solver", "alpha_rank"),
        (
            {"rule": {"nash": {"solver": "alpha_rank"}}, "versus": ["b"]},
            {},
            "matches[0].matchmaking.rule.nash.solver",
            "use nash or uniform",
        ),
        (
            {"rule": {"nash": {"solver": "uniform", "games": 9}}},
            {},
            "matches[0].matchmaking.rule.nash.games",
            "no effect where solver is uniform",
        ),
        ({"rule": {"nash": {"gain": -1}}}, {}, "matches[0].matchmaking.rule.nash.gain", ">= 0|at least 0"),
        ({"against": ["b"]}, {}, "matches[0].matchmaking.against[0]", "it never plays, so there are none"),
        ({}, {"league": {"evolution": {"policies": ["a"]}}}, "league.evolution.policies[0]", "copies no other policy"),
    ],
)
def test_what_contradicts_the_rule_is_refused(keys: Any, more: Any, path: str, message: str) -> None:
    made = {"policies": ["a"], "rule": "nash", "copies": 4, **keys}
    with pytest.raises(ConfigError, match=message) as caught:
        league(entry("matchmaking", **made), **more)
    assert caught.value.path == path


def test_keep_counts_for_the_snapshots_of_the_rule() -> None:
    rounds, _ = played(
        league(
            entry("matchmaking", policies=["a"], rule=QUICK, copies=4),
            rounds=12,
            league={"snapshots": {"keep": 1}},
        ),
        lambda *_: 0.0,
    )
    assert ("a@100",) in [one.dropped for one in rounds]
