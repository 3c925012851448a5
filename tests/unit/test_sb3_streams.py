"""Global random streams: a worker's own during its turn, the process's otherwise."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from policies.sb3.vec_env import GlobalStreams


def draw() -> tuple[Any, ...]:
    return np.random.random(), np.random.randint(1000), float(torch.rand(1)), float(torch.randn(1))


def drawn(streams: GlobalStreams, times: int = 1) -> list[Any]:
    found = []
    for _ in range(times):
        with streams:
            found.append(draw())
    return found


def test_random_stream_of_a_worker_is_isolated() -> None:
    undisturbed = drawn(GlobalStreams(1), 3)
    streams, found = GlobalStreams(1), []
    with streams:
        for _ in range(3):
            found.append(draw())
            with streams.left():
                draw()
                drawn(GlobalStreams(2), 2)
    assert found == undisturbed


def test_random_streams_of_others_are_unaffected() -> None:
    def others(*streams: GlobalStreams) -> list[Any]:
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)
        found = []
        for _ in range(3):
            found.append((*draw(), random.random()))
            for mine in streams:
                with mine:
                    draw()
                    random.seed(9)
                    with mine.left():
                        found.append(draw())
                    draw()
        return found

    alone = others()
    assert others(GlobalStreams(1))[::2] != alone, "draws while the worker waits come from the others' streams"
    np.random.seed(3)
    torch.manual_seed(3)
    expected = [draw() for _ in range(6)]
    assert [found[:4] for found in others(GlobalStreams(1))] == expected


def test_every_key_has_streams_of_its_own() -> None:
    keys = [(1, 0), (2, 0), (1, 1), (1, 0)]
    assert len({drawn(GlobalStreams(*key))[0] for key in keys}) == 3


def test_random_streams_are_restored_after_an_error() -> None:
    before = np.random.get_bit_generator()
    streams = GlobalStreams(1)
    with pytest.raises(ZeroDivisionError), streams, streams.left():
        raise ZeroDivisionError
    assert np.random.get_bit_generator() is before


def test_numpys_stream_can_be_seeded_as_the_library_does() -> None:
    streams = GlobalStreams(1)
    with streams:
        np.random.seed(5)
        first = np.random.random()
    assert first == np.random.RandomState(5).random()
