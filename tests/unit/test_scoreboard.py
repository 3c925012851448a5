"""Running statistics of the policies, each against a count by hand."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.records.figures import in_parts, results_of
from arena.records.metrics import EpisodeRecord, Place, SeatRecord
from arena.records.outcome import Outcome
from arena.records.scoreboard import Scoreboard, Series, Total
from arena.run.evaluation import result_text
from arena.terminal.display import summary_lines


def seat(policy: str, return_: float, outcome: Outcome | None, entities: int = 1) -> SeatRecord:
    return SeatRecord(policy, tuple(range(entities)), return_, outcome)


def episode(*seats: SeatRecord, length: int = 10) -> EpisodeRecord:
    return EpisodeRecord(0, 0, "game", 0, 0, 1, length, True, False, seats)


def places(count: int) -> list[Place]:
    """Of so many episodes of one lane."""
    return [(tick, 0, 0) for tick in range(count)]


def test_draws_are_games_and_episodes_without_outcome_are_not() -> None:
    board = Scoreboard()
    for outcome in ("win", "draw", "draw", "loss"):
        board.add(results_of([episode(seat("blue", 0, outcome))]))
    board.add(results_of([episode(seat("blue", 0, None))]))
    blue = board.policies["blue"]
    assert (blue.episodes, blue.games.count, blue.win_rate) == (5, 4, 0.25)


def test_outcomes_that_do_not_fit_count_for_neither_side() -> None:
    wrong = msgspec.structs.replace(episode(seat("blue", 1, None), seat("red", 0, "win")), contradicts=True)
    board = Scoreboard()
    board.take([wrong, episode(seat("blue", 1, "win"), seat("red", 0, "loss")), wrong])
    blue, red = board.policies["blue"], board.policies["red"]
    assert (blue.episodes, blue.games.count, blue.wins) == (3, 1, 1)
    assert (red.episodes, red.games.count, red.wins, red.losses) == (3, 1, 0, 1)


@given(st.lists(st.integers(-1000, 1000), max_size=350), st.integers(0, 350))
def test_series_in_parts_equals_slices_of_the_whole(values: list[int], cut: int) -> None:
    series = Series()
    for part in (slice(cut), slice(cut, None)):
        series.extend(places(len(values))[part], values[part])

    def mean(part: list[int]) -> float | None:
        return sum(part) / len(part) if part else None

    assert (series.mean, series.first, series.last_mean) == (mean(values), values[:100], mean(values[-100:]))
    change = series.before_and_after()
    if len(values) < 20:
        assert change is None
    else:
        size = min(100, len(values) // 2)
        assert change == (size, mean(values[:size]), mean(values[-size:]))


def test_first_and_last_do_not_depend_on_arrival_order() -> None:
    rng = np.random.default_rng(0)
    messages = [
        [EpisodeRecord(0, match, "game", 0, 0, tick, 10, True, False, (seat("blue", tick % 17 * match, "draw"),))]
        for tick in range(1, 601)
        for match in range(3)
    ]
    board, heard = Scoreboard(), Scoreboard()
    for message in messages:
        board.add(results_of(message))
    late = np.arange(len(messages)) + rng.uniform(0, 900, len(messages))  # one match reports long after the others
    for place in np.argsort(late):
        heard.add(results_of(messages[place]))
    whole = [message[0].seats[0].return_ or 0.0 for message in messages]
    expected = (100, statistics.mean(whole[:100]), statistics.mean(whole[-100:]))
    for found in (board, heard):
        assert found.policies["blue"].returns.before_and_after() == pytest.approx(expected)
    assert summary_lines(board, "run") == summary_lines(heard, "run")


def test_episodes_without_a_policy_are_not_its_own() -> None:
    board = Scoreboard()
    board.add(results_of([episode(seat("blue", math.nan, None), seat("red", 3, None))]))
    assert [result_text(board.policies[name]) for name in ("blue", "red")] == [
        "took no part",
        "1 episode, return 3.00, length 10.0",
    ]
    assert "blue  took no part" in summary_lines(board, "run")
    board.add(results_of([episode(seat("blue", 2, None), seat("red", 5, None), length=20)]))
    assert result_text(board.policies["blue"]) == "1 episode, return 2.00, length 20.0"
    assert board.policies["red"].returns.mean == 4


def test_numbers_are_equal_but_for_rounding() -> None:
    def of(*values: float) -> Total:
        total = Total()
        total.add(values)
        return total

    assert of(*[-0.1 - 0.3] * 48).equal and of(0.0, 0.0).equal
    assert not of(-0.4, -0.4, -0.4001).equal and not of(1.0, -1.0).equal
    assert not of().equal and not of(2.0).equal, "one number has no spread"


def test_a_result_has_the_interval_of_student() -> None:
    board = Scoreboard()
    board.add(results_of([episode(seat("blue", 1.0, None))]))
    assert "return 1.00, length" in result_text(board.policies["blue"]), "one episode has none"
    board.add(results_of([episode(seat("blue", value, None)) for value in (2.0, 3.0, 6.0)]))
    # by hand: mean 3, deviation sqrt(14 / 3), t(0.975, 3) = 3.1824 (tables), half = t * deviation / 2
    assert result_text(board.policies["blue"]) == "4 episodes, return 3.00 +- 3.44, length 10.0"


# Results of whole messages, each against a slow count of one episode after the other


OUTCOMES: list[Outcome | None] = ["win", "draw", "loss", None]
LINE_UPS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=5)


@st.composite
def messages(draw: st.DrawFn) -> list[EpisodeRecord]:
    """Episodes of one match, with any seats."""
    line_up = draw(LINE_UPS)
    ends = st.tuples(st.integers(-9, 9), st.sampled_from(OUTCOMES))
    seats = [
        tuple(SeatRecord(policy, tuple(range(size)), *draw(ends)) for policy, size in line_up)
        for _ in range(draw(st.integers(0, 4)))
    ]
    lengths = st.integers(1, 99)
    return [EpisodeRecord(0, 0, "game", 0, 0, 1, draw(lengths), True, False, played) for played in seats]


def slow_mean(record: EpisodeRecord, policy: str) -> Fraction:
    by_entity = [int(s.return_ or 0) for s in record.seats if s.policy == policy for _ in s.entities]
    return Fraction(sum(by_entity), len(by_entity))


def slow_shares(record: EpisodeRecord, policy: str) -> list[Fraction] | None:
    by_entity = [s.outcome for s in record.seats if s.policy == policy for _ in s.entities]
    if None in by_entity:
        return None
    return [Fraction(by_entity.count(outcome), len(by_entity)) for outcome in ("win", "draw", "loss")]


@pytest.mark.slow
@settings(max_examples=40)
@given(messages())
def test_message_equals_its_episodes_one_by_one(records: list[EpisodeRecord]) -> None:
    results = results_of(records)
    assert list(results) == (list(dict.fromkeys(seat.policy for seat in records[0].seats)) if records else [])
    for policy, found in results.items():
        assert list(found.lengths) == [record.length for record in records]
        assert found.returns == pytest.approx([float(slow_mean(record, policy)) for record in records])
        games = [shares for record in records if (shares := slow_shares(record, policy)) is not None]
        assert found.won == [shares[0] for shares in found.games]
        assert [*found.games] == [pytest.approx([*map(float, shares)]) for shares in games]


@pytest.mark.slow
@settings(max_examples=40)
@given(messages(), st.data())
def test_cut_episodes_are_not_counted(records: list[EpisodeRecord], data: st.DataObject) -> None:
    marked = [msgspec.structs.replace(record, cut=data.draw(st.booleans())) for record in records]
    whole = [record for record in marked if not record.cut]
    assert results_of(marked) == results_of(whole)
    assert (results_of(marked) == {}) == (not whole)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(messages(), max_size=3), st.integers(1, 5))
def test_parts_hold_all_episodes_in_order_each_part_with_the_same_seats(
    several: list[list[EpisodeRecord]], most: int
) -> None:
    records = [record for message in several for record in message]
    parts = list(in_parts(records, most))
    assert [record for part in parts for record in part] == records
    assert all(1 <= len(part) <= most and results_of(part) for part in parts)
