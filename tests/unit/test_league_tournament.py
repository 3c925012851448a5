"""Tournaments as data: which games a batch has, when it is over, what the table says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from arena.config.matches import MatchConfig
from arena.league.results import Results, Score
from arena.league.tournament import Doubt, Rule, Table, distinct_settings, next_batch, seated, table, widened
from simulated_leagues import Tournament

DUEL = MatchConfig(env="g", seats=("?", "?"), sides=((0,), (1,)), lanes=4)
TEAMS = MatchConfig(env="g", seats=(("?", "?"), "?", "?"), sides=((0,), (1, 2)), lanes=1)
RULE = Rule(games=1000, error=0.05, elo=50)


def games(batch: Any) -> int:
    return sum(match.copies * match.lanes for match in batch.matches) * batch.episodes


def test_every_pair_of_a_batch_plays_both_sides_of_every_setting_alike() -> None:
    batch = next_batch([DUEL, TEAMS], ["a", "b", "c"], Results(), RULE, played=0)
    assert batch is not None
    counts = Counter[Any]()
    for match in batch.matches:
        counts[len(match.seats), match.seats] += match.copies
    duels = {seats: count for (size, seats), count in counts.items() if size == 2}
    assert all(duels[one, other] == duels[other, one] for one, other in duels)
    assert sum(count for (size, _), count in counts.items() if size == 3) == sum(duels.values())
    assert {name for pair in duels for name in pair} == {"a", "b", "c"}


def test_budget_is_used_in_whole_meetings_and_never_exceeded() -> None:
    found = Tournament("abc", lambda *_: (0.5, 0.0, 0.5), Rule(games=301, error=1e-9, elo=1), lanes=4)
    assert found.results.games == 296  # 37 meetings of 8 games


def test_batches_grow_with_the_played_games() -> None:
    small = next_batch([DUEL], ["a", "b"], Results(), RULE, played=0)
    large = next_batch([DUEL], ["a", "b"], Results(), RULE, played=800)
    assert small is not None
    assert large is not None
    assert games(small) == 8  # the meeting of the only pair
    assert games(large) == 192  # a quarter of 800, in whole meetings of every pair


def test_a_budget_below_one_meeting_has_no_batch() -> None:
    assert next_batch([DUEL], ["a", "b"], Results(), RULE._replace(games=7), played=0) is None


def test_table_marks_undecided_neighbors() -> None:
    results = Results()
    results.add_score(("a",), ("b",), Score(wins=20, losses=19))
    for name in "ab":
        results.add_score((name,), ("c",), Score(wins=90, losses=10))
    found = table(results, ["a", "b", "c"], RULE)
    assert not found.decided
    assert [(doubt.upper, doubt.lower) for doubt in found.open] == [("a", "b")]
    assert [(row.rank, row.score.games) for row in found.rows] == [(1, 139), (2, 139), (3, 200)]


@pytest.mark.parametrize(
    ("probabilities", "listed"),
    [((0.21, 0.07, 0.01, 0.04), "ABD"), ((0.4, 0.5, 0.1, 0.0), "ABC"), ((0.01, 0.31, 0.01, 0.01), "B")],
)
def test_open_neighbors_sum_to_more_than_the_error(probabilities: tuple[float, ...], listed: str) -> None:
    doubts = [Doubt(name, name.lower(), found, equal=False) for name, found in zip("ABCD", probabilities, strict=True)]
    undecided = Table([], doubts, error=0.3, prior=False)
    assert "".join(doubt.upper for doubt in undecided.open) == listed
    assert sum(doubt.probability for doubt in undecided.open) > undecided.error


@pytest.mark.slow
def test_equal_players_beside_a_weak_one_are_decided() -> None:
    def chances(first: int, second: int) -> Sequence[float]:
        return 0.8 * (second == 2), 0.2 if 2 in (first, second) else 1.0, 0.8 * (first == 2)

    played = Tournament(["a", "b", "weak"], chances, RULE._replace(games=10_000, elo=20), lanes=4)
    last = played.tables[-1]
    assert [(doubt.lower == "weak", doubt.equal) for doubt in last.doubts] == [(False, True), (True, False)]
    assert last.decided
    assert played.results.games < 2000


def test_unplayed_player_is_in_the_table() -> None:
    found = table(Results(), ["a", "b"], RULE)
    assert [(row.player, row.share) for row in found.rows] == [("a", None), ("b", None)]
    assert not found.decided


def test_settings_are_found_again_in_the_matches_of_a_batch() -> None:
    batch = next_batch([DUEL, TEAMS], ["a", "b", "c"], Results(), RULE, played=0)
    assert batch is not None
    again = distinct_settings(batch.matches)
    assert [seated(setting, ("?", "?")) for setting in again] == [DUEL, TEAMS]


def test_lanes_are_added_while_the_budget_covers_all_pairs() -> None:
    narrow = MatchConfig(env="g", seats=("?", "?"), sides=((0,), (1,)))
    assert [setting.lanes for setting in widened([narrow, DUEL], 4, RULE._replace(games=10_000))] == [16, 16]
    assert [setting.lanes for setting in widened([narrow, DUEL], 4, RULE._replace(games=128))] == [2, 4]
    assert [setting.lanes for setting in widened([narrow], 4, RULE._replace(games=10))] == [1]
