"""Equilibria of zero-sum matrix games by linear programming, and how far a strategy is from one.

What the row player gets, the column player loses; `m` and `n` are how many pure strategies they have. Any matrix will
do, symmetric or not: the meta-game of a league, or a small game written out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arena.league.metagame.linear_program import least
from arena.league.metagame.posterior import Estimate, Floats, matrix, over_posterior, shared_sum

_NOT_ONE = 1e-6  # how far the sum of a strategy's probabilities may be from 1


class Equilibrium(NamedTuple):
    """A pair of strategies from which neither player gains by deviating, and the payoff of the row player."""

    value: float
    row: Floats  # [m]
    column: Floats  # [n]


def equilibrium(payoffs: ArrayLike) -> Equilibrium:
    """One equilibrium (there may be several, all of the same value), by von Neumann's linear program.

    The row player's strategy x maximizes v with (x A)_j >= v for every column j; the column player's is its dual.

    Args:
        payoffs: `[m, n]` of the row player.

    Raises:
        ValueError: no matrix of finite numbers.
    """
    given = matrix(payoffs)
    low, span = float(given.min()), float(np.ptp(given)) or 1.0
    scaled = (given - low) / span  # to [0, 1], where the solver's tolerances mean the same for every game
    m, n = scaled.shape
    solved = least(
        np.append(np.zeros(m), -1.0),  # of x, and of v, which is not below 0 either
        rows=np.column_stack([-scaled.T, np.ones(n)]),
        limits=0.0,  # v - (x A)_j <= 0
        sums=np.append(np.ones(m), 0.0)[None],
        totals=np.ones(1),
    )
    return Equilibrium(low + span * float(solved.x[m]), _distribution(solved.x[:m]), _distribution(solved.prices))


def value(payoffs: ArrayLike) -> float:
    """What the row player gets when both play an equilibrium; half of the shared sum in a symmetric game.

    Raises:
        ValueError: no matrix of finite numbers.
    """
    given = matrix(payoffs)
    shared = shared_sum(given)
    return equilibrium(given).value if shared is None else shared / 2


def exploitability(payoffs: ArrayLike, strategy: ArrayLike) -> float:
    """How far a strategy of the row player falls below the game's value against a best response: 0 in an equilibrium.

    For a strategy y of the column player it is `exploitability(-payoffs.T, y)`.

    Args:
        payoffs: `[m, n]` of the row player.
        strategy: `[m]` probabilities.

    Raises:
        ValueError: no matrix of finite numbers, or no probabilities of its rows.
    """
    given, shares = matrix(payoffs), np.asarray(strategy, np.float64)
    if shares.shape != (len(given),) or not (shares >= 0).all() or abs(shares.sum() - 1) > _NOT_ONE:
        raise ValueError(f"got the strategy {shares!r}, expected {len(given)} probabilities, the sum of which is 1")
    worst = float((shares @ given).min())
    return max(0.0, value(given) - worst)


def value_with_uncertainty(samples: Floats) -> Estimate:
    """The value of a game, over samples `[n, ...]` of the posterior of its payoffs."""
    return over_posterior(samples, value)


def exploitability_with_uncertainty(samples: Floats, strategy: ArrayLike) -> Estimate:
    """The exploitability of a fixed strategy, over samples `[n, ...]` of the posterior of the payoffs.

    Each sample has a best response of its own, so with few games the mean lies above the exploitability at the mean of
    the payoffs: among many opponents of which little is known, some are likely to be strong.

    Raises:
        ValueError: no samples, or no probabilities of their rows.
    """
    return over_posterior(samples, lambda payoffs: exploitability(payoffs, strategy))


def _distribution(found: Floats) -> Floats:
    """Probabilities without what rounding has left below 0."""
    positive = np.maximum(found, 0.0)
    return np.asarray(positive / positive.sum())
