"""Whole-history ratings: strengths of policies that learn, against slow formulas and known truth."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize

from arena.league.ratings import davidson, maximum, whole_history
from arena.league.ratings.curves import curves
from arena.league.ratings.davidson import ELO
from arena.league.ratings.ratings import fit
from arena.league.ratings.standings import tables
from arena.league.results import Results, Score
from arena.league.timeline import PolicyReset, Timeline
from arena.league.view import LeagueView
from simulated_leagues import results_of as games
from simulated_leagues import timeline

TICKS = 100


def moving(rounds: int, rng: np.random.Generator, *, deviation: float, played: int = 200) -> tuple[Timeline, float]:
    """A policy `a` that moves by so many Elo a round, against `s`, which never does; and where it ends."""
    elo, parts = 0.0, []
    for _ in range(rounds):
        elo += rng.normal(0, deviation)
        won = int(rng.binomial(played, 1 / (1 + 10 ** (-elo / 400))))
        parts.append(games(a_s=(won, 0, played - won)))
    return timeline(*parts, learners="a"), elo


def estimate(found: Timeline, players: tuple[str, ...] = ()) -> whole_history.Estimate:
    """Of all games, at the end."""
    return whole_history.estimate(found, players, (), coarse=False)


def elo_of(found: Timeline) -> list[dict[str, float]]:
    """The Elo of all players, table by table."""
    return [{row.player: row.elo for row in own} for own in tables(fit(found), found)]


def test_players_that_do_not_learn_are_rated_as_one_player_each() -> None:
    early, late = games(a_b=(5, 2, 3), b_c=(4, 0, 4)), games(a_b=(1, 1, 6), a_c=(5, 1, 3))
    found, whole = fit(timeline(early, late)), Results()
    for part in (early, late):
        whole.update(part)
    known = fit(whole)
    assert found.elo == pytest.approx(known.elo, abs=1e-9)
    assert found.covariance == pytest.approx(known.covariance, abs=1e-9)


def test_prior_is_believed_until_games_say_otherwise() -> None:
    prior = {"a": 100.0, "b": 0.0, "c": -100.0}
    few, many = (
        replace(timeline(games(a_b=(k, 0, k), b_c=(k, 0, k), a_c=(k, 0, k)), learners="c"), prior=prior)
        for k in (1, 5000)
    )
    after_few, after_many = fit(few).elo, fit(many).elo
    assert 50 < after_few[0] - after_few[1] < 100 and 50 < after_few[1] - after_few[2] < 100
    assert after_many == pytest.approx([0, 0, 0], abs=20), "`c` has moved from its beginning"


def test_prior_of_a_policy_that_learns_is_about_its_beginning() -> None:
    """Ten rounds against a constant player, which is 300 Elo better at first and equal at the end."""
    lost, even = games(a_s=(15, 0, 85)), games(a_s=(50, 0, 50))
    made = replace(timeline(*[lost] * 3, *[even] * 7, learners="a"), prior={"a": -150.0, "s": 150.0})
    first, end = (fit(made, at=at).elo for at in (1, None))
    assert first[1] - first[0] == pytest.approx(300, abs=80) and end[1] - end[0] == pytest.approx(0, abs=60)


def test_strengths_are_the_maximum_of_the_posterior() -> None:
    """Against a general optimizer on the posterior, written out: Davidson's likelihood, and the steps of the walk."""
    played = [(12, 4, 6), (9, 3, 9), (4, 2, 16)]
    found = timeline(*(games(a_s=one) for one in played), learners="a")
    made = estimate(found)
    points, fixed = made.history.curves["a"], made.history.nodes["s"]
    assert len(points) == 1 + len(played)

    def minus_log_posterior(at: np.ndarray) -> float:
        steps = np.diff(at[:4]) / np.sqrt(made.movement.variance(made.history.walk.factors))
        middle = (at[:3] + at[1:4]) / 2
        chances = davidson.chances(middle, at[4])
        return float((steps**2).sum() / 2 - (np.array(played) * np.log(chances)).sum())

    best = optimize.minimize(minus_log_posterior, np.zeros(5), method="BFGS", options={"gtol": 1e-9}).x
    at = made.minimum.parameters
    assert [at[point.node] - at[fixed] for point in points] == pytest.approx(best[:4], abs=1e-5)


