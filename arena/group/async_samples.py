"""Pooling samples without a barrier: every worker sends its samples when it has them, and continues.

    every worker    put(samples, count)        one fragment
                    is_ahead, sleep()          while more than `max_lag` of its fragments wait, it waits too
    the root        get()                      the oldest fragment of each worker: those of one update
                    publish(weights)           to all others
    the others      latest()                   the newest weights that have arrived

A worker may be `max_lag` updates ahead of the root. The n-th fragment of a worker is learned from in the n-th update,
and played with weights after update n - `max_lag` or later: so much is the lag at most. Fragments and weights travel as
orders, so they are delivered whatever the receiver waits for. While the receiver computes, delivery is delayed until
its next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from arena.diagnostics.profile import Activity, Stopwatch
from arena.transport.endpoint import Bytes, Endpoint, Order, Tag
from arena.transport.pickling import pack, unpack


class Fragment(NamedTuple):
    """The samples of one `put`."""

    size: int  # number of samples
    version: int | None  # of the weights that have played it, in updates; None: those at the beginning of the leg
    samples: Any  # a container of arrays


class AsyncSamples:
    """One worker's side of a group that pools samples without a barrier.

    Attributes:
        version: how many updates the weights of this worker have had; None: those at the beginning of the leg.
        lags: of the fragments that `get` has returned last, in updates.
    """

    def __init__(self, endpoint: Endpoint, members: Sequence[int], stopwatch: Stopwatch, *, max_lag: int) -> None:
        self._stopwatch, self._endpoint, self._max_lag = stopwatch, endpoint, max_lag
        self._members, self._root = list(members), members[0]
        self._waiting: list[deque[Fragment]] = [deque() for _ in members]  # at the root, of each worker
        self._before = [0] * len(members)  # how many of them waited when the leg began
        self._began = self._updates = 0  # updates of the root's weights when the leg began, and since then
        self._sent = 0  # fragments of this worker in this leg
        self._known: int | None = None  # how many of this worker's fragments waited; None until its first message
        self._latest: Any = None
        self.version: int | None = None
        self.lags: list[int] = []
        wake = endpoint.waker(endpoint.address)
        assert wake is not None, "a role sees its own memory"
        self._wake = wake
        if endpoint.address == self._root:
            self.version = 0
            endpoint.on_order(Order.SAMPLES, self._on_samples)
        else:
            endpoint.on_order(Order.WEIGHTS, self._on_weights)

    def _on_samples(self, sender: int, data: Bytes) -> None:
        self._waiting[self._members.index(sender)].append(Fragment(*unpack(data)))
        self._wake()

    def _on_weights(self, _: int, data: Bytes) -> None:
        self._updates, before, version, weights = unpack(data)
        self._began = version - self._updates
        self._known = before[self._members.index(self._endpoint.address)]
        self._latest = version, weights
        self._wake()

    def put(self, samples: Any, count: int) -> None:
        """Sends a copy of a fragment of `count` samples to the root."""
        data = pack((count, self.version, samples))
        self._sent += 1
        if self._endpoint.address == self._root:
            self._waiting[0].append(Fragment(*unpack(data)))
        else:
            self._endpoint.order(self._root, Order.SAMPLES, data)

    @property
    def is_ahead(self) -> bool:
        """Whether more than `max_lag` fragments of this worker are not learned from yet, as far as it knows."""
        if self._endpoint.address == self._root:
            return len(self._waiting[0]) > self._max_lag
        return self._known is None or self._known + self._sent - self._updates > self._max_lag

    def sleep(self) -> None:
        """Waits until fragments or weights may have come."""
        before = self._stopwatch.switch(Activity.WAITING_FOR_GROUP)
        self._endpoint.sleep((self._endpoint.address, Tag.GROUP, self._root))
        self._stopwatch.switch(before)

    def get(self) -> list[Any] | None:
        """Removes and returns the oldest fragment of each worker; None if there is none of some worker."""
        if not all(self._waiting):
            return None
        assert self.version is not None, "the root's weights have a version"
        parts = [queue.popleft() for queue in self._waiting]
        self.lags = [self.version - (self._began if part.version is None else part.version) for part in parts]
        self.version += 1
        self._updates += 1
        return [part.samples for part in parts]

    def publish(self, weights: Any) -> None:
        """Sends the root's weights, a container of arrays, to all others; before the first `put`, and after `get`."""
        self._stopwatch.count_update()
        data = pack((self._updates, self._before, self.version, weights))
        for other in self._members[1:]:
            self._endpoint.order(other, Order.WEIGHTS, data)

    def latest(self) -> Any:
        """The newest weights that have arrived since the last call; None if there are none."""
        if self._latest is None:
            return None
        self.version, weights = self._latest
        self._latest = None
        return weights

    def state_dict(self) -> dict[str, Any]:
        """The fragments at the root that no `get` has returned yet; the version of the weights."""
        # In the next leg, "the beginning of the leg" is another one.
        waiting = [
            [(size, self._began if version is None else version, samples) for size, version, samples in queue]
            for queue in self._waiting
        ]
        version = self.version
        if version is None and self._known is not None:
            version = self._began
        return {"version": version, "waiting": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues with the fragments of a `state_dict`, of as many workers as there are now."""
        self.version = state["version"]
        if self._endpoint.address == self._root:
            self._began = self.version or 0
            for queue, stored in zip(self._waiting, state["waiting"], strict=False):
                queue.extend(Fragment(*fragment) for fragment in stored)
            self._before = [len(queue) for queue in self._waiting]
