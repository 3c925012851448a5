"""Random streams: one run seed in, one independent seed for every lane, worker and policy out.

Seeds come from `numpy.random.SeedSequence` with the spawn key (kind, place): never from `seed + rank`, so they do not
depend on how many ranks, matches or workers there are. They have 32 bits, because that is what every environment and
library takes (`numpy.random.seed`, Gymnasium, PettingZoo, torch).
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

import numpy as np

_NAME_BYTES = 16  # of a policy name's hash: four words of a spawn key


class _Stream(IntEnum):
    """The first item of a spawn key; it keeps the kinds of streams apart. Never renumber: runs would change."""

    ENVIRONMENT = 1
    WORKER = 2
    POLICY = 3
    RESTART = 4
    PROCESS = 5


def environment_seed(run_seed: int, *, entry: int, copy: int, lane: int) -> int:
    """The seed of one lane's game: lane `lane` of copy `copy` of match description `entry`."""
    return _draw(run_seed, _Stream.ENVIRONMENT, entry, copy, lane)


def worker_seed(run_seed: int, *, policy: str, entry: int, copy: int, seat: int) -> int:
    """The seed of one worker's own stream: exploration, shuffling."""
    return _draw(run_seed, _Stream.WORKER, *_name_text(policy), entry, copy, seat)


def policy_seed(run_seed: int, *, policy: str) -> int:
    """The seed that all workers of a policy share: initial weights."""
    return _draw(run_seed, _Stream.POLICY, *_name_text(policy))


def process_seed(run_seed: int, *, tick: int) -> int:
    """The seed of the global streams of a process that several roles share, for the leg that begins at a tick."""
    return _draw(run_seed, _Stream.PROCESS, tick)


def reseed(seed: int, *, restarts: int) -> int:
    """The seed of a lane with the first seed `seed`, whose game has been created again `restarts` times."""
    return _draw(seed, _Stream.RESTART, restarts)


def _draw(run_seed: int, stream: _Stream, *place: int) -> int:
    sequence = np.random.SeedSequence(run_seed, spawn_key=(int(stream), *place))
    return int(sequence.generate_state(1, np.uint32)[0])


def _name_text(name: str) -> tuple[int, ...]:
    """A name as 32-bit words, the same in every process (`hash` is not)."""
    digest = hashlib.sha256(name.encode()).digest()[:_NAME_BYTES]
    return tuple(int(word) for word in np.frombuffer(digest, "<u4"))
