"""Numbers of observations that are too large for a network as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

from arena.game.spaces import leaf_spaces, leaves_of

_LARGE = 1000.0  # networks learn from numbers around 1; with an id up to 5,000 PPO was worse than a random policy
_COARSE = 0.001  # a distance between neighbors in float32 that is named
_NAMED = 3


def large_numbers(space: Space[Any], leaves: Sequence[Any]) -> str:
    """A sentence about numbers that are far beyond what a network learns from; empty if there are none.

    Args:
        space: one observation.
        leaves: of a batch of observations, arrays [N, ...], of ragged ones the items, in the order of `leaves_of`.
    """
    found: list[str] = []
    largest = coarsest = 0.0
    for leaf, part, values in zip(leaves_of(space, ragged=True), leaf_spaces(space), leaves, strict=False):
        box = part.feature_space if isinstance(part, spaces.Sequence) else part
        array = np.asarray(values)
        if not isinstance(box, spaces.Box) or box.dtype == np.uint8 or not array.size:
            continue  # choices become one-hot vectors, bytes are scaled
        numbers = np.abs(array.reshape(len(array), -1).astype(np.float64))
        sizes = np.max(numbers, axis=0, initial=0.0, where=np.isfinite(numbers))
        for index in np.flatnonzero(sizes >= _LARGE):
            within = "".join(f"[{place}]" for place in np.unravel_index(index, box.shape))
            found.append(f"observation{leaf.place}{within}")
            largest = max(largest, float(sizes[index]))
            if box.dtype.itemsize > 4 or box.dtype in (np.int32, np.uint32):
                coarsest = max(coarsest, float(np.spacing(np.float32(sizes[index]))))
    if not found:
        return ""
    names = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    lost = f"; in float32, as networks take them, neighbors differ by {coarsest:g}" if coarsest > _COARSE else ""
    return (
        f"{names}: numbers up to {largest:,.10g}, far beyond what a network learns from (about -10 to 10){lost}. Set "
        "normalize_observations: true in the options of the policy, or scale them in the game"
    )
