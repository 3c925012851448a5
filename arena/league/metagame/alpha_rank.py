"""Alpha-rank: how often players are played in the long run, if each is replaced by players that beat it.

Omidshafiei et al. 2019, "alpha-Rank: Multi-Agent Evaluation by Evolution", arXiv 1903.01373. A population of m all
plays one strategy s; now and then a mutant r appears, and takes over with the probability rho(r, s) (their equation
12) or dies out. The rank of a strategy is how long the population plays it, in the stationary distribution of that
Markov chain.

Here selection is as strong as can be, the limit alpha -> infinity, taken exactly: a mutant takes over if it beats the
resident, never if it loses, and with probability 1/m, by drift, if they draw. In a general game the result can depend
on the order of limits, because a chain may have several sets that it never leaves; one then takes a large alpha. Here,
one of any two players is replaced by the other, or each by the other, so there is a single such set, with one
stationary distribution. A finite alpha would add a constant without a natural choice, and powers of e that over- and
underflow.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from arena.league.metagame.posterior import Estimate, Floats, leads, over_posterior

_DRAW = 1e-12  # of the largest lead: what is smaller is rounding
POPULATION = 50  # m of the paper's examples; it matters only where players draw


def alpha_rank(payoffs: ArrayLike, *, population: int = POPULATION) -> Floats:
    """The share of time `[P]` that each player is played; 0 for all outside of the one set that is never left.

    Args:
        payoffs: `[P, P]`, row against column; the sum of [i, j] and [j, i] is the same everywhere.
        population: m, at least 2.

    Raises:
        ValueError: they are not such a matrix, or the population is smaller.
    """
    if population < 2:
        raise ValueError(f"got a population of {population}, expected at least 2")
    moves = _transitions(leads(payoffs), population)
    stays = _never_left(moves)
    shares = np.zeros(len(moves))
    shares[stays] = _stationary(moves[np.ix_(stays, stays)])
    return shares


def alpha_rank_with_uncertainty(samples: Floats, *, population: int = POPULATION) -> Estimate:
    """`alpha_rank` `[P]` over samples `[n, P, P]` of the posterior of the payoffs."""
    return over_posterior(samples, lambda payoffs: alpha_rank(payoffs, population=population))


def _transitions(ahead: Floats, population: int) -> Floats:
    """The Markov chain `[P, P]`, from row to column: each mutant is as likely as any other."""
    others = max(1, len(ahead) - 1)
    beaten_by = -ahead  # [s, r]: how far the mutant r is ahead of the resident s
    draws = np.abs(ahead) <= _DRAW * np.abs(ahead).max(initial=0.0)
    takes_over = np.where(draws, 1 / population, beaten_by > 0)
    moves = takes_over / others
    np.fill_diagonal(moves, 0.0)
    np.fill_diagonal(moves, 1 - moves.sum(axis=1))
    return moves


def _never_left(moves: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which states `[P]` are in the one strongly connected component that no move leads out of."""
    count, component = connected_components(moves > 0, connection="strong")
    sources, targets = np.nonzero(moves)
    left = np.zeros(count, np.bool_)
    left[component[sources[component[sources] != component[targets]]]] = True
    return np.asarray(~left[component])


def _stationary(moves: Floats) -> Floats:
    """The stationary distribution `[S]` of an irreducible chain: pi (T - I) = 0, and the sum of pi is 1."""
    equations = (moves - np.eye(len(moves))).T
    equations[-1] = 1.0  # replaces an equation that follows from the others
    return np.linalg.solve(equations, np.eye(len(moves))[-1])
