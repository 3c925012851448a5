"""Pooling samples without a barrier: every worker sends its samples when it has them, and continues.

    every worker    put(samples, count)        one fragment
    the root        get(at_least)              the oldest fragments that make a batch, in the order of arrival
                    publish(weights)           to all others
    the others      latest()                   the newest weights that have arrived

No worker waits for another one. Fragments and weights travel as orders, so they are delivered whatever the receiver
waits for. While the receiver computes, delivery is delayed until its next step, and the sender's next fragment with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from arena.diagnostics.profile import Stopwatch
from arena.group import reductions
from arena.transport.endpoint import Bytes, Endpoint, Order
from arena.transport.pickling import unpack


class Fragment(NamedTuple):
    """The samples of one `put`."""

    size: int  # number of samples
    samples: Any  # a container of arrays


class AsyncSamples:
    """One worker's side of a group that pools samples without a barrier.

    Args:
        endpoint: of the worker.
        members: the addresses of all workers, in the order of their group ranks.
        stopwatch: measures the worker's time.
    """

    def __init__(self, endpoint: Endpoint, members: Sequence[int], stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._endpoint = endpoint
        self._root, *self._others = members
        self._waiting: deque[Fragment] = deque()
        self._latest: Bytes | None = None
        if endpoint.address == self._root:
            endpoint.on_order(Order.SAMPLES, self._on_samples)
        else:
            endpoint.on_order(Order.WEIGHTS, self._on_weights)

    def _on_samples(self, _: int, data: Bytes) -> None:
        self._waiting.append(Fragment(*unpack(data)))

    def _on_weights(self, _: int, data: Bytes) -> None:
        self._latest = bytes(data)

    def put(self, samples: Any, count: int) -> None:
        """Sends a copy of a fragment to the root; nothing if `count` is 0."""
        if count == 0:
            return
        data = reductions.dump((count, samples))
        if self._endpoint.address == self._root:
            self._on_samples(self._root, data)
        else:
            self._endpoint.order(self._root, Order.SAMPLES, data)

    def get(self, at_least: int) -> list[Any] | None:
        """Removes and returns the oldest fragments with at least this many samples together; None if there are too few.

        The last of them is the one that reaches the number.
        """
        counted = 0
        for number, fragment in enumerate(self._waiting, start=1):
            counted += fragment.size
            if counted >= at_least:
                return [self._waiting.popleft().samples for _ in range(number)]
        return None

    def publish(self, weights: Any) -> None:
        """Sends the root's weights, a container of arrays, to all others."""
        self._stopwatch.count_update()
        data = reductions.dump(weights)
        for other in self._others:
            self._endpoint.order(other, Order.WEIGHTS, data)

    def latest(self) -> Any:
        """The newest weights that have arrived since the last call; None if there are none."""
        held, self._latest = self._latest, None
        return None if held is None else unpack(held)

    def state_dict(self) -> list[tuple[int, Any]]:
        """The fragments that no `get` has returned yet."""
        return [tuple(fragment) for fragment in self._waiting]

    def load_state_dict(self, state: Sequence[tuple[int, Any]]) -> None:
        """Adds the fragments of a `state_dict`."""
        self._waiting.extend(Fragment(*fragment) for fragment in state)
