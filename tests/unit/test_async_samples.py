"""Pooling samples without a barrier: no worker waits, and each sample is used once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.diagnostics.profile import Activity, StoppedWatch, Stopwatch
from arena.group.async_samples import AsyncSamples
from arena.transport import Tag
from arena.transport.scheduler import RoleEndpoint, RoleScheduler

MEMBERS = (0, 1, 2)


def together(*mains: Any) -> None:
    """Runs a function of (endpoint, async samples) per member."""

    def main_of(main: Any) -> Any:
        return lambda endpoint: main(endpoint, AsyncSamples(endpoint, MEMBERS, StoppedWatch()))

    RoleScheduler({address: f"worker {address}" for address in MEMBERS}).run(dict(enumerate(map(main_of, mains))))


def meet(endpoint: RoleEndpoint) -> None:
    """A barrier of all members."""
    for other in MEMBERS:
        if other != endpoint.address:
            endpoint.send(other, Tag.GROUP, b"")
    for other in MEMBERS:
        if other != endpoint.address:
            endpoint.receive(other, Tag.GROUP)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(MEMBERS), st.integers(0, 7)), max_size=30),
    st.integers(1, 20),
)
def test_get_returns_each_sample_once_in_batches_of_the_size(offers: list[tuple[int, int]], at_least: int) -> None:
    taken: list[list[Any]] = []
    rest: list[Any] = []

    def main(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        for number, (member, count) in enumerate(offers):
            if member == endpoint.address:
                fragments.put(np.arange(count) + 100 * number, count)
        meet(endpoint)
        if endpoint.address == 0:
            while (parts := fragments.get(at_least)) is not None:
                taken.append(parts)
            rest.extend(samples for _, samples in fragments.state_dict())

    together(main, main, main)
    for batch in taken:
        assert sum(map(len, batch)) >= at_least > sum(map(len, batch[:-1]))
    assert sum(map(len, rest)) < at_least
    found = sorted(int(value) for batch in [*taken, rest] for part in batch for value in part)
    assert found == sorted(value + 100 * number for number, (_, count) in enumerate(offers) for value in range(count))


def test_get_keeps_the_order_of_a_workers_fragments() -> None:
    seen: list[int] = []

    def root(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        meet(endpoint)
        seen.extend(int(part[0]) for part in fragments.get(20) or [])

    def other(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        for number in range(10):
            fragments.put(np.array([10 * endpoint.address + number]), 1)
        meet(endpoint)

    together(root, other, other)
    assert len(seen) == 20
    for member in (1, 2):
        assert [value for value in seen if value // 10 == member] == [10 * member + number for number in range(10)]


def test_a_worker_without_samples_does_not_stop_the_others() -> None:
    batches: list[int] = []

    def root(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        for _ in range(5):
            endpoint.receive(1, Tag.GROUP)
            batches.append(len(fragments.get(4) or []))
        endpoint.send(2, Tag.GROUP, b"")

    def fast(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        for _ in range(5):
            fragments.put(np.zeros(4), 4)
            endpoint.send(0, Tag.GROUP, b"")

    def slow(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        meet(endpoint)
        endpoint.receive(0, Tag.GROUP)

    together(root, fast, slow)
    assert batches == [1] * 5


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


def test_fragments_left_over_are_used_in_the_next_leg() -> None:
    found: list[Any] = []

    def root(endpoint: RoleEndpoint, fragments: AsyncSamples) -> None:
        fragments.put(np.arange(3), 3)
        fragments.put(np.arange(2), 2)
        fresh = AsyncSamples(endpoint, MEMBERS, StoppedWatch())
        fresh.load_state_dict(fragments.state_dict())
        assert fresh.get(6) is None
        found.extend(fresh.get(5) or [])

    together(root, lambda *_: None, lambda *_: None)
    assert [len(part) for part in found] == [3, 2]


@pytest.mark.parametrize("reduce", ["ordered", "fast"])
@pytest.mark.parametrize("sync", ["gradients", "samples"])
def test_group_has_async_samples_if_configured(sync: str, reduce: str) -> None:
    from arena.group.group import Group

    found: list[bool] = []

    def main(endpoint: RoleEndpoint) -> None:
        group = Group(
            endpoint,
            (0,),
            policy="blue",
            sync=sync,
            reduce=reduce,
            seed=1,
            shared_seed=2,
            comm=None,
            on_log=lambda values: None,
            on_save=lambda state: None,
        )
        found.append(group.async_samples is not None)

    RoleScheduler({0: "worker"}).run({0: main})
    assert found == [(sync, reduce) == ("samples", "fast")]


def test_time_before_weights_are_published_is_learning() -> None:
    now = [0.0]

    def main(endpoint: RoleEndpoint) -> None:
        samples = AsyncSamples(endpoint, (0,), stopwatch)
        stopwatch.begin_inference()
        now[0] += 3.0
        samples.publish({})

    stopwatch = Stopwatch(lambda: now[0])
    RoleScheduler({0: "worker 0"}).run({0: main})
    assert stopwatch.seconds[Activity.LEARNING] == 3.0
    assert stopwatch.seconds[Activity.INFERENCE] == 0.0
