"""Nash averaging: how good each player is against the mixture of players that no player beats.

Balduzzi, Tuyls, Perolat, Graepel 2018, "Re-evaluating Evaluation", arXiv 1806.02643. The mixture is the equilibrium of
the symmetric meta-game with the largest entropy. A plain mean over all opponents changes if copies of one of them, or
weak players, are added. Here weak players have no weight, and copies share the weight of their original, if the
equilibrium is unique but for the copies. (If there are several, as among players that all draw, a copy counts as one
more player.)

    support    by one linear program: every player that some equilibrium plays
    freedom    the directions in which an equilibrium can move on that support; mostly none: then it is unique
    spread     the largest entropy along them, by sequential quadratic programming

Only exactly equal players share the weight: for nearly equal ones the mixture jumps where a payoff passes through a
draw. Its mean over the posterior of the payoffs does not, see `nash_average_with_uncertainty`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import null_space
from scipy.optimize import LinearConstraint, minimize

from arena.league.metagame.linear_program import least
from arena.league.metagame.posterior import Estimate, Floats, leads, matrix, over_posterior

_SAME = 1e-9  # of the largest lead: singular values below it are rounding
_TINY = 1e-300  # keeps a logarithm finite


class NashAverage(NamedTuple):
    """The equilibrium of largest entropy, and the payoff of each player against it."""

    strategy: Floats  # [P] probabilities
    skill: Floats  # [P] expected payoff: for players with a weight that of a draw, for others at most that


class NashAverageEstimate(NamedTuple):
    """`NashAverage` with intervals, for payoffs that are not known exactly."""

    strategy: Estimate
    skill: Estimate


def nash_average(payoffs: ArrayLike) -> NashAverage:
    """The equilibrium of largest entropy of a symmetric meta-game, which is unique.

    Args:
        payoffs: `[P, P]`, row against column; the sum of [i, j] and [j, i] is the same everywhere.

    Raises:
        ValueError: they are not such a matrix.
    """
    ahead = leads(payoffs)
    ahead /= np.abs(ahead).max() or 1.0
    some = _widest(ahead)
    plays = some > 0
    strategy = np.zeros_like(some)
    strategy[plays] = _evenest(some[plays], among=ahead[np.ix_(plays, plays)], beside=ahead[np.ix_(~plays, plays)])
    return NashAverage(strategy, matrix(payoffs) @ strategy)


def nash_average_with_uncertainty(samples: Floats) -> NashAverageEstimate:
    """`nash_average` over samples `[n, P, P]` of the posterior of the payoffs."""
    both = over_posterior(samples, lambda payoffs: np.stack(nash_average(payoffs)))  # [2, P]
    strategy, skill = (Estimate(*(part[index] for part in both)) for index in (0, 1))
    return NashAverageEstimate(strategy, skill)


def _widest(ahead: Floats) -> Floats:
    """An equilibrium `[P]` that plays all players that any equilibrium plays.

    Weights w >= 0 that no player beats, (A w)_i <= 0, can be multiplied and added. So all players that can have a
    weight above 0 can have a weight of at least 1 at once, and maximizing the sum of min(1, w_i) finds such weights.
    """
    players = len(ahead)
    nothing, one = np.zeros_like(ahead), np.eye(players)
    solved = least(
        np.repeat([0.0, -1.0], players),  # of w, and of min(1, w)
        rows=np.block([[ahead, nothing], [-one, one]]),
        limits=0.0,
        most=np.repeat([np.inf, 1.0], players),
    )
    weights, counted = np.split(solved.x, 2)
    weights = np.where(counted > 0.5, weights, 0.0)
    return np.asarray(weights / weights.sum())


def _evenest(some: Floats, *, among: Floats, beside: Floats) -> Floats:
    """The equilibrium `[S]` of largest entropy, found from one, `some`, that plays all of the S players.

    All players with a positive weight draw against every equilibrium, and the others do not win. The leads are those
    `[S, S]` among these players, and those `[P - S, S]` of the other players over them.
    """
    draws = np.vstack([among, np.ones_like(some)])
    free = null_space(draws, rcond=_SAME)  # [S, F] directions
    if not free.shape[1]:
        return some
    bound = null_space(free.T).T  # [S - F, S]: the same equations, linearly independent
    still = LinearConstraint(bound, bound @ some, bound @ some)
    not_beaten = LinearConstraint(beside, -np.inf, 0.0)
    found = minimize(
        lambda strategy: float(strategy @ _log(strategy)),
        some,
        jac=lambda strategy: _log(strategy) + 1,
        bounds=[(0, 1)] * len(some),
        constraints=[still, not_beaten] if len(beside) else [still],
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    strategy = np.maximum(found.x, 0.0)
    return np.asarray(strategy / strategy.sum())


def _log(strategy: Floats) -> Floats:
    return np.log(np.maximum(strategy, _TINY))
