"""Random streams of a worker: one for each purpose, each from a key of its own."""

from __future__ import annotations

import numpy as np
import torch

EXPLORING, ACTING, REPLAYING = range(3)  # what a stream is for: learning, playing without learning, replay


def stream(*key: int) -> torch.Generator:
    """A random stream of its own for every key, such as (group.seed, EXPLORING)."""
    seed = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))
