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
Places: TypeAlias = NDArray[np.intp]

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
        self._ratios = self._likelihood_ratios(games, fitted, _contrasts(at, len(everybody)))  # [P - 1], logs
        self._nu = fitted.nu

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
        first, second = self._candidates(of)
        noise = 1 / (games * davidson.information(self._strengths[first] - self._strengths[second], self._nu))  # [C]
        sums = self._covariance[:, first] - self._covariance[:, second]  # [P, C]
        each = np.arange(len(first))
        variances = sums[first, each] - sums[second, each]
        shrinking = (sums[:-1] - sums[1:]) ** 2 / (noise + variances)  # [P - 1, C]
        gains = self._gains(shrinking)
        wrong = expit(-(self._ratios[:, None] + gains)).sum(axis=0)  # [C]
        best = int(np.argmin(wrong))
        self._ratios = self._ratios + gains[:, best]
        known = sums[:, best]
        self._covariance -= np.outer(known, known) / (noise[best] + variances[best])
        return self.order[first[best]], self.order[second[best]]

    def _candidates(self, player: str | None) -> tuple[Places, Places]:
        """The pairs of anybody, or of this player, by their places [C]; the upper one first."""
        if player is None:
            first, second = np.triu_indices(len(self.order), 1)
            return first, second
        own = self.order.index(player)
        others = np.delete(np.arange(len(self.order)), own)
        return np.minimum(own, others), np.maximum(own, others)

    def _gains(self, shrinking: Array) -> Array:
        """By how much the log ratios are expected to grow if the neighbours' variances shrink so much [P - 1, C]."""
        differences = np.maximum(-np.diff(self._strengths), self._elo)
        variances = np.diag(self._covariance)
        before = variances[:-1] + variances[1:] - 2 * np.diag(self._covariance, 1)
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


def _contrasts(order: Sequence[int], players: int) -> Array:
    """A row for each two neighbours of an order: its product with all players' strengths is their difference."""
    rows = np.arange(len(order) - 1)
    found = np.zeros((len(rows), players))
    found[rows, order[:-1]], found[rows, order[1:]] = 1.0, -1.0
    return found
