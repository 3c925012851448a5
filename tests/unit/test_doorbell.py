"""The doorbell of a process: rings, their receivers, and full pipes."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from arena.transport.doorbell import Doorbell


@pytest.fixture
def bells() -> Iterator[tuple[Doorbell, Doorbell]]:
    """Two doorbells; the first is connected to the second, as rank 1."""
    ours, theirs = Doorbell(), Doorbell()
    ours.connect(1, theirs.address)
    yield ours, theirs
    for bell in (ours, theirs):
        bell.close()


def test_rings_are_heard_at_a_descriptor_of_any_number(bells: tuple[Doorbell, Doorbell]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard) if hard > 0 else 4096, hard))
    try:
        low = bells[0]._read
        bells[0]._read = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)  # `select` takes only those below
        os.close(low)
        assert list(bells[0].poll(0.01)) == []
        bells[0].local_ringer(3)()
        assert list(bells[0].poll(5.0)) == [3]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
