"""Episodes of several matches come out in one order, whichever match reports first; against `sorted`."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.records.metrics import EpisodeRecord
from arena.records.recorder import InOrder


class Told(NamedTuple):
    """One report of a match."""

    match: int
    tick: int
    episodes: list[EpisodeRecord]
    last: bool = False


def episode(match: int, tick: int, lane: int = 0) -> EpisodeRecord:
    return EpisodeRecord(0, match, "game", lane, 0, tick, 1, True, False, ())


def place(record: EpisodeRecord) -> tuple[int, int, int]:
    return record.tick, record.match, record.lane


@st.composite
def stories(draw: st.DrawFn, end: int = 12) -> list[Told]:
    """A leg of some matches of two lanes, reported in any interleaving. One may end early and report no more."""
    told: list[list[Told]] = []
    for match in range(draw(st.integers(1, 4))):
        stop = draw(st.integers(1, end))
        cuts = sorted({*draw(st.lists(st.integers(1, stop), max_size=4)), stop})
        ends = [episode(match, tick, lane) for tick in range(1, stop + 1) for lane in range(2) if draw(st.booleans())]
        spans = zip([0, *cuts], cuts, strict=False)
        parts = [(until, [e for e in ends if since < e.tick <= until]) for since, until in spans]
        told.append([Told(match, until, part, last=until == stop) for until, part in parts])
    order = draw(st.permutations([match for match, parts in enumerate(told) for _ in parts]))
    return [told[match].pop(0) for match in order]


@pytest.mark.slow
@given(stories())
def test_output_is_sorted_and_waits_for_matches_behind_alone(story: list[Told]) -> None:
    order = InOrder({part.match: 0 for part in story})
    reached: dict[int, float] = dict.fromkeys((part.match for part in story), 0)
    told: list[EpisodeRecord] = []
    written: list[EpisodeRecord] = []
    for part in story:
        told += part.episodes
        reached[part.match] = float("inf") if part.last else part.tick
        written += order.add(part.match, part.tick, part.episodes, last=part.last)  # type: ignore[arg-type]
        assert {*map(place, written)} == {place(row) for row in told if row.tick <= min(reached.values())}
    assert written == sorted(told, key=place)


def test_returning_match_is_waited_for_again() -> None:
    order = InOrder({0: 0, 1: 0})
    order.add(0, 5, [], last=True)
    assert order.add(1, 9, [episode(1, 9)], last=True) == [episode(1, 9)]
    for match in (0, 1):  # the next leg
        order.add(match, 10, [])
    assert order.add(1, 15, [episode(1, 12)]) == []
    assert order.add(0, 15, [episode(0, 11)]) == [episode(0, 11), episode(1, 12)]


@pytest.mark.parametrize("begin", [0, 7])
def test_match_without_reports_is_at_its_first_tick(begin: int) -> None:
    order = InOrder({0: begin, 1: 0})
    assert len(order.add(1, 7, [episode(1, 7)])) == (begin == 7)
