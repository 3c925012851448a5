"""Expected scores of every player against every other one, with 95 % intervals: the payoff matrix of the meta-game.

A score is 1 for a win, 1/2 for a draw, 0 for a loss. The chances of the three in a pair have a Dirichlet posterior of
their own: nothing is assumed about how strengths relate, so that cycles (a beats b beats c beats a) remain visible.

The prior is Jeffreys': half a game of each kind that can happen. Where no game was drawn, draws cannot happen, and
what remains is the Beta(1/2, 1/2) of Jeffreys for wins and losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from arena.league.metagame.meetings import meetings
from arena.league.results import Results, Score
from arena.league.timeline import Timeline

Array: TypeAlias = NDArray[np.float64]

_JEFFREYS = 0.5
_TAIL = 0.025  # of the posterior, on each side of an interval
_LEVELS = 64  # of the share of draws, over which is averaged
_HALVINGS = 30  # of an interval; the last one is 1e-9 long


class Payoff(NamedTuple):
    """What a row's player scores against a column's, in [0, 1]; the diagonal is 1/2."""

    players: tuple[str, ...]  # of the rows and of the columns
    mean: Array  # float64 [P, P], of the posterior; `mean[a, b] + mean[b, a] = 1`
    low: Array  # float64 [P, P], where the 95 % interval begins
    high: Array  # float64 [P, P], where it ends
    games: NDArray[np.int64]  # [P, P], that count: older ones of policies that learn count less
    points: Array  # float64 [P, P], of the row's player, in these
    played: NDArray[np.int64]  # [P, P, 3], all games that were won, drawn and lost, however old
    weights: Array  # float64 [P, P, 3], of the Dirichlet posterior of a win, a draw and a loss

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Payoff matrices drawn from the posterior, float64 [n, P, P]; each of them is a game of its own."""
        upper = np.triu_indices(len(self.players), 1)
        shares = rng.standard_gamma(self.weights[upper], size=(n, len(upper[0]), 3))
        scores = (shares[..., 0] + shares[..., 1] / 2) / shares.sum(axis=-1)  # [n, pairs]
        found = np.full((n, *self.mean.shape), 0.5)
        found[:, upper[0], upper[1]] = scores
        found[:, upper[1], upper[0]] = 1 - scores
        return found


class Pair(NamedTuple):
    """The games of two players as the first one sees them, and its payoff."""

    player: str
    opponent: str
    games: int  # all with a winner or a draw, however old
    wins: int
    draws: int
    losses: int
    counted: int  # the number of games, weighted by age, on which the payoff rests
    score: float | None  # the payoff; None without games that count
    low: float | None  # where its 95 % interval begins
    high: float | None  # where it ends


def pairs(scores: Payoff, *, once: bool = False) -> list[Pair]:
    """Two rows for each pair that has met, in the order of the players; with `once` the first of them."""
    found = []
    for i, j in np.argwhere(scores.played.any(axis=-1) | (scores.games > 0)):
        if i < j or not once:
            score, counted = Score(*scores.played[i, j].tolist()), int(scores.games[i, j])
            ends = [float(each[i, j]) if counted else None for each in (scores.mean, scores.low, scores.high)]
            found.append(Pair(scores.players[i], scores.players[j], score.games, *score, counted, *ends))
    return found


def payoff(results: Results | Timeline, players: Sequence[str]) -> Payoff:
    """The payoff matrix of players; of policies that learn as they are at the end of the timeline, see `meetings`.

    A game counts for a pair if each of the two players alone filled a side, of whatever size. A pair without games has
    the prior, whose interval is nearly [0, 1].
    """
    played = _played(results, players)
    counts = _counts(results, players)
    weights = _weights(counts)
    mean = (weights[..., 0] + weights[..., 1] / 2) / weights.sum(axis=-1)
    won, drawn, lost = np.moveaxis(weights, -1, 0)  # Dirichlet posteriors of win + draw / 2
    if drawn.any():  # most pairs of many snapshots have not met, and have the same interval
        unlike, place = np.unique(weights.reshape(-1, 3), axis=0, return_inverse=True)
        low: Array = _quantile(*unlike.T)[place].reshape(mean.shape)
    else:
        low = betaincinv(won, lost, _TAIL)
    high = 1 - low.T  # one player's gain is the other's loss
    for matrix in (mean, low, high):
        np.fill_diagonal(matrix, 0.5)
    points = counts[..., 0] + counts[..., 1] / 2
    games = counts.sum(axis=-1).round().astype(np.int64)
    return Payoff(tuple(players), mean, low, high, games, points, played.astype(np.int64), weights)


def posterior(results: Results | Timeline, player: str, others: Sequence[str]) -> Array:
    """The weights of a player's row of a payoff matrix, as matchmaking takes them: aged by rounds; float64 [others, 3].

    No player meets itself.
    """
    if isinstance(results, Timeline):
        counts = meetings(results, by_round=True).counts_of(player, others)
    else:
        counts = _counts(results, [player, *others])[0, 1:]
    counts[[name == player for name in others]] = 0
    return _weights(counts)


def _weights(counts: Array) -> Array:
    weights = counts + _JEFFREYS
    if not counts[..., 1].any():
        weights[..., 1] = 0.0
    return weights


def _counts(results: Results | Timeline, players: Sequence[str]) -> Array:
    """Games won, drawn and lost, float64 [P, P, 3]; none of a player against itself, or a policy against its past."""
    if not isinstance(results, Timeline) or not results.learns:
        return _played(results, players)
    counts = meetings(results).counts(players)
    counts[np.arange(len(players)), np.arange(len(players))] = 0
    return counts


def _played(results: Results | Timeline, players: Sequence[str]) -> Array:
    """All games, as `_counts`, each as one."""
    index = {name: place for place, name in enumerate(players)}
    counts = np.zeros((len(players), len(players), 3))
    for first, second, score, _ in (results.results if isinstance(results, Timeline) else results).duels():
        if first in index and second in index:
            counts[index[first], index[second]] += score
            counts[index[second], index[first]] += score.reversed
    return counts


def _quantile(won: Array, drawn: Array, lost: Array) -> Array:
    """Where the distribution function of win + draw / 2 is 2.5 %, by bisection; the weights are [N].

    The share of draws has a Beta distribution, and so has, independently, the share of wins among the other games. The
    function is the mean of the latter's over the former, by Gauss-Legendre quadrature of its quantiles.
    """
    levels, parts = np.polynomial.legendre.leggauss(_LEVELS)
    draws = betaincinv(drawn[..., None], (won + lost)[..., None], (levels + 1) / 2)  # [N, levels]
    others = np.maximum(1 - draws, np.finfo(np.float64).tiny)
    low, high = np.zeros_like(won), np.ones_like(won)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        wins = np.clip((middle[..., None] - draws / 2) / others, 0, 1)
        below = betainc(won[..., None], lost[..., None], wins) @ (parts / 2) < _TAIL
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
