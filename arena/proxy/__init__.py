"""What an algorithm holds in its hands: an ordinary environment whose game runs somewhere else.

`seat` speaks with the environment process; `gym`, `vector` and `parallel` are its three faces.
"""

from __future__ import annotations

from typing import Any

from arena.proxy.seat import Seat

__all__ = ["Seat", "make_proxy"]


def make_proxy(face: str, seat: Seat) -> Any:
    """The environment that an algorithm with this face (`gym`, `vector` or `parallel`) plays in."""
    # Imported here: a worker pays only for the face that it uses, and PettingZoo is not cheap.
    if face == "gym":
        from arena.proxy.gym import EnvProxy

        return EnvProxy(seat)
    if face == "vector":
        from arena.proxy.vector import VectorEnvProxy

        return VectorEnvProxy(seat)
    from arena.proxy.parallel import ParallelEnvProxy

    return ParallelEnvProxy(seat)
