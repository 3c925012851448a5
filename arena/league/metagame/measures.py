"""The meta-game of a run: its players are the strategies; who is shown in its payoff matrix, and their measures.

    payoffs float64 [P, P]: row against column, so that [i, j] + [j, i] is the same for every pair

**Nash averaging** (Balduzzi, Tuyls, Perolat, Graepel 2018, arXiv 1806.02643): how good each player is against the
equilibrium of largest entropy, a mixture of players that no player beats. Only exactly equal players share the weight:
for nearly equal ones the mixture jumps where a payoff passes through a draw. Its mean over the posterior does not.

**Alpha-rank** (Omidshafiei et al. 2019, arXiv 1903.01373, equation 12) with the limit alpha -> infinity, taken exactly:
a mutant takes over if it beats the resident, never if it loses, and with probability 1/m, by drift, if they draw. One
of any two players is replaced by the other, or each by the other, so a single set of strategies is never left. A finite
alpha would add a constant without a natural choice, and powers of e that over- and underflow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import null_space
from scipy.optimize import LinearConstraint, linprog, minimize
from scipy.sparse.csgraph import connected_components

from arena.league.metagame.payoff import Payoff
from arena.league.ratings.ratings import Interval

Floats: TypeAlias = NDArray[np.float64]

MOST_IN_MATRIX = 24  # players: more cells than 24 x 24 are not readable
SAMPLES = 200  # of the payoffs' posterior
POPULATION = 50  # m of the alpha-rank paper's examples; it matters only where players draw

_ROUNDING = 1e-9  # of the largest payoff: what sums of equal payoffs may differ by
_SAME = 1e-9  # of the largest lead: singular values below it are rounding
_DRAW = 1e-12  # of the largest lead: what is smaller is rounding
_TINY = 1e-300  # keeps a logarithm finite


class Measures(msgspec.Struct, frozen=True):
    """The measures of a player; each with its 95 % interval over the posterior of the payoffs."""

    player: str
    nash: Interval  # its probability in the equilibrium of largest entropy
    skill: Interval  # its expected score against that equilibrium, minus that of a draw
    alpha_rank: Interval  # its mass in the stationary distribution


def in_matrix(order: Sequence[str], policies: Collection[str]) -> list[str]:
    """The players of the matrix, of all in this `order`: the leader, the policies, then the strongest snapshots."""
    first = sorted(order, key=lambda player: (player != order[0], player not in policies))
    chosen = {*first[:MOST_IN_MATRIX]}
    return [player for player in order if player in chosen]


def measures(scores: Payoff) -> list[Measures]:
    """The measures of all players of a payoff matrix; the same for the same matrix."""
    ends = over_posterior(scores.sample(np.random.default_rng(0), SAMPLES))
    ends[:, 1] -= 0.5
    return [
        Measures(player, *(Interval(*ends[:, kind, place].tolist()) for kind in range(3)))
        for place, player in enumerate(scores.players)
    ]


def over_posterior(samples: Floats) -> Floats:
    """The uncertainty of the payoffs, propagated by computing every measure for many matrices of their posterior.

    Returns:
        float64 `[3, 3, P]`: mean, low and high of weight in the equilibrium, payoff against it, and alpha-rank.
    """
    found = np.stack([np.stack([*nash_average(payoffs), alpha_rank(payoffs)]) for payoffs in samples])
    mean, (low, high) = found.mean(axis=0), np.quantile(found, (0.025, 0.975), axis=0)
    return np.stack([mean, np.minimum(low, mean), np.maximum(high, mean)])  # nearly all values may be the same


class NashAverage(NamedTuple):
    """The equilibrium of largest entropy, and the payoff of each player against it."""

    strategy: Floats  # [P] probabilities
    skill: Floats  # [P] expected payoff: for players with a weight that of a draw, for others at most that


def nash_average(payoffs: ArrayLike) -> NashAverage:
    """The equilibrium of largest entropy of a symmetric meta-game `[P, P]`, which is unique.

    Raises:
        ValueError: the sum of [i, j] and [j, i] is not the same everywhere.
        ArithmeticError: the solver of linear programs has failed.
    """
    matrix, ahead = _game(payoffs)
    ahead /= np.abs(ahead).max() or 1.0
    players = len(ahead)
    # An equilibrium that plays all players that any equilibrium plays. Weights w >= 0 that no player beats, A w <= 0,
    # can be multiplied and added. So all players that can have a weight above 0 can have a weight of at least 1 at
    # once, and maximizing the sum of min(1, w_i) finds such weights. HiGHS's dual simplex is the fastest here, but
    # gives up, rarely, where numbers differ by many orders of magnitude; its interior point method does not.
    nothing, one = np.zeros_like(ahead), np.eye(players)
    for method in ("highs-ds", "highs-ipm"):
        solved = linprog(
            np.repeat([0.0, -1.0], players),  # of w, and of min(1, w)
            A_ub=np.block([[ahead, nothing], [-one, one]]),
            b_ub=np.zeros(2 * players),
            bounds=[*[(0, None)] * players, *[(0, 1)] * players],
            method=method,
        )
        if solved.x is not None:
            break
    else:
        raise ArithmeticError(f"no solution of a linear program with {2 * players} unknowns: {solved.message}")
    weights, counted = np.split(solved.x, 2)
    plays = counted > 0.5
    some = weights[plays] / weights[plays].sum()
    strategy = np.zeros(players)
    strategy[plays] = _evenest(some, among=ahead[np.ix_(plays, plays)], beside=ahead[np.ix_(~plays, plays)])
    return NashAverage(strategy, matrix @ strategy)


def _evenest(some: Floats, *, among: Floats, beside: Floats) -> Floats:
    """The equilibrium `[S]` of largest entropy, found from one, `some`, that plays all of the S players.

    All players with a positive weight draw against every equilibrium, and the others do not win. The leads are those
    `[S, S]` among these players, and those `[P - S, S]` of the other players over them.
    """
    draws = np.vstack([among, np.ones_like(some)])
    free = null_space(draws, rcond=_SAME)  # [S, F] directions in which an equilibrium can move
    if not free.shape[1]:  # mostly: it is unique
        return some
    bound = null_space(free.T).T  # [S - F, S]: the same equations, linearly independent
    still = LinearConstraint(bound, bound @ some, bound @ some)
    not_beaten = LinearConstraint(beside, -np.inf, 0.0)
    found = minimize(
        lambda strategy: float(strategy @ np.log(np.maximum(strategy, _TINY))),
        some,
        jac=lambda strategy: np.log(np.maximum(strategy, _TINY)) + 1,
        bounds=[(0, 1)] * len(some),
        constraints=[still, not_beaten] if len(beside) else [still],
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    )
    strategy = np.maximum(found.x, 0.0)
    return np.asarray(strategy / strategy.sum())


def alpha_rank(payoffs: ArrayLike, *, population: int = POPULATION) -> Floats:
    """The share of time `[P]` that each player of a meta-game `[P, P]` is played, by a population of m.

    Raises:
        ValueError: the sum of [i, j] and [j, i] is not the same everywhere.
    """
    _, ahead = _game(payoffs)
    beaten_by = -ahead  # [s, r]: how far the mutant r is ahead of the resident s
    draws = np.abs(ahead) <= _DRAW * np.abs(ahead).max(initial=0.0)
    moves = np.where(draws, 1 / population, beaten_by > 0) / max(1, len(ahead) - 1)  # from row to column
    np.fill_diagonal(moves, 0.0)
    np.fill_diagonal(moves, 1 - moves.sum(axis=1))
    # The one strongly connected component that no move leads out of has all of the mass.
    count, component = connected_components(moves > 0, connection="strong")
    sources, targets = np.nonzero(moves)
    left = np.zeros(count, np.bool_)
    left[component[sources[component[sources] != component[targets]]]] = True
    stays = ~left[component]
    inner = moves[np.ix_(stays, stays)]
    equations = (inner - np.eye(len(inner))).T  # pi (T - I) = 0
    equations[-1] = 1.0  # the sum of pi is 1; replaces an equation that follows from the others
    shares = np.zeros(len(moves))
    shares[stays] = np.linalg.solve(equations, np.eye(len(inner))[-1])
    return shares


def _game(payoffs: ArrayLike) -> tuple[Floats, Floats]:
    """The payoffs as float64 [P, P], and how far each row is ahead of half the sum: antisymmetric, 0 is a draw."""
    found = np.asarray(payoffs, np.float64)
    square = found.ndim == 2 and found.size > 0 and found.shape[0] == found.shape[1] and bool(np.isfinite(found).all())
    if not square or np.ptp(found + found.T) > _ROUNDING * max(1.0, float(np.abs(found).max())):
        raise ValueError(
            f"payoffs of shape {found.shape}; expected a square matrix of finite numbers in which [i, j] + [j, i] is "
            "the same everywhere"
        )
    return found, (found - found.T) / 2
