"""Rows and table of the standings."""

from __future__ import annotations

from arena.league.ratings import fit
from arena.league.results import Results, Score
from arena.league.standings import Row, rows
from arena.screen.standings import standings_lines


def row(rank: int, player: str) -> Row:
    return Row(rank, player, 100.0 - rank, 50.0 - rank, 150.4 - rank, Score(3, 2, 1))


def test_rows_are_ranked_with_what_each_player_has_scored() -> None:
    results = Results()
    results.add(("b",), ("a",), "win", count=3)
    results.add(("a",), ("b",), "draw", count=2)
    found = rows(fit(results), results)
    assert [(one.rank, one.player, one.score, one.share) for one in found] == [
        (1, "b", Score(3, 2, 0), 0.8),
        (2, "a", Score(0, 2, 3), 0.2),
    ]
    assert all(one.low < one.elo < one.high for one in found)


def test_a_team_counts_once_for_each_of_its_players() -> None:
    results = Results()
    results.add(("a", "a"), ("a", "b"), "win")
    assert {one.player: one.score for one in rows(fit(results), results)} == {"a": Score(1, 0, 1), "b": Score(0, 0, 1)}


def test_the_table_is_aligned_and_says_all_numbers() -> None:
    assert standings_lines([row(1, "blue"), row(2, "red@5000")]) == [
        "rank  player    Elo  95 % interval  games  score",
        "   1  blue      +99    [+49, +149]      6  66.7%",
        "   2  red@5000  +98    [+48, +148]      6  66.7%",
    ]
    assert standings_lines([]) == []


def test_a_long_table_keeps_the_best_and_those_who_are_always_shown() -> None:
    lines = standings_lines([row(rank, f"p{rank}") for rank in range(1, 21)], most=3, always={"p20", "p9"})
    assert [line.split()[1] for line in lines[1:-1]] == ["p1", "p9", "p20"]
    assert lines[-1] == "and 17 more"
