"""The match as a state machine: the order of requests does not matter, and invalid requests are refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.errors import ProtocolError
from arena.game.lockstep import Joint, Lockstep, RequestKind

ACT, IDLE, RESET, LEAVE = RequestKind


@settings(max_examples=40)
@given(st.lists(st.sampled_from([ACT, IDLE, LEAVE]), min_size=2, max_size=4).filter(lambda kinds: {*kinds} != {LEAVE}))
def test_every_order_of_arrival_gives_the_same_joint_step(kinds: list[RequestKind]) -> None:
    expected = Joint(
        None,
        frozenset(seat for seat, kind in enumerate(kinds) if kind is not ACT),
        tuple(seat for seat, kind in enumerate(kinds) if kind is not LEAVE),
    )
    for order in itertools.permutations(range(len(kinds))):
        match = Lockstep(len(kinds), budget=10)
        for seat in order:
            match.put(seat, kinds[seat])
        assert (match.joint(), match.tick) == (expected, 1)


def test_idle_seats_play_no_op_and_departed_seats_get_no_reply() -> None:
    match = Lockstep(3, budget=10)
    for seat, kind in enumerate([ACT, IDLE, LEAVE]):
        match.put(seat, kind)
    assert match.joint() == Joint(None, frozenset({1, 2}), (0, 1))


def test_missing_lists_seats_without_a_request_in_every_tick() -> None:
    match = Lockstep(3, budget=10)
    assert match.missing() == (0, 1, 2)
    match.put(1, ACT)
    assert match.missing() == (0, 2)
    match.put(0, LEAVE)
    assert match.missing() == (2,)
    match.put(2, ACT)
    assert match.missing() == ()
    match.joint()
    assert match.missing() == (1, 2)


def test_each_joint_step_counts_a_tick_until_the_budget_is_used() -> None:
    match = Lockstep(1, budget=7, tick=4)
    seen = []
    while not match.over:
        match.put(0, ACT)
        match.joint()
        seen.append(match.tick)
    assert seen == [5, 6, 7]


def test_reset_costs_no_tick_and_names_its_seat() -> None:
    match = Lockstep(1, budget=2)
    match.put(0, RESET)
    assert match.joint() == Joint(0, frozenset(), (0,))
    assert match.tick == 0
    match.put(0, ACT)
    assert match.joint() == Joint(None, frozenset(), (0,))


def test_match_is_over_when_all_seats_have_left() -> None:
    match = Lockstep(2, budget=10)
    match.put(0, LEAVE)
    assert not match.over
    match.put(1, LEAVE)
    assert match.over
    assert match.missing() == ()


def test_a_match_that_is_ended_is_over_with_its_last_tick() -> None:
    match = Lockstep(1, budget=10)
    match.put(0, ACT)
    match.joint()
    match.end()
    assert match.over
    assert match.tick == 1


def test_a_match_with_one_seat_is_alone() -> None:
    assert Lockstep(1, budget=1).alone
    assert not Lockstep(2, budget=1).alone


def test_put_refuses_a_second_request() -> None:
    match = Lockstep(2, budget=10)
    match.put(1, ACT)
    with pytest.raises(ProtocolError, match="seat 1 sent IDLE at tick 0, but it has sent a request already"):
        match.put(1, IDLE)


def test_put_refuses_a_seat_that_has_left() -> None:
    match = Lockstep(2, budget=10)
    match.put(1, LEAVE)
    with pytest.raises(ProtocolError, match="seat 1 sent ACT at tick 0, but it has left"):
        match.put(1, ACT)


def test_put_refuses_requests_after_the_last_tick() -> None:
    match = Lockstep(1, budget=1)
    match.put(0, ACT)
    match.joint()
    with pytest.raises(ProtocolError, match="seat 0 sent ACT at tick 1, but it has no tick left"):
        match.put(0, ACT)


def test_put_refuses_a_reset_of_a_shared_match() -> None:
    match = Lockstep(2, budget=10)
    match.put(1, LEAVE)
    with pytest.raises(ProtocolError, match="seat 0 asked for a reset at tick 0, but it shares the match"):
        match.put(0, RESET)
    match.put(0, ACT)  # the refused request was not counted
    assert match.joint() == Joint(None, frozenset({1}), (0,))


@pytest.mark.parametrize("seat", [-1, 2])
def test_a_seat_that_the_match_does_not_have_is_refused(seat: int) -> None:
    with pytest.raises(ProtocolError, match=rf"seat {seat} sent ACT at tick 0, but there are 2 seats"):
        Lockstep(2, budget=10).put(seat, ACT)


def test_joint_needs_the_requests_of_all_seats() -> None:
    match = Lockstep(3, budget=10)
    match.put(1, ACT)
    with pytest.raises(ProtocolError, match=r"cannot step at tick 0: the requests of seats \(0, 2\) are missing"):
        match.joint()
    assert match.tick == 0


def test_joint_refuses_a_match_that_all_seats_have_left() -> None:
    match = Lockstep(1, budget=10)
    match.put(0, LEAVE)
    with pytest.raises(ProtocolError, match="cannot step at tick 0: it is over"):
        match.joint()
    assert match.tick == 0
