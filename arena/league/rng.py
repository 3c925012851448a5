"""Random streams of a league, one for each purpose and round, and draws that keep shares exactly."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What is drawn; it keeps the streams of a round apart. Never renumber: leagues would change."""

    OPPONENTS = 1
    COINS = 2
    EVOLUTION = 3
    RESETS = 4


def stream(seed: int, number: int, purpose: Purpose) -> np.random.Generator:
    """The random numbers for one purpose in one round of a run."""
    return np.random.default_rng(np.random.SeedSequence([seed, number, int(purpose)]))


def systematic(weights: Mapping[str, float], count: int, rng: np.random.Generator) -> list[str]:
    """Draws names so that each comes as often as its share says, to within one (Kitagawa 1996, appendix).

    Of ten draws with shares 0.45 and 0.55 the first comes four or five times, 4.5 times in the mean. Independent draws
    have the same mean, and would leave it out now and then.

    Args:
        weights: of the names, at least 0, not all 0.
        count: how many to draw.
        rng: one number is taken from it.
    """
    shares = np.cumsum([*weights.values()])
    places = (rng.random() + np.arange(count)) / count * shares[-1]
    places = np.minimum(places, np.nextafter(shares[-1], 0.0))  # rounding must not lead behind the last one
    names = [*weights]
    return [names[place] for place in np.searchsorted(shares, places, side="right")]
