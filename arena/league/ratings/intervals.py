"""95 % intervals of what was measured a few times: of a mean, and of a share of games."""

from __future__ import annotations

import math

_Z = 1.959964  # the normal distribution's 97.5 % point


def half_of_mean(count: int, deviation: float, *, error: float = 0.05) -> float | None:
    """The half of the interval of a mean of independent numbers, by Student's t; None for one number.

    It is 2.3 times that of the normal distribution for 3 numbers. The deviation is the standard one (n - 1); the
    interval misses the truth with the probability `error`.
    """
    if count < 2:
        return None
    from scipy.special import stdtrit  # slow to import, and most processes need no interval

    return float(stdtrit(count - 1, 1 - error / 2)) * deviation / math.sqrt(count)


def of_share(wins: float, games: float) -> tuple[float, float]:
    """The score interval of a share of at least one game, of which halves may be won.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    rate, z2 = wins / games, _Z * _Z
    center = (rate + z2 / (2 * games)) / (1 + z2 / games)
    half = _Z * math.sqrt(rate * (1 - rate) / games + z2 / (4 * games * games)) / (1 + z2 / games)
    return max(0.0, center - half), min(1.0, center + half)
