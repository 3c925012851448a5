"""The process's global random streams, as if they were one worker's own.

Stable-Baselines3 draws from numpy's and torch's global streams. Workers that share a process would draw from the same
ones, and the draws of each would depend on the others. So a worker holds streams of its own, and exchanges them with
the process's ones whenever it takes its turn:

    with streams:                      the worker's are the global ones
        ...
        with streams.left():           while it waits: others draw from the process's
            env.step(actions)

One worker at a time has its turn; the roles of a process take turns anyway, and other threads wait here.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_TURN = threading.RLock()  # held by the worker whose streams are the global ones


class GlobalStreams:
    """Streams of numpy and torch (CPU) that can take the place of the global ones.

    Python's own `random`, which the library seeds and does not draw from, is restored at the end.

    Args:
        key: non-negative integers; the streams of another key are others.
    """

    def __init__(self, *key: int) -> None:
        numpy_seed, torch_seed = np.random.SeedSequence(key).spawn(2)
        self._numpy: np.random.BitGenerator = np.random.MT19937(numpy_seed)  # the kind that the library can seed
        self._torch = torch.Generator().manual_seed(int(torch_seed.generate_state(1, np.uint32)[0])).get_state()
        self._python: object = None

    def __enter__(self) -> None:
        _TURN.acquire()
        self._python = random.getstate()
        self._exchange()

    def __exit__(self, *error: object) -> None:
        self._exchange()
        random.setstate(self._python)  # type: ignore[arg-type]
        _TURN.release()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Inside of `with streams`: the process's streams are back for a while."""
        self._exchange()
        _TURN.release()
        try:
            yield
        finally:
            _TURN.acquire()
            self._exchange()

    def _exchange(self) -> None:
        """Swaps the global streams and those kept here; a normal number that numpy has drawn ahead is dropped."""
        others = np.random.get_bit_generator(), torch.get_rng_state()  # type: ignore[attr-defined]
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        torch.set_rng_state(self._torch)
        self._numpy, self._torch = others
