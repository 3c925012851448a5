"""Linear programs, solved by HiGHS: to a vertex, so mostly to rounding and not to a tolerance.

Its dual simplex is the fastest here, but gives up, rarely, where numbers differ by many orders of magnitude; its
interior point method, which ends at a vertex too, does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from arena.league.metagame.posterior import Floats


class Optimum(NamedTuple):
    """The x of least cost, and the price of each limit."""

    x: Floats  # [n]
    prices: Floats  # [k] at least 0: by how much the cost would fall per unit that a limit is raised


def least(
    cost: Floats,
    *,
    rows: Floats,
    limits: float | Floats,
    sums: Floats | None = None,
    totals: Floats | None = None,
    most: float | Floats = np.inf,
) -> Optimum:
    """The x with `0 <= x <= most`, `rows @ x <= limits` and `sums @ x == totals` whose cost is least.

    Args:
        cost: `[n]`.
        rows: `[k, n]`.
        limits: `[k]`, or one number for all.
        sums: `[e, n]`; None: there are no such equations.
        totals: `[e]`.
        most: `[n]`, or one number for all.

    Raises:
        ArithmeticError: the solver has found none.
    """
    bounds = np.stack(np.broadcast_arrays(0.0, np.broadcast_to(most, rows.shape[1])), axis=1)
    above = np.broadcast_to(limits, len(rows))
    for method in ("highs-ds", "highs-ipm"):
        found = linprog(cost, A_ub=rows, b_ub=above, A_eq=sums, b_eq=totals, bounds=bounds, method=method)
        if found.x is not None:
            return Optimum(np.asarray(found.x), np.asarray(-found.ineqlin.marginals))
    raise ArithmeticError(f"no solution of a linear program with {rows.shape[1]} unknowns: {found.message}")
