"""Shared parts of the MPI programs that the arena is compared with: ranks, waiting, and ticks per measuring time.

These programs do not use the arena's transport. Rank 0 is the root, which only waits for all other ranks: asleep where
messages alone are measured, because a root that waits in MPI takes CPU from working ranks; in a blocking collective
where the measured system waits in that way. The next ranks are the matches: of each the environment, then the workers
of its seats.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from mpi4py import MPI

PROBE = 20  # ticks after which the speed is known


def options() -> dict[str, Any]:
    """The options of the benchmark: the JSON on the command line."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    return told


def perform(part: Callable[[MPI.Comm], None], wait: Callable[[MPI.Comm], None]) -> None:
    """Plays this rank's part among all ranks but the root; then all ranks wait, the root from the beginning."""
    world = MPI.COMM_WORLD
    playing = world.Split(MPI.UNDEFINED if world.rank == 0 else 0, world.rank)
    if world.rank:
        part(playing)
    wait(world)


def block(world: MPI.Comm) -> None:
    """Waits in MPI for all other ranks."""
    world.gather(None)


def sleep(world: MPI.Comm) -> None:
    """Waits for all other ranks, without using CPU."""
    request = world.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


def agreed_ticks(playing: MPI.Comm, tick: Callable[[], None], seconds: float, most: int = 10_000_000) -> int:
    """Plays `PROBE` ticks and returns how many more take about `seconds`: the same number on all ranks."""
    playing.Barrier()
    begun = time.monotonic()
    for _ in range(PROBE):
        tick()
    mine = (time.monotonic() - begun) / PROBE
    return min(most, max(PROBE, int(seconds / playing.allreduce(mine, MPI.MAX))))


def play(playing: MPI.Comm, tick: Callable[[], None], told: Mapping[str, Any]) -> None:
    """The whole match: a probe, then as many ticks as fit."""
    for _ in range(agreed_ticks(playing, tick, told["seconds"])):
        tick()
