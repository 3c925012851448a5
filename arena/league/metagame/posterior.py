"""The meta-game of a league: its players are the strategies, a matrix holds the payoff of each against each.

    payoffs float64 [P, P]: row against column, so that [i, j] + [j, i] is the same for every pair

Expected scores, as of `arena.league.metagame.payoff`, have the sum 1; a zero-sum game has the sum 0. Equilibria are the
same whatever the sum is. The uncertainty of the payoffs is propagated by computing every measure for many matrices
drawn from their posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]

_ROUNDING = 1e-9  # of the largest payoff: what sums of equal payoffs may differ by
_INTERVAL = (0.025, 0.975)  # of the posterior, between which 95 % lie


class Estimate(NamedTuple):
    """Mean and 95 % interval of numbers of one shape, over the posterior of the payoffs."""

    mean: Floats
    low: Floats
    high: Floats


def over_posterior(samples: Floats, measure: Callable[[Floats], ArrayLike]) -> Estimate:
    """Mean and interval of a measure of the payoffs, over samples of their posterior.

    Args:
        samples: `[n, ...]` payoffs drawn from their posterior.
        measure: of one sample; its values have the same shape for each.

    Raises:
        ValueError: there are no samples.
    """
    if not len(samples):
        raise ValueError("no samples of the payoffs: draw at least one")
    values = np.stack([np.asarray(measure(sample), np.float64) for sample in samples])  # [n, ...]
    mean, (low, high) = values.mean(axis=0), np.quantile(values, _INTERVAL, axis=0)
    return Estimate(mean, np.minimum(low, mean), np.maximum(high, mean))  # nearly all values may be the same


def matrix(payoffs: ArrayLike) -> Floats:
    """Payoffs as float64 `[m, n]`.

    Raises:
        ValueError: they are no matrix of finite numbers, or have no rows or columns.
    """
    found = np.asarray(payoffs, np.float64)
    if found.ndim != 2 or not found.size or not np.isfinite(found).all():
        raise ValueError(f"payoffs of shape {found.shape}; expected a matrix of finite numbers, not empty")
    return found


def shared_sum(payoffs: Floats) -> float | None:
    """The payoffs of both sides of a pair together; None if that differs between pairs: the game is not symmetric."""
    if payoffs.shape[0] != payoffs.shape[1]:
        return None
    sums = payoffs + payoffs.T
    close = np.ptp(sums) <= _ROUNDING * max(1.0, float(np.abs(payoffs).max()))
    return float(sums.mean()) if close else None


def leads(payoffs: ArrayLike) -> Floats:
    """How far each row is ahead of half the sum: antisymmetric `[P, P]`, 0 is a draw.

    Raises:
        ValueError: the two sides of a pair do not share the same sum everywhere.
    """
    found = matrix(payoffs)
    if shared_sum(found) is None:
        raise ValueError(
            f"payoffs of shape {found.shape}; expected a square matrix in which [i, j] + [j, i] is the same everywhere"
        )
    return (found - found.T) / 2
