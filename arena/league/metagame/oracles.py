"""The meta-game of policy-space response oracles (Lanctot et al. 2017, arXiv 1711.00832): its players and its solution.

A strategy is a player that never changes: a snapshot, or a policy that does not learn. A payoff is the mean margin of
the row's player in its games against the column's, half the difference of the returns of their sides: in a zero-sum
game its return. With `versus` the rows are the strategies of the first side and the columns those of the second; else
both are those of one population, and a payoff is the mean over both sides.

    nash        the equilibrium of largest entropy, see `measures`
    uniform     all strategies alike, as in fictitious play
    alpha_rank  the stationary distribution, see `measures`; of one population
    rectified   the equilibrium; a learner meets of it only those that its newest snapshot does not lose against
                (Balduzzi et al. 2019, arXiv 1901.08106)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arena.league.metagame.measures import alpha_rank, nash_average
from arena.league.timeline import Timeline

Floats: TypeAlias = NDArray[np.float64]

_NONE = 1e-6  # smaller weights are rounding of the solvers


class MetaGame(NamedTuple):
    """The strategies and their payoffs."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]  # the same as the rows where there is one population
    payoffs: Floats  # float64 [rows, columns]; NaN: the two have not met
    games: Floats  # likewise the games that they are the mean of

    @property
    def two_populations(self) -> bool:
        """Whether rows and columns are different strategies."""
        return self.rows != self.columns

    def to_meet(self, solver: str, least: int, newest: Collection[str] = ()) -> list[tuple[str, str]]:
        """The pairs that have not met; if there are none, those with too few games of a mixture and the `newest`."""
        cells = np.argwhere(np.isnan(self.payoffs)).tolist()
        if not cells and least > 1:
            mixtures = self.solved(solver)
            first, second = {*mixtures[0], *newest}, {*mixtures[-1], *newest}
            few = np.argwhere(self.games < least).tolist()
            cells = [cell for cell in few if self.rows[cell[0]] in first and self.columns[cell[1]] in second]
        return [(self.rows[one], self.columns[two]) for one, two in cells if self.two_populations or one < two]

    def solved(self, solver: str) -> tuple[dict[str, float], ...]:
        """The mixture of each population by a solver, without strategies of no weight; pairs that have not met draw."""
        payoffs = np.nan_to_num(self.payoffs, nan=0.0)
        if solver == "uniform":
            found = [np.full(len(names), 1 / len(names)) for names in (self.rows, self.columns)]
        elif self.two_populations:
            found = [*equilibrium_of_two(payoffs)]
        else:
            found = [alpha_rank(payoffs) if solver == "alpha_rank" else nash_average(payoffs).strategy]
        populations = (self.rows, self.columns) if self.two_populations else (self.rows,)
        return tuple(
            {name: weight for name, weight in zip(names, mixture.tolist(), strict=True) if weight > _NONE}
            for names, mixture in zip(populations, found, strict=False)
        )


def meta_game(timeline: Timeline, rows: list[str], columns: list[str]) -> MetaGame:
    """The meta-game of strategies, from their games; equal rows and columns are one population."""
    totals = _totals(timeline)
    one = rows == columns
    payoffs = np.full((len(rows), len(columns)), np.nan)
    games = np.zeros_like(payoffs)
    for row, column in np.ndindex(payoffs.shape):
        pair = rows[row], columns[column]
        games[row, column] = sum(totals[key][0] for key in {pair, pair[::-1]} & totals.keys())
        if one and row == column:
            payoffs[row, column] = 0.0
        elif (mean := mean_margin(totals, *pair)) is not None:
            payoffs[row, column] = mean
    return MetaGame(tuple(rows), tuple(columns), payoffs, games)


def progress(timeline: Timeline, learner: str, mixture: Mapping[str, float], *, since: int) -> list[float]:
    """Per round from the tick `since` on in which a learner has played, its mean margin against a mixture."""
    found = []
    for start in range(since, timeline.end, timeline.round_ticks):
        totals = _totals(timeline, number=start // timeline.round_ticks)
        met = {name: mean_margin(totals, learner, name) for name in mixture}
        known = [(mixture[name], margin) for name, margin in met.items() if margin is not None]
        if known:
            found.append(sum(weight * margin for weight, margin in known) / sum(weight for weight, _ in known))
    return found


def equilibrium_of_two(payoffs: Floats) -> tuple[Floats, Floats]:
    """The equilibrium of largest entropy of a zero-sum game `[m, n]`: the strategies of rows and of columns.

    Found as that of a symmetric game of m + n + 1 strategies (Gale, Kuhn, Tucker 1950), in which rows earn what columns
    pay, and a last strategy compares the shares of the two.
    """
    rows, columns = payoffs.shape
    paid = payoffs - payoffs.min() + max(1.0, float(np.ptp(payoffs)))  # all above 0
    symmetric = np.zeros((rows + columns + 1,) * 2)
    symmetric[:rows, rows:-1], symmetric[:rows, -1], symmetric[-1, rows:-1] = paid, -paid.max(), -paid.max()
    symmetric -= symmetric.T
    mixed = nash_average(symmetric).strategy
    first, second = mixed[:rows], mixed[rows:-1]
    return first / first.sum(), second / second.sum()


def mean_margin(totals: Mapping[tuple[str, str], tuple[int, float]], player: str, other: str) -> float | None:
    """The mean margin of a player against another one, each side with equal weight; None: they have not met."""
    sides = [(*totals[key], sign) for key, sign in (((player, other), 1), ((other, player), -1)) if key in totals]
    return sum(sign * total / games for games, total, sign in sides) / len(sides) if sides else None


def _totals(timeline: Timeline, *, number: int | None = None) -> Mapping[tuple[str, str], tuple[int, float]]:
    """Per pair of players, the first side first, its games and the sum of their margins, of one round or of all."""
    games, total = Counter[tuple[str, str]](), defaultdict[tuple[str, str], float](float)
    for (at, first, second), margin in timeline.margins.items():
        if number in (None, at):
            games[first, second] += margin.games
            total[first, second] += margin.total
    return {pair: (count, total[pair]) for pair, count in games.items()}
