"""Strengths of players on the Elo scale, by maximum likelihood, with 95 % intervals.

The model is Davidson's, see `davidson`. Against a player d Elo weaker a player wins 10^(d / 400) games for each that it
loses; without draws this is the usual Elo. The worth of the game's first side is estimated separately. The mean of all
players is 0, and an interval is of the distance from this mean: two players are compared by `difference`, whose
interval is narrower or wider than those two suggest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from arena.league.ratings import davidson, whole_history
from arena.league.ratings.maximum import most_likely
from arena.league.results import Results
from arena.league.timeline import Timeline

_WIDTH = float(ndtri(0.975))  # deviations from the middle to an end of a 95 % interval


class Interval(NamedTuple):
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float


class Rating(NamedTuple):
    """The strength of one player."""

    elo: float  # its distance from the mean of all players
    low: float  # where the 95 % interval begins
    high: float  # where it ends
    games: int  # in how many games it took part


class Ratings:
    """The strengths of all players, and how sure they are.

    Attributes:
        players: sorted.
        elo: float64 [P], in the order of `players`.
        covariance: float64 [P, P], of `elo`.
        side: how many Elo the first side is worth, with a 95 % interval.
        nu: how usual draws are: twice the ratio of draws to decided games between equals.
        fitted: all of this in nats.
        prior: whether the likelihood had no maximum, so that a weak prior was needed: each strength normal around
            the same middle with a standard deviation of 400 Elo, about as heavy as a single game.
    """

    def __init__(self, players: tuple[str, ...], fit: davidson.Fit, games: NDArray[np.int64]) -> None:
        self.players = players
        self.elo = davidson.ELO * fit.strengths
        self.covariance = davidson.ELO**2 * fit.covariance[:-1, :-1]
        self.side = interval(davidson.ELO * fit.parameters[-1], davidson.ELO**2 * fit.covariance[-1, -1])
        self.nu = fit.nu
        self.fitted = fit
        self.prior = fit.prior
        self._games = games
        self._index = {name: place for place, name in enumerate(players)}

    def of(self, player: str) -> Rating:
        """The rating of one player.

        Raises:
            KeyError: it has not played.
        """
        at = self._index[player]
        found = interval(self.elo[at], self.covariance[at, at])
        return Rating(*found, int(self._games[at]))

    def order(self) -> tuple[str, ...]:
        """All players, the best first; equal ones by name."""
        return tuple(self.players[at] for at in davidson.best_first(self.elo / davidson.ELO))

    def among(self, players: Sequence[str], *, guests: Collection[str] = ()) -> Ratings:
        """The ratings of some of the players, with 0 as the mean of those that are no `guests`."""
        rated = tuple(sorted(players))
        at = [self._index[name] for name in rated]
        counts = np.array([name not in guests for name in rated], np.float64)
        centered = np.eye(len(at)) - (counts if counts.any() else counts + 1) / max(1, counts.sum() or len(at))
        covariance = np.zeros((len(at) + 1, len(at) + 1))
        covariance[:-1, :-1] = centered @ self.fitted.covariance[np.ix_(at, at)] @ centered
        covariance[-1, -1] = self.fitted.covariance[-1, -1]
        parameters = np.append(centered @ self.fitted.strengths[at], self.fitted.parameters[-1])
        return Ratings(rated, self.fitted._replace(parameters=parameters, covariance=covariance), self._games[at])

    def difference(self, first: str, second: str) -> Interval:
        """By how many Elo the first is better than the second."""
        a, b = self._index[first], self._index[second]
        covariance = self.covariance
        return interval(self.elo[a] - self.elo[b], covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])


def interval(mean: float, variance: float) -> Interval:
    """The 95 % interval of a normal distribution."""
    reach = _WIDTH * math.sqrt(max(0.0, variance))
    return Interval(float(mean), float(mean - reach), float(mean + reach))


def fit(
    played: Results | Timeline,
    *,
    players: Iterable[str] = (),
    coarse: bool = False,
    now: Timeline | None = None,
    at: int | None = None,
) -> Ratings:
    """The most likely strengths of all players that have played; of policies that learn, those at the end.

    The strength of a team is the mean of its members'. In `Results` every player has one strength for all its games.

    Args:
        played: games of teams of any size.
        players: players that are rated as well, even without a game.
        coarse: whether rounds long ago may be merged, see `whole_history.history`.
        now: the games up to a tick, whose players are rated; None: all.
        at: the tick at which they are rated, by all games; None: the end.
    """
    games = (now or played).taken_part()
    rated = tuple(sorted({*games, *players}))
    found = fitted(played, rated, coarse=coarse, at=at)
    return Ratings(rated, found, np.array([games.get(name, 0) for name in rated], np.int64))


def comparable(played: Results | Timeline, players: Sequence[str], *, at: int | None = None) -> list[list[str]]:
    """The players, which are sorted, in sets whose games connect them by a tick, or by the end; the largest set first.

    The strengths of the players of one set can be compared.
    """
    if isinstance(played, Timeline) and played.learns:
        found = whole_history.estimate(played, tuple(players), () if at is None else (at,), coarse=False).history
        labels = found.components()[[found.node(name, at) for name in players]]
    else:
        results = played.results if isinstance(played, Timeline) else played
        names = sorted({*players, *results.players})
        places = [names.index(name) for name in players]
        labels = whole_history.components(davidson.games_of(results, names))[places]
    sets: dict[int, list[str]] = {}
    for name, label in zip(players, labels.tolist(), strict=True):
        sets.setdefault(label, []).append(name)
    return sorted(sets.values(), key=lambda names: (-len(names), names))


def fitted(
    played: Results | Timeline, players: Sequence[str], *, coarse: bool = False, at: int | None = None
) -> davidson.Fit:
    """The strengths of these players in nats, in their order; as `fit`."""
    if not players:  # also if all players have started over
        return most_likely(davidson.games_of(Results(), ()))
    if isinstance(played, Timeline) and played.learns:
        found = whole_history.estimate(played, tuple(players), () if at is None else (at,), coarse=coarse)
        return found.of_players(players, at=at)
    results = played.results if isinstance(played, Timeline) else played
    return most_likely(davidson.games_of(results, players))
