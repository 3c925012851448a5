"""Samples without a barrier: every worker hands over what it has when it has it, and goes on.

    every worker    offer(samples, count)      a fragment, whole or not at all
    the root        take(at_least)             as many fragments as a batch needs, in the order in which they came
                    publish(weights)           to all others
    the others      latest()                   the newest weights that have come

Nobody waits for anybody. Fragments and weights travel as orders, so they arrive whatever their receiver waits for; one
that computes takes them up at its next step, and until then the next fragment of whoever sends to it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from arena.group import reductions
from arena.transport.endpoint import Bytes, Endpoint, Order
from arena.transport.messages import unpack


class Fragment(NamedTuple):
    """What one worker has handed over at once."""

    size: int  # how many samples
    samples: Any  # a container of arrays


class AsyncSamples:
    """One worker's part in a group that pools samples without a barrier.

    Args:
        endpoint: the worker's place in the world.
        members: the addresses of all workers, in the order of their group ranks.
    """

    def __init__(self, endpoint: Endpoint, members: Sequence[int]) -> None:
        self._endpoint = endpoint
        self._root, *self._others = members
        self._waiting: deque[Fragment] = deque()
        self._latest: Bytes | None = None
        if endpoint.address == self._root:
            endpoint.on_order(Order.SAMPLES, self._take_in)
        else:
            endpoint.on_order(Order.WEIGHTS, self._keep)

    def _take_in(self, _: int, data: Bytes) -> None:
        self._waiting.append(Fragment(*unpack(data)))

    def _keep(self, _: int, data: Bytes) -> None:
        self._latest = bytes(data)

    def offer(self, samples: Any, count: int) -> None:
        """Hands over a copy of a fragment; without a sample there is none."""
        if count == 0:
            return
        data = reductions.dump((count, samples))
        if self._endpoint.address == self._root:
            self._take_in(self._root, data)
        else:
            self._endpoint.order(self._root, Order.SAMPLES, data)

    def take(self, at_least: int) -> list[Any] | None:
        """The samples of the oldest fragments that together reach a number; None if there are too few.

        They exceed it by less than the last of them has, and none is given twice.
        """
        counted = 0
        for number, fragment in enumerate(self._waiting, start=1):
            counted += fragment.size
            if counted >= at_least:
                return [self._waiting.popleft().samples for _ in range(number)]
        return None

    def publish(self, weights: Any) -> None:
        """Sends the root's weights, a container of arrays, to all others."""
        data = reductions.dump(weights)
        for other in self._others:
            self._endpoint.order(other, Order.WEIGHTS, data)

    def latest(self) -> Any:
        """The newest weights that have come since the last call; None if none have."""
        held, self._latest = self._latest, None
        return None if held is None else unpack(held)

    def state_dict(self) -> list[tuple[int, Any]]:
        """The fragments from which nobody has learnt."""
        return [tuple(fragment) for fragment in self._waiting]

    def load_state_dict(self, state: Sequence[tuple[int, Any]]) -> None:
        """Goes on with fragments that were left before."""
        self._waiting.extend(Fragment(*fragment) for fragment in state)
