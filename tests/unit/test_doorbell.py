"""The doorbell of a process: who rings, who hears, and what a full pipe does to them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from arena.transport.doorbell import LOST, Doorbell


@pytest.fixture
def bells() -> Iterator[tuple[Doorbell, Doorbell]]:
    """Two bells, of which the first knows the second as rank 1."""
    ours, theirs = Doorbell(), Doorbell()
    ours.meet(1, theirs.address)
    yield ours, theirs
    for bell in (ours, theirs):
        bell.close()


def fill(descriptor: int) -> int:
    """Writes into a pipe until it takes no more; returns the bytes that it took."""
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


def test_a_cry_reaches_everybody_the_crier_included(bells: tuple[Doorbell, Doorbell]) -> None:
    bells[0].cry()
    assert [list(bell.poll()) for bell in bells] == [[LOST], [LOST]]


@pytest.mark.timeout(20)
def test_a_cry_waits_for_no_full_pipe_and_reaches_the_others(bells: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = bells
    filled = fill(ours.address.descriptor)
    ours.cry()
    assert list(theirs.poll()) == [LOST]
    heard = 0
    while words := ours.poll():
        assert LOST not in words
        heard += 4 * len(words)
    assert heard == filled, "its reader is awake as it is"


def test_a_cry_that_one_does_not_hear_who_has_gone_reaches_the_others(bells: tuple[Doorbell, Doorbell]) -> None:
    ours, theirs = bells
    gone = Doorbell()
    ours._others = {2: os.dup(gone.address.descriptor), **ours._others}
    gone.close()
    ours.cry()
    assert list(theirs.poll()) == [LOST]
