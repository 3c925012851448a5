"""Intervals of what was measured a few times, by default 95 % ones: of a mean, and of a share of games."""

from __future__ import annotations

import math
from statistics import NormalDist


def half_of_mean(count: int, deviation: float, *, error: float = 0.05) -> float | None:
    """The half of the interval of a mean of independent numbers, by Student's t; None for one number.

    It is 2.3 times that of the normal distribution for 3 numbers. The deviation is the standard one (n - 1); the
    interval misses the truth with the probability `error`.
    """
    if count < 2:
        return None
    from scipy.special import stdtrit  # slow to import, and most processes need no interval

    return float(stdtrit(count - 1, 1 - error / 2)) * deviation / math.sqrt(count)


def of_share(wins: float, games: float, *, error: float = 0.05) -> tuple[float, float]:
    """The score interval of a share of at least one game, of which halves may be won.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    rate, z = wins / games, NormalDist().inv_cdf(1 - error / 2)
    z2 = z * z
    center = (rate + z2 / (2 * games)) / (1 + z2 / games)
    half = z * math.sqrt(rate * (1 - rate) / games + z2 / (4 * games * games)) / (1 + z2 / games)
    return max(0.0, center - half), min(1.0, center + half)
