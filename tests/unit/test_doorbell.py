"""The doorbell of a process: rings, their receivers, and full pipes."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from arena.transport.doorbell import LOST, Doorbell


@pytest.fixture
def bells() -> Iterator[tuple[Doorbell, Doorbell]]:
    """Two doorbells; the first is connected to the second, as rank 1."""
    ours, theirs = Doorbell(), Doorbell()
    ours.connect(1, theirs.address)
    yield ours, theirs
    for bell in (ours, theirs):
        bell.close()


def fill(descriptor: int) -> int:
    """Writes into a pipe until it is full; returns the number of bytes."""
    written = 0
    os.set_blocking(descriptor, False)
    for size in (4096, 4):
        try:
            while True:
                written += os.write(descriptor, bytes(size))
        except BlockingIOError:
            continue
    os.set_blocking(descriptor, True)
    return written


def test_rings_are_heard_at_a_descriptor_of_any_number(bells: tuple[Doorbell, Doorbell]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard) if hard > 0 else 4096, hard))
    try:
        low = bells[0]._read
        bells[0]._read = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)  # `select` takes only those below
        os.close(low)
        assert list(bells[0].poll(0.01)) == []
        bells[0].wake_all()
        assert list(bells[0].poll(5.0)) == [LOST]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_wake_all_rings_for_all_processes_and_for_itself(bells: tuple[Doorbell, Doorbell]) -> None:
    bells[0].wake_all()
    assert [list(bell.poll()) for bell in bells] == [[LOST], [LOST]]


def test_wake_all_skips_a_full_pipe(bells: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = bells
    filled = fill(ours.address.descriptor)
    ours.wake_all()
    assert list(theirs.poll()) == [LOST]
    heard = 0
    while words := ours.poll():
        assert LOST not in words
        heard += 4 * len(words)
    assert heard == filled, "a full pipe wakes its reader anyway"


def test_wake_all_skips_a_process_that_has_ended(bells: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = bells
    gone = Doorbell()
    ours._others = {2: os.dup(gone.address.descriptor), **ours._others}
    gone.close()
    ours.wake_all()
    assert list(theirs.poll()) == [LOST]
