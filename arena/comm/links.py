"""Links whose two ends see the same memory: within a process, or within a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.comm.interface import Bytes, Endpoint, Side, Tag, link_tags


class SharedLink:
    """Both ends use the same two buffers; a post is only the news that one is full.

    Args:
        endpoint: the place of this end's role.
        peer: the address of the other end's.
        side: which end this is.
        part: which of the two roles' links.
        requests: the buffer that the seat writes.
        replies: the buffer that the environment writes.
        ring: tells the other end that there is a message with this tag.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        peer: int,
        side: Side,
        part: int,
        requests: NDArray[np.uint8],
        replies: NDArray[np.uint8],
        *,
        ring: Callable[[Tag], Any],
    ) -> None:
        self._endpoint = endpoint
        self._peer = peer
        self._ring = ring
        self._out, self._back, self._out_extra, self._back_extra = link_tags(side, part)
        self.outbox, self.inbox = (replies, requests) if side is Side.ENVIRONMENT else (requests, replies)

    def post(self, nbytes: int) -> None:
        self._ring(self._out)

    def wait(self) -> None:
        self._endpoint.receive(self._peer, self._back)

    def post_extra(self, data: Bytes) -> None:
        self._endpoint.send(self._peer, self._out_extra, data)

    def wait_extra(self) -> Bytes:
        return self._endpoint.receive(self._peer, self._back_extra)[1]

    def close(self) -> None:
        """The memory lives as long as somebody holds its views."""
