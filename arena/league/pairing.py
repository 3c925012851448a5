"""Which pair to play next, and whether the order of all players is decided.

Both look at neighbours in the standings: the order is right if all neighbours stand right. `elo` is the difference
that the games are to resolve; of players that are closer than that, either order will do.

**When to stop** is a sequential test of every two neighbours: the upper one is `elo` better, or the lower one is. The
likelihoods of the two cases are those of all games, with everybody else moved along as the covariance of the ratings
says. Between two players alone it is Wald's test (1945). With the ratio of the likelihoods r, the two stand wrong with
probability 1 / (1 + r); the order is decided when these probabilities add up to no more than the error.

**What to play** is the pair whose game is expected to lower this sum most. A game adds its information to the
posterior of all strengths, so it tells also of neighbours who do not take part in it. A difference below `elo` is taken
for `elo` here: otherwise nothing would be hoped of games between players that look equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from arena.league import davidson
from arena.league.results import Results

Array: TypeAlias = NDArray[np.float64]

RESOLUTION = 20.0  # Elo


def most_informative(
    results: Results, players: Sequence[str], *, count: int = 1, games: int = 1, elo: float = RESOLUTION
) -> list[tuple[str, str]]:
    """The pairs whose games would change the standings most, the most urgent one first.

    They are chosen one after the other, as if the games of those before had been played: a pair may come several
    times. The same results give the same pairs.

    Args:
        results: all games so far.
        players: who can be paired; at least two.
        count: how many pairs.
        games: how many each of them plays.
        elo: the difference to resolve.

    Raises:
        ValueError: there are fewer than two players.
    """
    if len(players) < 2:
        raise ValueError(f"a pair needs two players, got {list(players)}")
    standings = Standings(results, players, elo=elo)
    return [standings.next_pair(games=games) for _ in range(count)]


def decided(results: Results, players: Sequence[str], error: float = 0.05, *, elo: float = RESOLUTION) -> bool:
    """Whether the order of all players is decided.

    Args:
        results: all games so far.
        players: whose order it is; of fewer than two it always is.
        error: the probability that it is wrong, where all players are at least `elo` apart.
        elo: the difference to resolve; half of it needs four times as many games.
    """
    return len(set(players)) < 2 or Standings(results, players, elo=elo).wrong <= error


class Standings:
    """Players by strength, and how sure every two neighbours are.

    Args:
        results: all games so far.
        players: whom to look at, at least one; others who have played count for what they say about these.
        elo: the difference to resolve.

    Attributes:
        order: the players, the best first.
    """

    def __init__(self, results: Results, players: Sequence[str], *, elo: float = RESOLUTION) -> None:
        everybody = sorted({*players, *results.players})
        games = davidson.games_of(results, everybody)
        fitted = davidson.most_likely(games)
        wanted = set(players)
        at = [place for place in np.argsort(-fitted.strengths, kind="stable") if everybody[place] in wanted]
        self.order = tuple(everybody[place] for place in at)
        self._elo = elo / davidson.ELO
        self._strengths = fitted.strengths[at]
        self._covariance = fitted.covariance[np.ix_(at, at)]
        self._neighbours = _contrasts(np.arange(len(at) - 1), np.arange(1, len(at)), len(at))  # [P - 1, P]
        everywhere = np.zeros((len(at) - 1, len(everybody)))
        everywhere[:, at] = self._neighbours
        self._ratios = self._likelihood_ratios(games, fitted, everywhere)  # [P - 1], logs
        self._pairs = np.triu_indices(len(at), 1)
        self._candidates = _contrasts(*self._pairs, len(at))  # [C, P]
        self._information = davidson.information(self._candidates @ self._strengths, fitted.nu)  # [C]

    @property
    def wrong(self) -> float:
        """The sum of the probabilities that two neighbours stand in the wrong order: no less than that any do."""
        return float(expit(-self._ratios).sum())

    @property
    def doubts(self) -> tuple[float, ...]:
        """Of each two neighbours, the best ones first, the probability that they stand in the wrong order."""
        return tuple(expit(-self._ratios).tolist())

    def next_pair(self, *, of: str | None = None, games: int = 1) -> tuple[str, str]:
        """The pair to play next; from then on its games count as played, with no surprise.

        Args:
            of: one of the two; None: anybody.
            games: how many it plays.
        """
        noise = 1 / (games * self._information)
        sums = self._covariance @ self._candidates.T  # [P, C]
        variances = np.einsum("cp,pc->c", self._candidates, sums)
        shrinking = (self._neighbours @ sums) ** 2 / (noise + variances)  # [P - 1, C]
        gains = self._gains(shrinking)
        wrong = expit(-(self._ratios[:, None] + gains)).sum(axis=0)  # [C]
        best = int(np.argmin(np.where(self._with(of), wrong, np.inf)))
        self._ratios = self._ratios + gains[:, best]
        known = sums[:, best]
        self._covariance -= np.outer(known, known) / (noise[best] + variances[best])
        first, second = (int(side[best]) for side in self._pairs)
        return self.order[first], self.order[second]

    def _with(self, player: str | None) -> NDArray[np.bool_]:
        """Which of the candidates are pairs of this player [C]."""
        if player is None:
            return np.ones(len(self._candidates), bool)
        found: NDArray[np.bool_] = self._candidates[:, self.order.index(player)] != 0
        return found

    def _gains(self, shrinking: Array) -> Array:
        """By how much the log ratios are expected to grow if the neighbours' variances shrink so much [P - 1, C]."""
        differences = np.maximum(self._neighbours @ self._strengths, self._elo)
        before = np.einsum("kp,pq,kq->k", self._neighbours, self._covariance, self._neighbours)
        gains: Array = 2 * self._elo * differences[:, None] * (1 / (before[:, None] - shrinking) - 1 / before[:, None])
        return gains

    def _likelihood_ratios(self, games: davidson.Games, fitted: davidson.Fit, neighbours: Array) -> Array:
        """The logs of how much likelier it is that the upper of two neighbours is better than that the lower is."""
        moves = neighbours @ fitted.covariance  # [P - 1, P]
        found = neighbours @ fitted.strengths
        variances = (moves * neighbours).sum(axis=1)
        upper, lower = (
            davidson.log_likelihood(
                games, fitted.strengths + ((sign * self._elo - found) / variances)[:, None] * moves, fitted
            )
            for sign in (1, -1)
        )
        return upper - lower


def _contrasts(first: NDArray[np.intp], second: NDArray[np.intp], players: int) -> Array:
    """A row for each two players: its product with the strengths is their difference."""
    rows = np.arange(len(first))
    found = np.zeros((len(first), players))
    found[rows, first], found[rows, second] = 1.0, -1.0
    return found
