"""Pooling samples without a barrier: no worker waits, and each sample is used once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.diagnostics.profile import StoppedWatch
from arena.group.async_samples import AsyncSamples
from arena.transport import Tag
from arena.transport.scheduler import RoleEndpoint, RoleScheduler

MEMBERS = (0, 1, 2)
TURNS = 30


def together(*mains: Any) -> None:
    """Runs a function of (endpoint, async samples) per member."""

    def main_of(main: Any) -> Any:
        return lambda endpoint: main(endpoint, AsyncSamples(endpoint, MEMBERS, StoppedWatch(), max_lag=2))

    RoleScheduler({address: f"worker {address}" for address in MEMBERS}).run(dict(enumerate(map(main_of, mains))))


def meet(endpoint: RoleEndpoint, members: tuple[int, ...] = MEMBERS) -> None:
    """A barrier of these members."""
    for other in members:
        if other != endpoint.address:
            endpoint.send(other, Tag.GROUP, b"")
    for other in members:
        if other != endpoint.address:
            endpoint.receive(other, Tag.GROUP)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(MEMBERS), st.integers(0, 7)), max_size=30))
def test_get_returns_the_oldest_fragment_of_each_worker_once(offers: list[tuple[int, int]]) -> None:
    taken: list[list[Any]] = []
    rest: list[Any] = []

    def main(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        for number, (member, count) in enumerate(offers):
            if member == endpoint.address:
                fragments.put(np.arange(count) + 100 * number, count)
        meet(endpoint)
        if endpoint.address == 0:
            while (parts := fragments.get()) is not None:
                taken.append([part.tolist() for part in parts])
            rest.extend([one[2].tolist() for one in queue] for queue in fragments.state_dict()["waiting"])

    together(main, main, main)
    offered = [
        [
            [100 * number + value for value in range(count)]
            for number, (owner, count) in enumerate(offers)
            if owner == member
        ]
        for member in MEMBERS
    ]
    rounds = min(map(len, offered))
    assert taken == [list(parts) for parts in zip(*(queue[:rounds] for queue in offered), strict=True)]
    assert rest == [queue[rounds:] for queue in offered]


@pytest.mark.parametrize("max_lag", [0, 1, 2])
@pytest.mark.parametrize("slow", MEMBERS)
def test_no_worker_is_more_than_max_lag_ahead(slow: int, max_lag: int) -> None:
    """One worker begins each fragment only when no other can go on; all play the same number of fragments."""
    lags: list[int] = []
    ahead: list[int] = []
    sent = dict.fromkeys(MEMBERS, 0)

    def main(endpoint: RoleEndpoint) -> None:
        samples = AsyncSamples(endpoint, MEMBERS, StoppedWatch(), max_lag=max_lag)
        meet(endpoint)
        is_root = endpoint.address == 0
        if is_root:
            samples.publish(0)
        for _ in range(12):
            if endpoint.address == slow:
                for _ in range(TURNS):  # of the others
                    endpoint.send(3, Tag.REQUEST, b"")
                    endpoint.receive(3, Tag.REPLY)
            samples.put(np.zeros(1), 1)
            sent[endpoint.address] += 1
            ahead.append(max(sent.values()) - min(sent.values()))
            while True:
                while is_root and samples.get() is not None:
                    lags.extend(samples.lags)
                    samples.publish(0)
                if not samples.is_ahead:
                    break
                samples.sleep()
            if not is_root:
                samples.latest()

    def answer(endpoint: RoleEndpoint) -> None:
        for _ in range(12 * TURNS):
            endpoint.receive(slow, Tag.REQUEST)
            endpoint.send(slow, Tag.REPLY, b"")

    names = {address: f"worker {address}" for address in (*MEMBERS, 3)}
    RoleScheduler(names).run({**dict.fromkeys(MEMBERS, main), 3: answer})
    assert 0 <= max(lags) <= max_lag and min(lags) >= 0
    assert len(lags) >= 3 * (12 - max_lag)
    assert max(ahead) <= max_lag + 1


def test_latest_returns_the_newest_weights_once() -> None:
    heard: dict[int, list[Any]] = {1: [], 2: []}

    def root(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        for number in range(3):
            fragments.publish({"weights": np.full(2, number)})
        meet(endpoint)

    def other(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        assert fragments.latest() is None
        meet(endpoint)
        meet(endpoint)
        heard[endpoint.address] += [fragments.latest(), fragments.latest()]

    together(root, other, other)
    for first, second in heard.values():
        np.testing.assert_array_equal(first["weights"], [2, 2])
        assert second is None


def test_lag_of_a_part_played_rollout_counts_from_the_weights_that_played_it() -> None:
    """The worker completes no rollout in the first leg, in which the root learns from what it has waiting."""
    states: dict[int, Any] = {0: {"version": 5, "waiting": [[(1, 5, np.zeros(1))], [(1, 5, np.zeros(1))]]}}
    lags: list[int] = []

    def main(endpoint: RoleEndpoint) -> None:
        is_root = endpoint.address == 0
        for leg in range(2):
            samples = AsyncSamples(endpoint, (0, 1), StoppedWatch(), max_lag=2)
            if endpoint.address in states:
                samples.load_state_dict(states[endpoint.address])
            meet(endpoint, (0, 1))
            if is_root:
                samples.publish(0)
            if leg == 1:
                samples.put(np.zeros(1), 1)
            meet(endpoint, (0, 1))
            if is_root:
                assert samples.get() is not None
                lags.extend(samples.lags)
            states[endpoint.address] = samples.state_dict()

    RoleScheduler({0: "worker 0", 1: "worker 1"}).run({0: main, 1: main})
    assert lags == [0, 0, 0, 1]
