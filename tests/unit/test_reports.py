"""Reports of matches: one message for all of a rank, and one order of all episodes, whatever the order of messages."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.records.metrics import EpisodeRecord, SeatRecord, place_of
from arena.records.recorder import InOrder
from arena.roles.environment.reports import Reports
from arena.roles.protocol import Progress, report_seconds
from arena.transport.pickling import pack, unpack

TICKS = 30


def episode(tick: int, match: int, lane: int) -> EpisodeRecord:
    seats = (SeatRecord("blue", (0,), 1.0, "win"),)
    return EpisodeRecord(0, match, "game", lane, 0, tick, 3, True, False, seats)


class SlowOrder:
    """What `InOrder` does, by its definition: it looks at all ranks and all waiting episodes each time."""

    def __init__(self, ranks: int) -> None:
        self.ticks: dict[int, float] = dict.fromkeys(range(ranks), 0)
        self.waiting: list[EpisodeRecord] = []

    def add(self, rank: int, tick: int, episodes: list[EpisodeRecord], *, last: bool) -> list[EpisodeRecord]:
        self.ticks[rank] = math.inf if last else tick
        self.waiting += episodes
        reached = min(self.ticks.values())
        ripe = sorted((one for one in self.waiting if one.tick <= reached), key=place_of)
        self.waiting = [one for one in self.waiting if one.tick > reached]
        return ripe


@settings(max_examples=60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(0, 2**32))
def test_episodes_come_in_one_order_in_any_order_of_reports(matches: list[int], seed: int) -> None:
    """Two legs of ranks with some matches each; matches report at random, and some end a leg early."""
    chance = random.Random(seed)
    hosts = [rank for rank, count in enumerate(matches) for _ in range(count)]
    reports = [Reports(rank) for rank in range(len(matches))]
    order, slow = InOrder(dict.fromkeys(range(len(matches)), 0)), SlowOrder(len(matches))
    written: list[EpisodeRecord] = []
    everything: list[EpisodeRecord] = []
    for start in (0, TICKS):
        ticks, ends = dict.fromkeys(range(len(hosts)), start), {}
        for match, rank in enumerate(hosts):
            reports[rank].begin(match, start)
            ends[match] = start + chance.choice([TICKS, TICKS, chance.randint(1, TICKS)])
        while playing := [match for match in ticks if ticks[match] < ends[match]]:
            match = chance.choice(playing)
            before, ticks[match] = ticks[match], min(ends[match], ticks[match] + chance.randint(1, 9))
            ended = [
                episode(tick, match, lane)
                for lane in (1, 0)
                for tick in range(before + 1, ticks[match] + 1)
                if chance.random() < 0.2
            ]
            everything += ended
            report = reports[hosts[match]]
            report.add(match, ticks[match], ended, {}, last=ticks[match] == ends[match])
            if report.over or chance.random() < 0.5:
                message: Progress = unpack(pack(report.take(0.0)))
                found = order.add(message.rank, message.reached, message.episodes, last=message.last)
                assert found == slow.add(message.rank, message.reached, [*message.episodes], last=message.last)
                assert order.reached == min(slow.ticks.values())
                written += found
        assert all(report.over for report in reports) and order.reached == math.inf
        for rank in range(len(matches)):  # the end of the leg
            written += order.add(rank, start + TICKS, [])
            slow.add(rank, start + TICKS, [], last=False)
    assert written == sorted(everything, key=place_of)


def test_heap_of_ranks_does_not_grow_from_leg_to_leg() -> None:
    order = InOrder(dict.fromkeys(range(3), 0))
    for leg in range(1, 50):
        for rank in range(3):
            order.add(rank, 10 * leg, [], last=True)
        for rank in range(3):
            order.add(rank, 10 * leg, [])
    assert len(order._slowest) == 3


def test_message_has_what_all_matches_of_a_rank_have_reported_since_the_last() -> None:
    reports = Reports(7)
    reports.begin(3, 0)
    reports.begin(5, 0)
    reports.add(5, 4, [episode(4, 5, 0), episode(2, 5, 1)], {"blue": 1, "red": 3}, last=False)
    reports.add(3, 6, [episode(2, 3, 0)], {"blue": 2}, last=False)
    message = reports.take(1.0)
    assert (message.rank, message.ticks, message.reached, message.last) == (7, {5: 4, 3: 6}, 4, False)
    assert [place_of(one) for one in message.episodes] == [(2, 3, 0), (2, 5, 1), (4, 5, 0)]
    assert message.logged == {"blue": 2, "red": 3} and reports.taken_at == 1.0
    reports.add(3, 9, [], {}, last=True)
    message = reports.take(2.0)
    assert (message.ticks, message.reached, message.last) == ({3: 9}, 4, False), "match 3 holds up no other"
    reports.add(5, 5, [], {"blue": math.inf}, last=True)
    message = reports.take(3.0)
    assert (message.ticks, message.reached, message.last) == ({5: 5}, 9, True), "the farthest, when none plays"


@pytest.mark.parametrize(("ranks", "seconds"), [(1, 0.25), (500, 0.25), (4_000, 2.0)])
def test_root_gets_at_most_2000_reports_a_second(ranks: int, seconds: float) -> None:
    plan: Any = SimpleNamespace(environment_ranks=tuple(range(ranks)))
    assert report_seconds(plan) == seconds
