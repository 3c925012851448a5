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
the other pairs. In 40 simulated tournaments of a circle of 61 %, 61 % and 87 %, 1 was decided; 38 if only a lower
player that beats the upper one contradicts.

The intervals hold for one pair at one time. Of 66 pairs that are looked at after each batch some contradict the order
by chance, so a contradiction is not a verdict: it postpones the decision until the pair has played more. Contradictions
by chance go away with more games, circles stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arena.league.ratings import davidson
from arena.league.ratings.intervals import of_share
from arena.league.results import Results, Score


class Contradiction(NamedTuple):
    """A pair whose own games contradict the order.

    Args:
        lower: the player that stands lower in the order.
        upper: the player that stands higher.
        score: points per game of the lower against the upper player, in [0, 1].
        low: where the 95 % interval of the score begins.
        high: where it ends.
        games: between the two.
        beats: whether the lower player beats the upper one.
        expected: points per game of the lower player by the strengths, on the sides that the two had.
        circle: players of which each beats the next one and the last one beats the first, beginning with the lower and
            the upper player; empty if there is no such circle.
    """

    lower: str
    upper: str
    score: float
    low: float
    high: float
    games: int
    beats: bool
    expected: float
    circle: tuple[str, ...] = ()


def contradictions(
    results: Results, order: Sequence[str], strengths: Sequence[float], fitted: davidson.Fit, *, elo: float
) -> list[Contradiction]:
    """The pairs whose own games contradict an order, those with the highest players first.

    Args:
        results: the games; those in which one player alone fills each side count.
        order: the players, the best one first.
        strengths: of these, in nats.
        fitted: the model's parameters: what the first side is worth, and how common draws are.
        elo: differences below this do not count.
    """
    margin = elo / davidson.ELO
    played, side = _head_to_head(results), float(fitted.parameters[-1])
    better = {pair: games.expected(margin, side, fitted.nu) for pair, games in played.items()}
    beaten = {
        name: [other for other in order if (name, other) in played and played[name, other].low > better[name, other]]
        for name in order
    }
    found = []
    for place, upper in enumerate(order):
        for below, lower in enumerate(order[place + 1 :], start=place + 1):
            if (games := played.get((lower, upper))) is None:
                continue
            apart = strengths[below] - strengths[place]
            if games.low > games.expected(apart + margin, side, fitted.nu) and games.high >= better[lower, upper]:
                path = _path(beaten, upper, lower) if upper in beaten[lower] else ()
                circle, beats = (lower, *path[:-1]) if path else (), upper in beaten[lower]
                expected, share = games.expected(apart, side, fitted.nu), (games.score, games.low, games.high)
                found.append(Contradiction(lower, upper, *share, games.games, beats, expected, circle))
    return found


def unmet(results: Results, players: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of players that have not met in a game that counts, in the order of the players."""
    met = _head_to_head(results)
    return [
        (one, other) for place, one in enumerate(players) for other in players[place + 1 :] if (one, other) not in met
    ]


class _HeadToHead(NamedTuple):
    """The games of one player against another one."""

    points: float = 0.0  # of the one
    # Numbers of games in which the one has the first side, the other has it, and in which no team has it.
    sides: tuple[int, int, int] = (0, 0, 0)

    @property
    def games(self) -> int:
        return sum(self.sides)

    @property
    def score(self) -> float:
        return self.points / self.games

    @property
    def low(self) -> float:
        return of_share(self.points, self.games)[0]

    @property
    def high(self) -> float:
        return of_share(self.points, self.games)[1]

    def plus(self, score: Score, place: int) -> _HeadToHead:
        """These games and those of a score, which were played on one of the `sides`."""
        sides = [count + score.games * (at == place) for at, count in enumerate(self.sides)]
        return _HeadToHead(self.points + score.points, (sides[0], sides[1], sides[2]))

    def expected(self, difference: float, side: float, nu: float) -> float:
        """The score of a player that is better by a difference in nats, on the same sides."""
        scores = [davidson.score(difference + worth, nu) for worth in (side, -side, 0.0)]
        return sum(score * count for score, count in zip(scores, self.sides, strict=True)) / self.games


def _head_to_head(results: Results) -> Mapping[tuple[str, str], _HeadToHead]:
    """The games of each player against each other one that it has met."""
    found = defaultdict[tuple[str, str], _HeadToHead](_HeadToHead)
    for scores, places in ((results.by_side(), (0, 1)), (results.without_sides(), (2, 2))):
        for (first, second), score in scores.items():
            if first != second and len({*first}) == len({*second}) == 1:
                one, other = first[0], second[0]
                found[one, other] = found[one, other].plus(score, places[0])
                found[other, one] = found[other, one].plus(score.reversed, places[1])
    return found


def _path(beaten: Mapping[str, Sequence[str]], first: str, last: str) -> tuple[str, ...]:
    """The fewest players from the first to the last of which each beats the next one; empty if there are none."""
    paths: list[tuple[str, ...]] = [(first,)]
    seen = {first}
    for path in paths:  # grows: breadth first
        if path[-1] == last:
            return path
        following = [loser for loser in beaten[path[-1]] if loser not in seen]
        seen.update(following)
        paths += [(*path, name) for name in following]
    return ()
