"""Proxies: environments that an algorithm steps, while the game runs in another process.

`gym`, `vector` and `parallel` are the three faces; each holds a `SeatClient`, which exchanges messages with the game.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arena.seat.client import SeatClient

__all__ = ["make_proxy"]


def make_proxy(face: str, seats: Sequence[SeatClient]) -> Any:
    """The environment that an algorithm with this face (`gym`, `vector` or `parallel`) plays in.

    Args:
        face: of the algorithm.
        seats: of the worker, one per block of lanes; only the vector face can have several lanes.
    """
    # Imported here: a worker imports only the face that it uses; PettingZoo takes long to import.
    if face == "gym":
        from arena.proxy.gym import EnvProxy

        return EnvProxy(seats[0])
    if face == "vector":
        from arena.proxy.vector import VectorEnvProxy

        return VectorEnvProxy(seats)
    from arena.proxy.parallel import ParallelEnvProxy

    return ParallelEnvProxy(seats[0])
