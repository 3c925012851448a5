"""The most likely strengths by Newton's method, and how sure they are; dense or sparse, by the number of strengths.

What is minimized is minus the log-posterior of (strengths [P], side, log nu if there are draws), which is convex. With
very many strengths, of which few are tied to each other, its Hessian is sparse. It is factored in the order in which
the nodes were made, that of their ticks, so that the factor is narrow. Nodes that are tied to others far away, such as
snapshots that stay in the league for long, come last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse, special
from scipy.sparse.linalg import splu

from arena.league.ratings.davidson import (
    LOG_NU_DEVIATION,
    PRIOR_DEVIATION,
    Array,
    Fit,
    Games,
    alike,
    chances,
    gram,
    has_maximum,
)

_DENSE = 500  # parameters, up to which dense matrices are the faster
_STEPS = 100
_SUFFICIENT = 1e-4  # least share of its predicted decrease that a step has to reach
_SLOW = 0.5  # of the last predicted decrease: up to it a factor is used again, as it takes as long as 50 solutions
_TURNS = 20  # in which the similarity of draws may change
_CLOSE, _SLIGHT = 0.1, 1e-3  # a similarity has settled if it changes by at most this share of itself, or of this
_NEAR = 1e-6  # predicted decrease, below which rounding hides the actual one
EXACT = 1e-12  # predicted decrease of the last step, which squares the error once more

Places = NDArray[np.intp]
Solve: TypeAlias = Callable[[Array], Array]
"""The product of the inverse of a factored Hessian with a vector [n] or matrix [n, K]."""


def is_close(now: float, before: float) -> bool:
    """Whether a similarity is close to what it was."""
    return abs(now - before) <= _CLOSE * max(before, _SLIGHT)


class Minimum(NamedTuple):
    """The minimum of the function."""

    parameters: Array  # float64 [n], strengths, side, and log nu if there are draws
    solve: Solve  # by the Hessian there


class Problem:
    """The function to minimize: minus the log-likelihood of games, and half of a quadratic form in the strengths.

    Args:
        games: of P players.
        precision: of the strengths: float64 [P] for independent ones, or sparse [P, P] for tied ones.
        prior: whether `precision` fixes the level of the strengths; then log nu has a prior as well. Otherwise the
            shift of all strengths, which games do not determine, is pinned.
    """

    def __init__(self, games: Games, precision: Array | sparse.csr_array, *, prior: bool) -> None:
        self.games = games
        players = games.players
        self._linear = players + 1  # parameters of d
        self.size = self._linear + games.drawn
        rest = np.full(self.size - players, prior * LOG_NU_DEVIATION**-2)
        rest[0] = PRIOR_DEVIATION**-2
        matrix = sparse.diags_array(precision) if isinstance(precision, np.ndarray) else precision
        quadratic = sparse.block_diag([matrix, sparse.diags_array(rest)], format="csr")
        self._dense = self.size <= _DENSE
        pinned = np.zeros(self.size)
        pinned[: players if self._dense else 1] = float(not prior)  # the sum of the strengths; if sparse, the first one
        pins = sparse.csr_array(pinned[None])
        quadratic = sparse.csr_array(quadratic + pins.T @ pins)
        self._quadratic = quadratic.toarray() if self._dense else quadratic
        self._design = games.design if self._dense else sparse.csr_array(games.design)
        self.order: Places | None = None

    def minimum(self, start: Array | None = None, *, done: float = EXACT) -> Minimum:
        """The minimum, searched from `start` on until a step promises to decrease the function by less than `done`."""
        found = np.zeros(self.size) if start is None else start
        value, gradient = self.value_and_gradient(found)
        solve, fresh, best = self._factor(found), True, math.inf
        for _ in range(_STEPS):
            step = solve(gradient)
            promised = float(gradient @ step)
            if not fresh and promised > best * _SLOW:
                solve, fresh = self._factor(found), True
                step = solve(gradient)
                promised = float(gradient @ step)
            length = 1.0
            while True:
                after = found - length * step
                reached, slope = self.value_and_gradient(after)
                if promised < _NEAR or reached <= value - _SUFFICIENT * length * promised:
                    break
                length /= 2
            if promised < done:
                return Minimum(after, solve if fresh else self._factor(found))
            found, value, gradient, best, fresh = after, reached, slope, promised, False
        raise ArithmeticError(f"Newton's method has not converged in {_STEPS} steps")

    def fit(self, minimum: Minimum, at: Places, zero: Places, *, prior: bool) -> Fit:
        """The strengths at some places at the minimum of this function, above the mean of those at `zero`."""
        found = minimum.parameters
        rows = np.append(at, self.games.players)  # the last one is the side
        units = np.zeros((self.size, len(rows) + 1))
        units[rows, np.arange(len(rows))] = 1.0
        units[zero, -1] = 1 / len(zero)
        columns = minimum.solve(units)
        strength = np.append(np.ones(len(at)), 0.0)
        shared = np.outer(strength, columns[rows, -1])  # covariances with the mean, which is taken out
        variance = float(units[:, -1] @ columns[:, -1]) * np.outer(strength, strength)
        return Fit(
            found[rows] - strength * found[zero].mean(),
            columns[rows, :-1] - shared - shared.T + variance,
            math.exp(found[-1]) if self.games.drawn else 0.0,
            prior,
        )

    def value_and_gradient(self, parameters: Array) -> tuple[float, Array]:
        """The function and its slope [n]."""
        counts, decided, found = self.games.counts, self.games.decided, self.chances(parameters)
        wins = _wins(found)
        pull = self._quadratic @ parameters
        likelihood = special.xlogy(counts, found).sum() + special.xlogy(decided, wins).sum()
        surplus = counts - counts.sum(axis=1, keepdims=True) * found  # [M, 3], seen minus expected
        gradient = pull.copy()
        above = decided[:, 0] - decided.sum(axis=1) * wins[:, 0]
        gradient[: self._linear] -= self._design.T @ ((surplus[:, 0] - surplus[:, 2]) / 2 + above)
        gradient[self._linear :] -= surplus[:, 1].sum()
        return float(parameters @ pull / 2 - likelihood), gradient

    def hessian(self, parameters: Array) -> Array | sparse.csc_array:
        """The curvature [n, n]: the covariance of what a game shows, summed over the games, and the quadratic form."""
        count, design = self.games.counts.sum(axis=1), self._design
        found = self.chances(parameters)
        won, drawn, lost = found.T
        weights = count * (won + lost - (won - lost) ** 2) / 4
        weights += self.games.decided.sum(axis=1) * _wins(found).prod(axis=1)
        cross = design.T @ (-count * (won - lost) * drawn / 2)
        last = (count * drawn * (1 - drawn)).sum()
        if self._dense:
            total = self._quadratic.copy()
            total[: self._linear, : self._linear] += gram(design, weights)
            if self.games.drawn:
                total[-1, :-1] += cross
                total[:-1, -1] += cross
                total[-1, -1] += last
            return total
        square = design.T @ (sparse.diags_array(weights) @ design)
        if self.games.drawn:
            column = sparse.csr_array(cross[:, None])
            square = sparse.block_array([[square, column], [column.T, sparse.csr_array([[last]])]])
        return sparse.csc_array(square + self._quadratic)

    def _factor(self, parameters: Array) -> Solve:
        hessian = self.hessian(parameters)
        if isinstance(hessian, np.ndarray):
            return partial(linalg.cho_solve, linalg.cho_factor(hessian, lower=True))
        if self.order is None:
            # The order of elimination: that of the parameters, but those that are tied to others far away come last.
            # How far is chosen so that the factor, a band and full rows below it, has the fewest entries.
            size = self.games.players
            found = hessian.tocoo()
            inside = (found.row < size) & (found.col < size)
            reach = np.zeros(size, np.intp)
            np.maximum.at(reach, found.col[inside], found.row[inside] - found.col[inside])
            bands = 2 ** np.arange(1, 1 + size.bit_length())
            entries = [band + int((reach > band).sum()) for band in bands.tolist()]
            far = reach > bands[int(np.argmin(entries))]
            self.order = np.concatenate([np.flatnonzero(~far), np.flatnonzero(far), np.arange(size, self.size)])
        order = self.order
        permuted = sparse.csc_array(hessian[order][:, order])
        factor = splu(permuted, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})

        def solve(right: Array) -> Array:
            solution = np.empty_like(right)
            solution[order] = factor.solve(right[order])
            return solution

        return solve

    def chances(self, parameters: Array) -> Array:
        """The chances of a win, a draw and a loss in each row of the games, float64 [M, 3]."""
        log_nu = float(parameters[-1]) if self.games.drawn else -np.inf
        return chances(self._design @ parameters[: self._linear], log_nu)


def _wins(chances: Array) -> Array:
    """The chances of a win and a loss in games that are decided, float64 [M, 2]."""
    ends = chances[:, ::2]
    return ends / ends.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]


def most_likely(games: Games) -> Fit:
    """The maximum of the likelihood, or of the posterior where the likelihood has none."""
    count = games.players
    if not count:
        return Fit(np.zeros(1), np.zeros((1, 1)), 0.0, False)
    prior = not has_maximum(games)
    problem = Problem(games, np.full(count, prior * PRIOR_DEVIATION**-2), prior=prior)
    minimum, similarity = problem.minimum(), 0.0
    for _ in range(_TURNS if games.drawn else 0):
        drawn, played = problem.chances(minimum.parameters)[:, 1], games.counts.sum(axis=1)
        now = alike(games.counts[:, 1] - played * drawn, played * drawn * (1 - drawn), played, 1.0)  # nu is fitted
        if is_close(now, similarity):
            break
        similarity, problem.games = now, games.with_alike_draws(now)
        minimum = problem.minimum(minimum.parameters)
    places = np.arange(count)
    return problem.fit(minimum, places, places, prior=prior)._replace(similarity=similarity)
