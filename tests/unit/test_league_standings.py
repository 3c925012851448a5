"""Rows and table of the standings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from arena.league.metagame.payoff import payoff
from arena.league.ratings.ranking import equals
from arena.league.ratings.ratings import fit
from arena.league.ratings.standings import (
    ENOUGH,
    CutGamesBias,
    Narrow,
    Row,
    contradicted,
    curtailed,
    league_table,
    narrow_leader,
    rows,
    standings_at,
    tables,
)
from arena.league.results import Results, Score
from arena.league.timeline import Period, PolicyReset
from arena.terminal.standings import (
    curtailed_lines,
    equal_lines,
    league_lines,
    pair_lines,
    prior_lines,
    standings_lines,
    table_data,
    table_lines,
)
from simulated_leagues import league, results_of, timeline

PAIR = {"env": "game", "seats": ["a", "b"]}


def row(rank: int, player: str) -> Row:
    return Row(rank, player, 100.0 - rank, 50.0 - rank, 150.4 - rank, Score(3, 2, 1))


def test_rows_are_ranked_with_what_each_player_has_scored() -> None:
    results = results_of(ba=(3, 2, 0))
    found = rows(fit(results), results.tallies())
    assert [(one.rank, one.player, one.score, one.share) for one in found] == [
        (1, "b", Score(3, 2, 0), 0.8),
        (2, "a", Score(0, 2, 3), 0.2),
    ]
    assert all(one.low < one.elo < one.high for one in found)


def test_a_team_counts_once_for_each_of_its_players() -> None:
    results = Results()
    results.add(("a", "a"), ("a", "b"), "win")
    assert {one.player: one.score for one in rows(fit(results), results.tallies())} == {
        "a": Score(1, 0, 1),
        "b": Score(0, 0, 1),
    }


def test_table_is_aligned_and_complete() -> None:
    assert standings_lines([row(1, "blue"), row(2, "red@5000")]) == [
        "rank  player    Elo  95 % interval  games   score     95 % interval",
        "   1  blue      +99    [+49, +149]      6  66.7 %  [30.0 %, 90.3 %]",
        "   2  red@5000  +98    [+48, +148]      6  66.7 %  [30.0 %, 90.3 %]",
    ]
    assert standings_lines([]) == []


@pytest.mark.parametrize("always", [(9, 20), range(9, 21)])
def test_long_table_keeps_the_best_and_pinned_players(always: Sequence[int]) -> None:
    pinned = [f"p{rank}" for rank in always]
    lines = standings_lines([row(rank, f"p{rank}") for rank in range(1, 21)], most=3, always={*pinned})
    assert [line.split()[1] for line in lines[1:-1]] == ["p1", *pinned]
    assert lines[-1] == f"and {19 - len(pinned)} more"


@pytest.mark.parametrize(
    ("leaders", "narrow"),
    [
        ({"lead_a": 60}, ("a",)),
        ({"lead_a": 50, "lead_b": 10}, ("a", "b")),
        ({"lead_a": 20, "lead_b": 20, "lead_c": 20}, None),
    ],
)
def test_leader_that_has_met_few_of_the_others_is_told(leaders: dict[str, int], narrow: Any) -> None:
    played = met(a_b=20, b_c=20, c_d=20, d_a=20)
    for pair, games in leaders.items():
        played.add_score(("lead",), (pair.partition("_")[2],), Score(wins=games))
    found = league_table(timeline(played, learners="abcd"), {}, league(PAIR))
    assert found.tables[0][0].player == "lead"
    assert (found.narrow and found.narrow.opponents) == narrow
    told = [line for line in league_lines(found) if "rests on few opponents" in line]
    assert len(told) == (narrow is not None)
    if narrow:
        assert f"against {' and '.join(narrow)}, of 4 other players" in told[0]


@pytest.mark.parametrize("learners", ["", "a", "abc"])
def test_players_that_beat_each_other_in_a_circle_are_told(learners: str) -> None:
    """Of policies that learn the newest games say it: in the first period the order was another one."""
    early, late = results_of(ab=(0, 0, 3), bc=(0, 0, 3)), results_of(ab=(90, 0, 30), bc=(90, 0, 30), ca=(80, 0, 30))
    found = league_table(timeline(early, late, learners=learners), {}, league(PAIR))
    order = [row.player for row in found.tables[0]]
    for one in found.contradictions:
        assert order.index(one.upper) < order.index(one.lower)
        assert one.circle in {("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")}
    told = [line for line in league_lines(found) if "contradict" in line or "circle" in line]
    assert told[0].startswith(f"the games of some pairs contradict the order: {found.contradictions[0].lower} scores 7")
    assert len(told) == 2


@pytest.mark.parametrize("learners", ["", "abc"])
def test_order_that_all_games_agree_with_has_no_contradiction(learners: str) -> None:
    played = results_of(ab=(60, 0, 40), bc=(60, 0, 40), ac=(10, 0, 9))
    assert league_table(timeline(played, learners=learners), {}, league(PAIR)).contradictions == []


def test_few_leagues_of_equal_players_have_a_contradiction() -> None:
    """Of 200 leagues of twelve players at most 5 % may; with intervals that hold for one pair alone 40 do."""
    rng, names = np.random.default_rng(7), "abcdefghijkl"
    pairs = [(one, other) for one in names for other in names if one < other]
    config, found = league(PAIR, players=names), 0
    for games in [10, 20, 40, 80] * 50:
        won = zip(pairs, rng.binomial(games, 0.5, len(pairs)).tolist(), strict=True)
        played = timeline(results_of(**{f"{one}{other}": (wins, 0, games - wins) for (one, other), wins in won}))
        ratings = fit(played)
        found += bool(contradicted(ratings, played, tables(ratings, played), config))
    assert found <= 10


def test_leading_snapshot_rests_on_the_games_of_its_policy_at_that_time_too() -> None:
    early = results_of(**{f"p_{other}": (20, 0, 0) for other in "abcd"})
    late = met(a_b=20, b_c=20, c_d=20, d_a=20)
    late.update(results_of(**{"p@100_a": (50, 0, 0), "p_a": (0, 0, 50)}))
    order = ["p@100", "a", "b", "c", "d"]
    assert narrow_leader(timeline(early, late, learners="p", snapshots=["p@100"]), order) is None
    found = narrow_leader(timeline(met(a_b=2), late, learners="p", snapshots=["p@100"]), order)
    assert found is not None and found.opponents == ("a",)


# --- games that were cut --------------------------------------------------------------------------------------------


def met(**games: int) -> Results:
    """`a_b=3`: that many games, half of them won."""
    found = Results()
    for pair, count in games.items():
        first, second = pair.split("_")
        found.add_score((first,), (second,), Score(count // 2, count % 2, count // 2))
    return found


@pytest.mark.parametrize(
    ("keys", "by", "key"),
    [
        ({"rounds": 3}, "round", "ticks"),
        ({"rounds": 3, "checkpoint_every": 50}, "leg", "checkpoint_every"),
        ({"rounds": 1}, "run", "ticks"),
    ],
)
def test_player_with_most_cut_games_is_named_with_a_remedy(keys: Any, by: str, key: str) -> None:
    config, results = league(PAIR, **keys), met(a_b=60, b_c=40)
    assert curtailed(fit(results), {"a": 4, "b": 5, "c": 8}, config) == CutGamesBias("c", 5.0, by, key)


@pytest.mark.parametrize("cut", [{}, {"a": 2, "b": 2}, {"strange": 9}])
def test_few_cut_games_are_not_reported(cut: dict[str, int]) -> None:
    assert curtailed(fit(met(a_b=2 * ENOUGH)), cut, league(PAIR)) is None


def test_table_has_its_caveats_below() -> None:
    found = league_table(timeline(met(a_b=14)), {"a": 5, "b": 5}, league(PAIR))
    assert [[row.player for row in rows] for rows in found.tables] == [["a", "b"]]
    assert prior_lines(prior=found.prior) == []
    (said,) = curtailed_lines(found.curtailed)
    assert "with a a lane finishes about 2.8 games before the end of a round cuts one; set a larger `ticks`" in said
    found = league_table(timeline(results_of(ab=(9, 0, 0))), {}, league(PAIR))
    assert curtailed_lines(found.curtailed) == []
    assert ["a weak prior" in said for said in prior_lines(prior=found.prior)] == [True]


def test_mostly_drawn_pairs_are_called_equal() -> None:
    drawn = results_of(ab=(2, 900, 0), bc=(300, 300, 200))
    (said,) = equal_lines(equals(drawn, drawn.players))
    assert said == "as good as each other, as nearly all of their games are drawn, or won by the same side: a and b"
    assert equal_lines(equals(Results(), ())) == []


def test_unconnected_players_have_separate_tables() -> None:
    results = met(a_b=10, b_c=10, d_e=4)
    found = tables(fit(results), results)
    assert [{row.player for row in rows} for rows in found] == [{"a", "b", "c"}, {"d", "e"}]
    for table in found:
        assert math.isclose(sum(row.elo for row in table), 0.0, abs_tol=1e-9), "0 is the mean of each table"
        assert sorted(row.rank for row in table) == list(range(1, 1 + len(table)))
    (apart,) = (line for line in table_lines(found) if "cannot be compared" in line)
    assert table_lines(found).index(apart) == 4


def test_a_snapshot_connects_its_policy_with_those_that_it_has_met() -> None:
    """`a` has met no one but `b`, its snapshot has met `c`: all three can be compared."""
    later = Period(100, 200, met(**{"a@100_c": 10}), frozenset({"c"}))
    found = timeline(met(a_b=10), later, learners="a", snapshots=("a@100",))
    assert [len(rows) for rows in tables(fit(found), found)] == [4]
    unrelated = timeline(met(a_b=10), later, snapshots=("a@100",))
    assert [len(rows) for rows in tables(fit(unrelated), unrelated)] == [2, 2]


def test_table_of_an_earlier_tick_has_the_players_of_that_tick() -> None:
    later = Period(100, 200, met(a_b=60, **{"b_a@100": 6}), frozenset("ab"))
    whole = timeline(met(a_b=10), later, learners="ab", snapshots=("a@100",))
    until = timeline(met(a_b=10), learners="ab", snapshots=("a@100",))
    found = standings_at(whole, until, {}, league(PAIR), at=60)
    assert [(row.player, row.score.games) for row in found.tables[0]] == [("a", 10), ("b", 10)]


def test_prior_that_a_later_player_needs_is_not_said_of_an_earlier_table() -> None:
    """A person wins its only game after the tick; then also the table of the end says so."""
    person = Period(100, 200, results_of(ca=(1, 0, 0)), frozenset("ab"))
    whole, until = timeline(met(a_b=60), person, learners="ab"), timeline(met(a_b=60), learners="ab")
    assert standings_at(whole, whole, {}, league(PAIR)).prior
    found = standings_at(whole, until, {}, league(PAIR), at=60)
    assert {row.player for row in found.tables[0]} == {"a", "b"}
    assert not found.prior
    alone = timeline(results_of(ab=(9, 0, 0)), person, learners="ab")
    until = timeline(results_of(ab=(9, 0, 0)), learners="ab")
    assert standings_at(alone, until, {}, league(PAIR), at=60).prior, "its own players have not won and lost"


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("learners", ["", "ab"])
def test_players_that_keep_to_one_side_are_told_why_intervals_are_wide(learners: str, swapped: bool) -> None:
    played = Results()
    played.add_score(("a",), ("b",), Score(1011, 0, 1011), sided=True)
    if swapped:
        played.add_score(("b",), ("a",), Score(1011, 0, 1011), sided=True)
    found = league_table(timeline(played, learners=learners), {}, league(PAIR))
    told = any("every player has kept to one side" in line for line in league_lines(found))
    wide = found.tables[0][0].high - found.tables[0][0].low > 700
    assert told == wide == (not swapped)


def test_external_games_are_not_told_to_play_a_tournament() -> None:
    played = Results()
    played.add_score(("a",), ("b",), Score(9, 0, 9), sided=True)
    found = league_table(timeline(played), {}, league(PAIR))._replace(narrow=Narrow("a", ("b",), 3))
    assert sum("arena tournament" in line for line in league_lines(found)) == 2
    lines = league_lines(found._replace(external=True))
    assert not [line for line in lines if "tournament" in line or "both_sides" in line]
    assert [line for line in lines if line.endswith("; list a second match with exchanged seats")]


def test_pairs_without_counted_games_say_why() -> None:
    played = timeline(*[met(a_b=8)] * 2, learners="ab")
    lines = pair_lines(payoff(played, "ab"))
    assert (len(lines), lines[-1].split()[0]) == (2, "a")
    again = pair_lines(payoff(replace(played, beginnings={"b": [PolicyReset(200, None)]}), "ab"))
    assert again[1].split()[-3:] == ["0", "-", "-"]
    assert again[2].startswith("counted 0: all games of the pair are too old")


def test_policies_that_have_not_met_are_named() -> None:
    for entry, names in ((PAIR, "b"), ({"env": "game", "seats": ["a", "c"]}, "")):
        config = league(entry, players="abc")
        found = league_table(timeline(met(a_c=8), learners="ac"), {}, config)
        told = [line for line in league_lines(found) if line.startswith("not met yet")]
        assert told == [f"not met yet in a game that counts, so without a rating: {names}"] * bool(names)


def test_table_names_copies_and_resets_with_their_ticks() -> None:
    """`b` becomes a copy of `a` at tick 100, and `c` starts over at 200; the table of tick 150 knows the copy alone."""
    played = timeline(*[met(a_b=10, b_c=6)] * 3, learners="abc")
    whole = replace(played, beginnings={"b": [PolicyReset(100, "a")], "c": [PolicyReset(200, None)]})
    until = replace(whole, periods=whole.periods[:2])
    now, then = (standings_at(whole, counted, {}, league(PAIR), at=at) for counted, at in ((whole, None), (until, 150)))
    said = "b is a copy of a since tick 100, c started over at tick 200: games and score count from then on"
    assert said in league_lines(now)
    assert {one["player"]: one.get("began") for one in table_data(now.tables)} == {
        "a": None,
        "b": {"tick": 100, "source": "a"},
        "c": {"tick": 200, "source": None},
    }
    assert {row.player: (row.began, row.score.games) for row in then.tables[0]} == {
        "a": (None, 20),
        "b": (PolicyReset(100, "a"), 16),
        "c": (None, 12),
    }