def test_games_that_are_all_drawn_have_ratings() -> None:
    """Nothing says how usual draws are, but that all games are."""
    found = timeline(*[games(**{"a_a@100": (0, 4000, 0)})] * 12, learners="a", snapshots=["a@100"])
    assert elo_of(found) == [{name: pytest.approx(0, abs=1e-6) for name in ("a", "a@100")}]


def test_dense_and_sparse_systems_give_the_same_ratings(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    found, _ = moving(12, rng, deviation=60)
    dense = fit(found)
    whole_history.estimate.cache_clear()
    monkeypatch.setattr(maximum, "_DENSE", 0)
    sparse = fit(found)
    assert sparse.elo == pytest.approx(dense.elo, abs=1e-6)
    assert sparse.covariance == pytest.approx(dense.covariance, rel=1e-6)


def moved(found: whole_history.Estimate, age: float = 0.0) -> float:
    """How far `a`, which alone learns, moves in a round, in Elo, at an age above the mean."""
    return float(np.sqrt(found.movement.variance(np.array([[1, age, 1, age]]))[0]) * ELO)


@pytest.mark.parametrize("deviation", [10.0, 80.0])
def test_movement_is_estimated_from_the_games(deviation: float) -> None:
    rng = np.random.default_rng(2)
    found = [moved(estimate(moving(30, rng, deviation=deviation)[0])) for _ in range(8)]
    assert deviation * 0.7 < np.median(found) < deviation * 2


@pytest.mark.slow
def test_slowing_policies_are_recognized() -> None:
    """A rise of 500 Elo that is nearly over after a third of the run; and a walk of as large steps all the time."""
    rng, found = np.random.default_rng(8), dict[str, list[float]]()
    for kind, movements in (("rise", 500 * -np.diff(np.exp(-np.arange(31) / 4))), ("walk", np.full(30, 60.0))):
        for _ in range(8):
            elo = np.cumsum(movements if kind == "rise" else rng.normal(0, movements))
            won = rng.binomial(200, 1 / (1 + 10 ** (-elo / 400))).tolist()
            made = estimate(timeline(*(games(a_s=(one, 0, 200 - one)) for one in won), learners="a"))
            found.setdefault(kind, []).append(moved(made, 0.5) / moved(made, -0.5))
    assert np.median(found["rise"]) < 0.3
    assert 0.4 < np.median(found["walk"]) < 2.5


def test_policy_with_few_games_is_assumed_to_move_like_others() -> None:
    deviation, rng, found = 80.0, np.random.default_rng(9), []
    for _ in range(2):
        elo = np.cumsum(rng.normal(0, deviation, (20, 4)), axis=0)
        won = rng.binomial(200, 1 / (1 + 10 ** (-elo / 400))).tolist()
        parts = [
            games(**{f"{name}_s": (one, 0, 200 - one) for name, one in zip("bcde", row, strict=True)}) for row in won
        ]
        parts[9].update(games(a_s=(2, 0, 2)))
        made = estimate(timeline(*parts, learners="abcde"))
        factors = made.history.walk.factors
        variance = made.movement.variance(factors)[factors[:, 2] == 1]  # of `a`, the first policy
        found.append(float(np.sqrt(np.median(variance)) * ELO))
    assert deviation * 0.5 < np.median(found) < deviation * 2


def pairings(deviation: float, rng: np.random.Generator) -> Timeline:
    """Five equal players, of whom `a` learns; each pair suits one of the two, by so many Elo, for a round."""
    parts = []
    for _ in range(16):
        part = Results()
        for pair in itertools.combinations("abcde", 2):
            share = 1 / (1 + 10 ** (-rng.normal(0, deviation) / 400))
            for first, second, chance in ((*pair, share), (*pair[::-1], 1 - share)):
                won = int(rng.binomial(40, chance))
                part.add_score((first,), (second,), Score(won, 0, 40 - won), sided=True)
        parts.append(part)
    return timeline(*parts, learners="a")


@pytest.mark.parametrize(("deviation", "least", "most"), [(0.0, 0.0, 0.003), (200.0, 0.15, 0.3)])
def test_similarity_of_a_meetings_games_is_estimated_from_results(deviation: float, least: float, most: float) -> None:
    """Of equal players wins have the variance p (1 - p) = 1/4, and so many Elo add that of p itself, 0.057, to it."""
    assert least <= estimate(pairings(deviation, np.random.default_rng(3))).similarity.wins <= most


def test_intervals_hold_where_pairings_suit_players() -> None:
    rng, held = np.random.default_rng(7), []
    for _ in range(4):
        found = fit(pairings(200.0, rng))
        differences = [found.difference(*pair) for pair in itertools.combinations("abcde", 2)]
        held += [one.low <= 0 <= one.high for one in differences]
    assert np.mean(held) >= 0.85


def races(rng: np.random.Generator, *, nu: float | None = None) -> Timeline:
    """12 rounds of five players 150 Elo apart, of whom `e` learns and stays as it is: who scores first wins.

    Times until a player scores are exponential, with a mean that halves with each 120 Elo. A game is drawn if no one
    scores in time: of two players as good as `a` 82 % of the games. With a nu draws are as usual as it says.
    """
    parts = []
    for _ in range(12):
        part = Results()
        for one, other in itertools.permutations(range(5), 2):
            rates = 10 ** (np.array([one, other]) * 150 / 400)
            drawn = np.exp(-0.1 * rates.sum()) if nu is None else nu / (nu + rates.sum() / np.sqrt(rates.prod()))
            chances = [*(rates / rates.sum() * (1 - drawn)), drawn]
            won, lost, draws = rng.multinomial(40, chances).tolist()
            part.add_score(("abcde"[one],), ("abcde"[other],), Score(won, draws, lost), sided=True)
        parts.append(part)
    return timeline(*parts, learners="e")


@pytest.mark.parametrize("learners", ["", "e"])
def test_distances_are_true_if_only_weak_players_draw(learners: str) -> None:
    """Of a tournament and of a league; if draws weigh as much as wins, distances are 12 % too long in both."""
    rng, gaps, held = np.random.default_rng(5), [], []
    for _ in range(4):
        found = fit(replace(races(rng), learners=frozenset(learners)))
        for (one, first), (other, second) in itertools.combinations(enumerate("abcde"), 2):
            interval = found.difference(second, first)
            gaps.append(interval.value / (150 * (other - one)))
            held.append(interval.low <= 150 * (other - one) <= interval.high)
    assert np.mean(gaps) == pytest.approx(1, abs=0.06)
    assert np.mean(held) >= 0.8


@pytest.mark.parametrize(("nu", "least", "most"), [(None, 0.1, 1.0), (0.5, 0.0, 0.003)])
def test_draws_are_correlated_if_nu_fits_badly(nu: float | None, least: float, most: float) -> None:
    found = races(np.random.default_rng(6), nu=nu)
    assert least <= estimate(found).similarity.draws <= most
    of_tournament = maximum.most_likely(davidson.games_of(found.results, "abcde")).similarity
    assert least <= of_tournament <= most


def test_prior_does_not_affect_draws() -> None:
    """Two thirds of few games are drawn; if believed games were games without draws, nu would be below 2."""
    played = {f"{one}_{other}": (1, 4, 1) for one, other in itertools.combinations("abcde", 2)}
    made = estimate(replace(timeline(games(**played), learners="e"), prior=dict.fromkeys("abcde", 0.0)))
    assert made.fit([0], [0]).nu == pytest.approx(4.0, rel=0.1)
    assert made.similarity.draws < 0.01


def test_snapshot_is_its_policy_at_its_tick() -> None:
    """The snapshot has met `s` alone, its policy `t`; both follow from either."""
    early, late = games(a_t=(10, 0, 10), s_t=(10, 0, 10)), games(**{"a@100_s": (30, 0, 10), "a_t": (10, 0, 10)})
    found = timeline(early, late, learners="a", snapshots=("a@100",))
    made = estimate(found)
    at_tick = next(point for point in made.history.curves["a"] if point.tick == TICKS)
    assert made.history.nodes["a@100"] == at_tick.node
    alone = fit(timeline(early, games(a_t=(10, 0, 10)), learners="a"))
    assert fit(found).of("a@100").elo - fit(found).of("t").elo > alone.of("a").elo - alone.of("t").elo + 20


def test_policy_is_rated_as_it_is_at_the_end() -> None:
    parts = [games(a_s=(2, 0, 18))] * 8 + [games(a_s=(18, 0, 2))] * 8
    found = fit(timeline(*parts, learners="a"))
    together = fit(timeline(*parts))
    assert together.difference("a", "s").value == pytest.approx(0, abs=1e-6)
    assert found.difference("a", "s").low > 0


def test_copy_begins_where_its_source_is() -> None:
    parts = [games(a_s=(15, 0, 5), b_s=(2, 0, 18)), games(a_s=(15, 0, 5))]
    periods = timeline(*parts, learners="ab").periods
    found = Timeline(periods, TICKS, frozenset("ab"), {"b": [PolicyReset(200, "a")]})
    rated = fit(found, players=["b"])
    difference = rated.difference("a", "b")
    assert (difference.value, difference.low, difference.high) == (0, 0, 0)
    assert estimate(found, rated.players).history.nodes["b"] != 0


def test_reset_policy_starts_a_curve_without_its_old_games() -> None:
    old, new = games(a_s=(19, 0, 1)), games(a_s=(8, 0, 12))
    found = timeline(*[old] * 4, *[new] * 4, learners="a")
    again = Timeline(found.periods, TICKS, frozenset("a"), {"a": [PolicyReset(400, None)]})
    alone = fit(timeline(*[new] * 4, learners="a")).difference("a", "s")
    assert fit(again).difference("a", "s").value == pytest.approx(alone.value, abs=10)
    assert fit(again).of("a").games == 80
    assert {point.curve for point in curves(again, elo_of(again))["a"]} == {0, 1}


def test_curve_ends_at_the_rating_of_the_table() -> None:
    found, _ = moving(10, np.random.default_rng(4), deviation=60)
    last = curves(found, elo_of(found))["a"][-1]
    rating = fit(found).of("a")
    assert (last.elo, last.low, last.high) == pytest.approx(rating[:3], abs=1e-6)


@pytest.mark.slow
def test_merged_rounds_change_ratings_little() -> None:
    found, _ = moving(100, np.random.default_rng(5), deviation=20)
    fine, coarse = fit(found), fit(found, coarse=True)
    made = [len(whole_history.history(found, (), (), coarse=one).curves["a"]) for one in (False, True)]
    assert made[0] == 101 > 40 > made[1]
    assert coarse.of("a").elo == pytest.approx(fine.of("a").elo, abs=5)


@pytest.mark.slow
def test_intervals_hold_where_those_of_constant_strength_fail() -> None:
    rng = np.random.default_rng(6)
    held, before = [], []
    for _ in range(40):
        found, elo = moving(12, rng, deviation=60, played=40)
        for into, rated in ((held, fit(found)), (before, fit(timeline(*(one.results for one in found.periods[-5:]))))):
            difference = rated.difference("a", "s")
            into.append(difference.low <= elo <= difference.high)
    assert np.mean(held) >= 0.88
    assert np.mean(before) <= 0.75


def test_players_have_no_ratings_if_all_were_reset() -> None:
    played = timeline(games(a_b=(6, 2, 4)), learners="ab").begun((), {}, "ab")
    assert fit(played).players == fit(played, coarse=True).players == ()
    assert not LeagueView(1, ("a", "b"), ("a", "b"), results=played.results, timeline=played).ratings


def test_view_of_a_rule_rates_policies_as_they_are_now() -> None:
    played = timeline(games(a_b=(30, 0, 3), b_c=(9, 0, 9)), games(a_b=(3, 0, 30), b_c=(9, 0, 9)), learners="a")
    view = LeagueView(2, tuple("abc"), tuple("abc"), results=played.results, timeline=played)
    assert [view.elo(name) for name in "abc"] == fit(played, coarse=True).elo.tolist()
    assert view.elo("a") < view.elo("b") - 100, "it has won as many games as it has lost, but lost the newer ones"
    assert fit(played.results).difference("a", "b").value == pytest.approx(0.0, abs=1.0)
