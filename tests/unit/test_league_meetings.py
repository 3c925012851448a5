"""Payoffs of policies as they are now: how much older games count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from arena.league.metagame.meetings import RATES, Meetings, meetings
from arena.league.metagame.payoff import payoff
from arena.league.results import Results, Score
from arena.league.timeline import Beginning, Period, Timeline
from simulated_leagues import results_of as games
from simulated_leagues import timeline


def test_older_games_count_less() -> None:
    found = timeline(games(a_s=(8, 0, 0)), games(a_s=(0, 4, 0)), games(a_s=(0, 0, 2)), learners="a")
    rate = meetings(found).rates["a"]
    assert rate in RATES
    assert meetings(found).counts(["a", "s"])[0, 1] == pytest.approx([8 * rate**2, 4 * rate, 2])
    assert meetings(found).counts_of("s", ["a"])[0] == pytest.approx([2, 4 * rate, 8 * rate**2])


def test_matchmaking_ages_games_by_whole_rounds() -> None:
    halves = [(0, 50, 8), (50, 100, 4), (100, 150, 2), (150, 200, 1)]
    periods = [Period(start, end, games(a_s=(wins, 0, 0)), frozenset("a")) for start, end, wins in halves]
    found = Meetings(Timeline(periods, 100, frozenset("a")), by_round=True)
    assert found.counts_of("a", ["s"])[0] == pytest.approx([3 + 12 * found.rates["a"], 0, 0])


def test_old_games_fade_for_learners_but_not_for_frozen_policies() -> None:
    circle = [(38, 0, 2), (2, 0, 38)] * 6
    changing = timeline(*(games(a_s=one) for one in circle), learners="a")
    steady = timeline(*([games(a_s=(20, 0, 20), a_t=(30, 0, 10), a_u=(10, 0, 30))] * 12), learners="a")
    assert meetings(changing).rates["a"] <= 0.4
    assert meetings(steady).rates["a"] >= 0.95
    assert payoff(changing, ["a", "s"]).mean[0, 1] < 0.35, "the newest round counts most"
    assert payoff(steady, ["a", "s"]).games[0, 1] > 250


def test_copy_has_the_games_of_its_source_and_a_reset_policy_none() -> None:
    periods = timeline(games(a_s=(9, 0, 1), b_s=(1, 0, 9)), learners="ab").periods
    copied = Timeline(periods, 100, frozenset("ab"), {"b": [Beginning(100, "a")]})
    assert np.argmax(meetings(copied).counts_of("b", ["s"])[0]) == 0
    reset = Timeline(periods, 100, frozenset("ab"), {"b": [Beginning(100, None)]})
    assert meetings(reset).counts_of("b", ["s"])[0].tolist() == [0, 0, 0]


def test_spans_give_the_ticks_of_the_games() -> None:
    parts = [games(a_s=(38, 0, 2) if number % 2 else (2, 0, 38)) for number in range(12)]
    found = meetings(timeline(*parts, learners="a"))
    span = found.spans(["a"])[0]
    assert span is not None
    assert span.last == 1200
    assert found.rates["a"] ** ((1100 - span.first) / 100) >= 0.05 > found.rates["a"] ** ((1200 - span.first) / 100)


def run_without_rounds(chances: Sequence[float], games: int, rng: np.random.Generator) -> Timeline:
    """One round in as many parts as there are chances of `a` to beat `b`; both learn."""
    periods, length = [], 800 // len(chances)
    for part, chance in enumerate(chances):
        played, wins = Results(), int(rng.binomial(games, chance))
        played.add_score(("a",), ("b",), Score(wins, 0, games - wins))
        periods.append(Period(part * length, (part + 1) * length, played, frozenset("ab")))
    return Timeline(periods, 800, frozenset("ab"))


@pytest.mark.parametrize(
    "chances",
    [
        pytest.param([0.9] * 4 + [0.1] * 4, id="the-winner-changes-half-way"),
        pytest.param([0.9] * 6 + [0.1] * 2, id="it-changes-late", marks=pytest.mark.long),
        pytest.param([0.85, 0.9, 0.8, 0.6, 0.5, 0.5, 0.5, 0.5], id="one-learns-first", marks=pytest.mark.long),
        pytest.param([0.7] * 8, id="nothing-changes"),
    ],
)
def test_payoffs_of_a_run_without_rounds_are_those_of_its_end(chances: Sequence[float]) -> None:
    rng, runs, held, errors = np.random.default_rng(0), 40, 0, []
    for _ in range(runs):
        scores = payoff(run_without_rounds(chances, 200, rng), ["a", "b"])
        held += bool(scores.low[0, 1] <= chances[-1] <= scores.high[0, 1])
        errors.append(float(scores.mean[0, 1]) - chances[-1])
    assert held >= 35, "intervals of 95 % hold the truth"
    assert abs(np.mean(errors)) < 0.02
