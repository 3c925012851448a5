"""Training intensity: replayed follow collected transitions exactly, for any number of workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.common.replay import ReplayRatio


@given(
    rate=st.sampled_from([0.1, 0.25, 1, 1.5, 7.3, 256.0]),
    starts=st.integers(0, 50),
    blocks=st.lists(st.integers(0, 40), min_size=1, max_size=80),
    minibatch=st.integers(1, 300),
)
def test_replayed_count_is_within_a_minibatch_of_the_due_count(
    rate: float, starts: int, blocks: list[int], minibatch: int
) -> None:
    account, held, steps = ReplayRatio(rate, starts=starts), 0, 0
    for collected in blocks:
        held += collected
        steps += account.due_steps(collected, added=held, minibatch=minibatch)
        hundredths = round(100 * rate) * (account.collected - account.waited)
        assert account.replayed == steps * minibatch
        if held >= starts:
            assert 100 * account.replayed <= hundredths < 100 * (account.replayed + minibatch)
    assert account.collected == held
    assert account.has_started == (held >= starts)


@pytest.mark.parametrize("rate", [1.0, 64.0])
def test_changed_ratio_applies_to_later_transitions(rate: float) -> None:
    before, after = ReplayRatio(16.0, starts=0), ReplayRatio(rate, starts=0)
    before.due_steps(10_000, added=10_000, minibatch=16)
    after.load_state_dict(before.state_dict())
    assert after.due_steps(320, added=10_320, minibatch=16) == 320 * rate / 16
    assert after.collected == 10_320
