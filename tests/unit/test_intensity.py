"""Training intensity: what is replayed keeps to what is collected, exactly, at any number of workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.common.replay_ratio import Intensity


@given(
    rate=st.sampled_from([0.1, 0.25, 1, 1.5, 7.3, 256.0]),
    starts=st.integers(0, 50),
    blocks=st.lists(st.integers(0, 40), min_size=1, max_size=80),
    minibatch=st.integers(1, 300),
)
def test_what_is_replayed_falls_short_of_what_is_due_by_less_than_a_minibatch(
    rate: float, starts: int, blocks: list[int], minibatch: int
) -> None:
    account, held, steps = Intensity(rate, starts=starts), 0, 0
    for collected in blocks:
        held += collected
        steps += account.book(collected, held=held, minibatch=minibatch)
        hundredths = round(100 * rate) * (account.collected - account.waited)
        assert account.replayed == steps * minibatch
        if held >= starts:
            assert 100 * account.replayed <= hundredths < 100 * (account.replayed + minibatch)
    assert account.collected == held
    assert account.begun == (held >= starts)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_share_what_is_due(workers: int) -> None:
    account, steps = Intensity(8.0, starts=100), 0
    for block in range(1, 601):
        collected = 2 * workers
        steps += account.book(collected, held=block * collected, minibatch=16 * workers)
    assert account.collected == 1200 * workers
    assert account.replayed == steps * 16 * workers
    assert 0 <= 8 * (account.collected - account.waited) - account.replayed < 16 * workers


def test_a_replay_that_was_lost_is_filled_again_before_it_is_used() -> None:
    account = Intensity(1.0, starts=10)
    assert account.book(20, held=20, minibatch=10) == 2
    assert account.book(5, held=5, minibatch=10) == 0
    assert account.book(5, held=10, minibatch=10) == 0  # these 5 are due
    assert account.book(5, held=15, minibatch=10) == 1
    assert account.waited == 5
    assert account.begun


def test_goes_on_from_stored_counts() -> None:
    account, other = Intensity(0.3, starts=0), Intensity(0.3, starts=0)
    account.book(17, held=17, minibatch=5)
    other.load_state_dict(account.state_dict())
    assert [a.book(17, held=34, minibatch=5) for a in (account, other)] == [1, 1]
    assert account.state_dict() == other.state_dict()


def test_nothing_is_due_where_nobody_has_anything() -> None:
    account = Intensity(4.0, starts=0)
    assert account.book(0, held=0, minibatch=0) == 0


@pytest.mark.parametrize("rate", [1.0, 64.0])
def test_another_rate_holds_for_what_is_collected_from_then_on(rate: float) -> None:
    before, after = Intensity(16.0, starts=0), Intensity(rate, starts=0)
    before.book(10_000, held=10_000, minibatch=16)
    after.load_state_dict(before.state_dict())
    assert after.book(320, held=10_320, minibatch=16) == 320 * rate / 16
    assert after.collected == 10_320


def test_the_same_rate_goes_on_with_what_was_left() -> None:
    before, after = Intensity(1, starts=0), Intensity(1.0, starts=0)
    before.book(15, held=15, minibatch=16)
    after.load_state_dict(before.state_dict())
    assert after.book(1, held=16, minibatch=16) == 1
