"""Results of whole messages, each against a slow count of one episode after the other."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.records.figures import in_parts, results_of
from arena.records.metrics import EpisodeRecord, SeatRecord
from arena.records.outcome import Outcome

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


@pytest.mark.parametrize(
    "other",
    [
        (SeatRecord("red", (0,), 0.0, None),),
        (SeatRecord("blue", (0, 1), 0.0, None),),
        (SeatRecord("blue", (0,), 0.0, None),) * 2,
        (),
    ],
    ids=["policy", "entities", "more", "none"],
)
def test_results_count_for_every_policy_of_an_episode(other: tuple[SeatRecord, ...]) -> None:
    one = EpisodeRecord(0, 0, "game", 0, 0, 1, 10, True, False, (SeatRecord("blue", (0,), 2.0, "win"),))
    two = msgspec.structs.replace(one, seats=other, episode=1, length=7)
    for episodes in ([one, two, one], [two, one, two]):
        found = results_of(episodes)
        for policy in {seat.policy for episode in episodes for seat in episode.seats}:
            alone = [results_of([episode]) for episode in episodes]
            expected = [results[policy] for results in alone if policy in results]
            assert list(found[policy].returns) == [value for part in expected for value in part.returns]
            assert list(found[policy].lengths) == [value for part in expected for value in part.lengths]
            assert found[policy].won == [value for part in expected for value in part.won]


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
