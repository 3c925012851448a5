"""Actions for served games: a pure function of an algorithm, whose memory the server keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

Random = Sequence[np.random.Generator] | None


class Served(NamedTuple):
    """What `served()` of an algorithm returns.

    Attributes:
        memory_size: numbers that a row remembers; 0: none.
        act: `act(observations, masks, memory, random)`: a batched sample [K, ...], int8 [K, mask_size] or None, float32
            [K, memory_size], and a generator for each row, or None for the best actions; returns the actions as the
            environment takes them [K, ...], and the memory after them.
    """

    memory_size: int
    act: Callable[[Any, NDArray[np.int8] | None, NDArray[np.float32], Random], tuple[Any, NDArray[np.float32]]]


def torch_generators(random: Sequence[np.random.Generator]) -> list[torch.Generator]:
    """A torch generator for each, seeded with a number that it draws."""
    return [torch.Generator().manual_seed(int(generator.integers(2**63))) for generator in random]
