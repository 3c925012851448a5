"""Whether games fit one strength per player, or go round in a circle: rock, paper and scissors have none.

Strengths say what two teams score against each other. A pair of teams may score otherwise than that by less than `elo`,
for any number of games; what is tested is whether some pairs lie farther off. Of a pair with points x in n games, of
which p is the mean that the strengths expect, the evidence is a ratio of likelihoods,

    e  =  mean of q^x (1 - q)^(n - x) over q from beta distributions around p
          / the largest q^x (1 - q)^(n - x) over all q that lie within `elo` of p

If the strengths are right e is 1 or less in the mean, however few the games, however many of them are drawn (points of
[0, 1] with mean q are spread no wider than a coin's), and whoever has chosen them by what was seen before. So is the
product over M pairs of 1 + (e - 1) / (M + 1), which grows with one pair that lies far off as with many that do. Looked
at after every game it comes above 1 / P with a probability of P at most (Ville 1939): `p` is that P. A test by
chi-square would need many games of every pair, and a number of games that is fixed before.

Three things differ from Ville's here. Strengths are not known but fitted, to the same games: they come nearer to these
than the true ones, which makes the evidence weaker. M counts the pairs that have met, so it grows and weighs those
before anew. And p shifts with the sides that a pair has had. So `p` is no proven bound: in 383 simulated leagues that
strengths fit it came below 0.7 after no batch.

A misfit alone does not touch the order: in a game with luck the weakest win some games against anybody, more than
strengths let them. It does where of two teams that lie far off the one that stands lower scores more.

So sure an alarm comes late: pairs that stand next to each other play most games, and strengths follow these, so of a
circle the pair that closes it has few games when the order looks decided. Before it is, no pair's own games may speak
`against` it: e above 1, and the one that stands lower has no less than its half of the points. That has no error that
could be stated. Where strengths are right it costs a few games of this pair; where they are not, most circles are seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, logsumexp, xlog1py, xlogy

from arena.league import davidson
from arena.league.ratings import Ratings
from arena.league.results import Results, Team

Array: TypeAlias = NDArray[np.float64]

ALARM = 0.001  # how probable it is, at most, that games do not seem to fit which do
_WEIGHTS = np.array([2.0, 8.0, 32.0])[:, None]  # of the beta distributions, in games: deviations of 0.29 to 0.09
_EDGE = 1e-6  # how near to 0 or 1 an expected score may come


class Surprise(NamedTuple):
    """Two teams whose games are not what strengths say.

    Args:
        first: the one that has scored more than was expected.
        second: the other.
        score: points of the first in a game.
        expected: the same, by the strengths.
        games: between the two.
        upset: whether the one that stands lower has scored more of the points, on the sides that they had.
    """

    first: Team
    second: Team
    score: float
    expected: float
    games: int
    upset: bool


class Misfit(NamedTuple):
    """How badly games fit one strength per player.

    Args:
        p: how probable so much evidence is at most where they fit.
        surprises: the pairs that make it, those with most evidence first; none where `p` is `ALARM` or more.
        against: the pairs whose own games speak against the order, whatever `p` is, those with most evidence first.
    """

    p: float = 1.0
    surprises: tuple[Surprise, ...] = ()
    against: tuple[tuple[Team, Team], ...] = ()

    @property
    def circular(self) -> bool:
        """Whether the order depends on who meets whom, as somebody beats those that stand higher."""
        return any(surprise.upset for surprise in self.surprises)


def misfit(results: Results, ratings: Ratings, *, elo: float) -> Misfit:
    """Whether games fit the strengths that were fitted to them.

    Args:
        results: the games.
        ratings: of all who have played in them.
        elo: so far from what they should score may all pairs lie.
    """
    pairs = _pairs(results, ratings, elo)
    if not pairs.teams:
        return Misfit()
    evidence, prior = _evidence(pairs), math.log(len(pairs.teams) + 1)
    total = np.logaddexp(evidence - prior, math.log1p(-math.exp(-prior))).sum()
    p = math.exp(-max(0.0, float(total)))
    order = np.argsort(-evidence, kind="stable")
    contrary = _contrary(pairs) & (evidence > 0)
    against = tuple(pairs.teams[place] for place in order if contrary[place])
    if p >= ALARM:
        return Misfit(p, against=against)
    found = [int(place) for place in order if evidence[place] > prior] or [int(order[0])]
    return Misfit(p, tuple(_surprise(pairs, place) for place in found), against)


class _Pairs(NamedTuple):
    """Every pair of teams that has met, and the score of its first; arrays are float64 [M].

    Args:
        teams: of each pair.
        games: that they have played.
        points: of the first.
        expected: score of the first in a game, by the strengths, on the sides that it had.
        low: the same if it were `elo` weaker.
        high: the same if it were `elo` stronger.
        even: the same if both were as good as each other.
        ahead: whether the first stands higher; 0 where nobody does.
    """

    teams: Sequence[tuple[Team, Team]]
    games: Array
    points: Array
    expected: Array
    low: Array
    high: Array
    even: Array
    ahead: Array


def _pairs(results: Results, ratings: Ratings, elo: float) -> _Pairs:
    strength = dict(zip(ratings.players, ratings.elo.tolist(), strict=True))
    met = results.pairs()
    apart = np.array([_mean(one, strength) - _mean(other, strength) for one, other in met])  # [M], Elo
    counts = np.zeros((len(met), 3))  # games in which the first has the first side, the second has, nobody has
    places = {teams: place for place, teams in enumerate(met)}
    for games, sided in ((results.by_side(), True), (results.without_sides(), False)):
        for (one, other), score in games.items():
            if one != other:
                swapped = one > other
                place = places[(other, one) if swapped else (one, other)]
                counts[place, int(swapped) if sided else 2] += score.games
    played = counts.sum(axis=1)

    def expected(differences: Array) -> Array:
        """Scores in a game [M], on the sides that were had."""
        with_side = (differences[:, None] + ratings.side.value * np.array([1.0, -1.0, 0.0])) / davidson.ELO
        won, drawn, _ = np.moveaxis(davidson.chances(with_side, davidson.log_of(ratings.nu)), -1, 0)
        found: Array = ((won + drawn / 2) * counts).sum(axis=1) / played
        return found.clip(_EDGE, 1 - _EDGE)

    return _Pairs(
        teams=[*met],
        games=played,
        points=np.array([score.points for score in met.values()]),
        expected=expected(apart),
        low=expected(apart - elo),
        high=expected(apart + elo),
        even=expected(np.zeros_like(apart)),
        ahead=np.sign(apart.round(6)),
    )


def _mean(team: Team, strength: dict[str, float]) -> float:
    return sum(strength[name] for name in team) / len(team)


def _evidence(pairs: _Pairs) -> Array:
    """The logs of e, [M]."""
    won, lost = pairs.points, pairs.games - pairs.points
    middle = pairs.expected
    ahead, behind = _WEIGHTS * middle, _WEIGHTS * (1 - middle)  # [weights, M]
    other = logsumexp(betaln(ahead + won, behind + lost) - betaln(ahead, behind), axis=0) - math.log(len(_WEIGHTS))
    near = np.clip(won / pairs.games, pairs.low, pairs.high)
    found: Array = other - xlogy(won, near) - xlog1py(lost, -near)
    return found


def _contrary(pairs: _Pairs) -> NDArray[np.bool_]:
    """Whether the one that stands higher has no more than its half of the points, on the sides that it had, [M].

    Where nobody stands higher, whether one of the two has more than the other.
    """
    better = (pairs.points / pairs.games - pairs.even).round(6)
    found: NDArray[np.bool_] = (pairs.ahead * better <= 0) & ((pairs.ahead != 0) | (better != 0))
    return found


def _surprise(pairs: _Pairs, place: int) -> Surprise:
    one, other = pairs.teams[place]
    score, expected = float(pairs.points[place] / pairs.games[place]), float(pairs.expected[place])
    upset = bool(pairs.ahead[place] * (score - pairs.even[place]) <= 0 and score != pairs.even[place])
    games = round(float(pairs.games[place]))
    if score < expected:
        return Surprise(other, one, 1 - score, 1 - expected, games, upset)
    return Surprise(one, other, score, expected, games, upset)
