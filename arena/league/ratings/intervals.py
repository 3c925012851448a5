"""95 % intervals of what was measured a few times: of a mean, and of a share of games."""

from __future__ import annotations

import math

_Z = 1.959964  # the normal distribution's 97.5 % point


def half_of_mean(count: int, deviation: float, *, error: float = 0.05) -> float | None:
    """The half of the interval of a mean, by Student's t: 2.3 times that of the normal distribution for 3 numbers.

    Args:
        count: of the numbers, which are independent of each other.
        deviation: their standard deviation (n - 1).
        error: the probability that the interval does not hold the truth; 0.05 for an interval of 95 %.

    Returns:
        None for one number, whose spread is not known.
    """
    if count < 2:
        return None
    from scipy.special import stdtrit  # slow to import, and most processes need no interval

    return float(stdtrit(count - 1, 1 - error / 2)) * deviation / math.sqrt(count)


def of_share(wins: float, games: int) -> tuple[float, float]:
    """The score interval of a share of games.

    Args:
        wins: may hold halves of games.
        games: at least one.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    rate, z2 = wins / games, _Z * _Z
    center = (rate + z2 / (2 * games)) / (1 + z2 / games)
    half = _Z * math.sqrt(rate * (1 - rate) / games + z2 / (4 * games * games)) / (1 + z2 / games)
    return max(0.0, center - half), min(1.0, center + half)
