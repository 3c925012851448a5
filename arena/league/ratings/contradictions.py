"""Pairs whose own games contradict an order of players by strength, and the circles that they close.

Rock beats scissors, scissors beat paper and paper beats rock: every order of the three is contradicted by the games of
some pair. Strengths cannot show this, as one number per player always gives an order.

A player scores points against another one: 1 for a win, 1/2 for a draw. What two players score against each other has
the interval of Wilson (1927), see `arena.league.ratings.intervals.of_share`; it is that of wins and losses, and points
with draws vary less. What strengths expect is the score of Davidson's model on the sides that the players had, see
`davidson`. Differences below `elo` do not count.

beats       A player beats another one if its interval lies above the score of a player that is `elo` better.
contradicts A pair contradicts the order if the interval of its lower player lies above what the strengths expect, `elo`
            to its favor, and does not lie below the score of a player that is `elo` better: the games of the pair do
            not fit the strengths, and the lower player may be the better one. This includes each pair whose lower
            player beats the upper one.

Few games are enough for the second: the pair that closes a circle often has few, because strengths follow the games of
the other pairs. The intervals hold for one pair at one time, so a contradiction is not a verdict: it postpones the
decision until the pair has played more. Contradictions by chance go away with more games, circles stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from arena.league.ratings import davidson
from arena.league.ratings.intervals import of_share
from arena.league.results import Results

Met: TypeAlias = Mapping[tuple[str, str], davidson.Array]
"""See `head_to_head`."""


class Contradiction(NamedTuple):
    """A pair whose own games contradict the order."""

    lower: str  # the player that is lower in the order
    upper: str  # the player that is higher
    score: float  # points per game of the lower against the upper player, in [0, 1]
    low: float  # where the interval of the score begins: 95 %, in a league for all pairs together
    high: float  # where it ends
    games: int  # between the two
    beats: bool  # whether the lower player beats the upper one
    expected: float  # points per game of the lower player by the strengths, on the sides that the two had
    circle: tuple[str, ...] = ()
    """Players of which each beats the next one and the last one beats the first, beginning with the lower and the upper
    player; empty if there is no such circle."""


def contradictions(
    played: Met, order: Sequence[str], strengths: Sequence[float], fit: davidson.Fit, *, elo: float, error: float = 0.05
) -> list[Contradiction]:
    """The pairs whose own games contradict an order, those with the highest players first.

    The players of the order, the best one first, have these strengths in nats. The games `played` are those of
    `head_to_head`, perhaps weighted. Differences of `elo` or more count. The interval of a pair misses the truth with
    the probability `error`.
    """
    margin, side, log_nu = elo / davidson.ELO, float(fit.parameters[-1]), davidson.log_of(fit.nu)
    games = {pair: float(scores.sum()) for pair, scores in played.items()}
    points = {pair: float((scores[:, 0] + scores[:, 1] / 2).sum()) for pair, scores in played.items()}
    shares = {pair: of_share(points[pair], count, error=error) for pair, count in games.items()}

    def expected(pair: tuple[str, str], difference: float) -> float:
        """The score of a player that is better by a difference in nats, on the sides that it had."""
        won, drawn, _ = davidson.chances(difference + np.array([side, -side, 0.0]), log_nu).T
        return float(played[pair].sum(axis=1) @ (won + drawn / 2)) / games[pair]

    better = {pair: expected(pair, margin) for pair in played}
    beaten = {
        name: [other for other in order if (name, other) in played and shares[name, other][0] > better[name, other]]
        for name in order
    }
    found = []
    for place, upper in enumerate(order):
        for below, lower in enumerate(order[place + 1 :], start=place + 1):
            pair = lower, upper
            if pair not in played:
                continue
            (low, high), difference = shares[pair], strengths[below] - strengths[place]
            if low > expected(pair, difference + margin) and high >= better[pair]:
                beats = upper in beaten[lower]
                path = _path(beaten, upper, lower) if beats else ()
                score, circle = points[pair] / games[pair], (lower, *path[:-1]) if path else ()
                by_strength = expected(pair, difference)
                count = round(games[pair])
                found.append(Contradiction(lower, upper, score, low, high, count, beats, by_strength, circle))
    return found


def unmet(results: Results, players: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of players that have not met in a game that counts, in the order of the players."""
    met = head_to_head(results)
    return [
        (one, other) for place, one in enumerate(players) for other in players[place + 1 :] if (one, other) not in met
    ]


def head_to_head(results: Results) -> Met:
    """The games of each player, the one, against each other that it has met, float64 [3, 3].

    Axis 0: the one has the first side, the other has it, or no team has it. Axis 1: won, drawn and lost by the one.
    """
    found = defaultdict[tuple[str, str], davidson.Array](lambda: np.zeros((3, 3)))
    for one, other, score, sided in results.duels():
        found[one, other][0 if sided else 2] += score
        found[other, one][1 if sided else 2] += score.reversed
    return dict(found)


def _path(beaten: Mapping[str, Sequence[str]], first: str, last: str) -> tuple[str, ...]:
    """The fewest players from the first to the last of which each beats the next one; empty if there are none."""
    paths: list[tuple[str, ...]] = [(first,)]
    visited = {first}
    for path in paths:  # grows: breadth first
        if path[-1] == last:
            return path
        following = [loser for loser in beaten[path[-1]] if loser not in visited]
        visited.update(following)
        paths += [(*path, name) for name in following]
    return ()
