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
    with pytest.raises(ProtocolError, match="seat 0 sent ACT at tick 7, but it has no tick left"):
        match.put(0, ACT)


def test_reset_costs_no_tick_and_names_its_seat() -> None:
    match = Lockstep(1, budget=2)
    match.put(0, RESET)
    assert match.joint() == Joint(0, frozenset(), (0,))
    assert match.tick == 0
    match.put(0, ACT)
    assert match.joint() == Joint(None, frozenset(), (0,))


@pytest.mark.parametrize(
    ("seats", "before", "seat", "words"),
    [
        (2, (1, ACT), 1, "seat 1 sent ACT at tick 0, but it has sent a request already"),
        (2, (1, LEAVE), 1, "seat 1 sent ACT at tick 0, but it has left"),
        (2, (1, ACT), 2, "seat 2 sent ACT at tick 0, but there are 2 seats"),
        (2, (1, ACT), -1, "seat -1 sent ACT at tick 0, but there are 2 seats"),
        (3, (1, ACT), None, r"cannot step at tick 0: the requests of seats \(0, 2\) are missing"),
        (1, (0, LEAVE), None, "cannot step at tick 0: it is over"),
    ],
)
def test_invalid_requests_are_refused(
    seats: int, before: tuple[int, RequestKind], seat: int | None, words: str
) -> None:
    match = Lockstep(seats, budget=10)
    match.put(*before)
    with pytest.raises(ProtocolError, match=words):
        match.joint() if seat is None else match.put(seat, ACT)
    assert match.tick == 0


def test_put_refuses_a_reset_of_a_shared_match() -> None:
    match = Lockstep(2, budget=10)
    match.put(1, LEAVE)
    with pytest.raises(ProtocolError, match="seat 0 asked for a reset at tick 0, but it shares the match"):
        match.put(0, RESET)
    match.put(0, ACT)  # the refused request was not counted
    assert match.joint() == Joint(None, frozenset({1}), (0,))
