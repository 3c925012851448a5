"""Both ends of a seat in one thread: the environment's server, the worker's client, and the bytes of every message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from arena.game.api import Interface
from arena.seat.client import SeatClient
from arena.seat.layout import SeatDescription, link_size
from arena.seat.server import SeatServer
from arena.transport.shared_memory import LocalHeap


class Pipe:
    """One end of a link whose other end is in the same thread; keeps the bytes of every message."""

    def __init__(self, outbox: Any, inbox: Any, heaps: tuple[LocalHeap, LocalHeap]) -> None:
        self.outbox, self.inbox, self.heaps = outbox, inbox, heaps
        self.sent: list[bytes] = []
        self._heap = b""

    def post(self, nbytes: int) -> None:
        self.sent.append(self.outbox[:nbytes].tobytes() + self._heap)
        self._heap = b""

    def post_extra(self, data: bytes) -> None:
        self.sent.append(data)

    def wait(self) -> None: ...

    def close(self) -> None: ...

    def reserve_heap(self, nbytes: int) -> Any:
        self._reserved = self.heaps[0].reserve(nbytes)
        self._reserved[:] = 0xEE  # of an earlier message
        return self._reserved

    def post_heap(self) -> None:
        self._heap = self._reserved.tobytes()

    def sent_heap(self, nbytes: int) -> Any:
        return self.heaps[0].view(nbytes)

    def wait_heap(self, nbytes: int) -> Any:
        return self.heaps[1].view(nbytes)


class Seat:
    """Both ends of a seat of some entities of a game, whose spaces and mask sizes are given by entity."""

    def __init__(
        self,
        lanes: int,
        entities: Sequence[int],
        observation_spaces: Sequence[Space[Any]],
        action_spaces: Sequence[Space[Any]],
        mask_sizes: Sequence[int] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        interface = Interface(
            tuple(f"e{entity}" for entity in entities),
            tuple(observation_spaces[entity] for entity in entities),
            tuple(action_spaces[entity] for entity in entities),
            tuple(0 if mask_sizes is None else mask_sizes[entity] for entity in entities),
        )
        description = SeatDescription(lanes, interface, alone=alone, seat=entities[0])
        size, heaps = link_size(description.layout()), (LocalHeap(), LocalHeap())
        request, reply = np.zeros(size.request, np.uint8), np.zeros(size.reply, np.uint8)
        self.environment, self.worker = Pipe(reply, request, heaps), Pipe(request, reply, heaps[::-1])
        self.server = SeatServer(tuple(entities), description, description.layout(), self.environment)  # type: ignore[arg-type]
        self.client = SeatClient(description, self.worker, seed=1)  # type: ignore[arg-type]
