"""Leagues of players with known strengths, to check ratings, gates and stopping rules against the truth.

Games are drawn from Davidson's model: the better of two by d Elo wins, draws or loses with chances in the ratio
10^(d / 800) : nu : 10^(-d / 800). Where games have sides, d is larger for the player on the first side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena.config.league import Gate
from arena.league.metagame import payoff
from arena.league.ratings import ranking, ratings
from arena.league.ratings.sprt import Verdict, state
from arena.league.results import Results, Score

Array = NDArray[np.float64]


class Truth(NamedTuple):
    """The true parameters of the players and their game.

    Args:
        elo: the strength of each player, float64 [P].
        nu: twice the ratio of draws to decided games between equals.
        side: the advantage of the first side, in Elo.
    """

    elo: Array
    nu: float = 0.5
    side: float = 0.0

    @property
    def players(self) -> tuple[str, ...]:
        """Names; their order is independent of strength."""
        return tuple(f"p{number:02d}" for number in range(len(self.elo)))

    @property
    def order(self) -> tuple[str, ...]:
        """The names, the best player first."""
        return tuple(self.players[place] for place in np.argsort(-self.elo))

    def chances(self, first: int, second: int, *, sided: bool = False) -> Array:
        """Chances of a win, a draw and a loss of player `first`, which has the first side if `sided`, float64 [3]."""
        odds = 10 ** ((self.elo[first] - self.elo[second] + sided * self.side) / 800)
        weights = np.array([odds, self.nu, 1 / odds])
        found: Array = weights / weights.sum()
        return found


def even(players: int, gap: float, rng: np.random.Generator) -> Truth:
    """Players `gap` Elo apart, their names shuffled."""
    return Truth(gap * rng.permutation(players).astype(np.float64))


def two_groups(players: int, gap: float, rng: np.random.Generator) -> Truth:
    """Half of the players are `gap` Elo better than the others; within a half all are equal."""
    return Truth(gap * rng.permutation(np.arange(players) % 2).astype(np.float64))


def normal(players: int, deviation: float, rng: np.random.Generator) -> Truth:
    """Players whose strengths are drawn from a normal distribution."""
    return Truth(rng.normal(0, deviation, players))


def play(
    truth: Truth,
    pairs: Iterable[tuple[int, int]],
    games: int,
    rng: np.random.Generator,
    to: Results,
    *,
    sided: bool = False,
) -> None:
    """Adds games of every pair to results, without sides or with the first player on the first side."""
    for first, second in pairs:
        score = Score(*rng.multinomial(games, truth.chances(first, second, sided=sided)).tolist())
        to.add_score((truth.players[first],), (truth.players[second],), score, sided=sided)


def round_robin(truth: Truth, games: int, rng: np.random.Generator) -> Results:
    """The results of this many games of every pair."""
    results = Results()
    play(truth, itertools.combinations(range(len(truth.elo)), 2), games, rng, results)
    return results


def uneven_sides(truth: Truth, games: int, rng: np.random.Generator) -> Results:
    """A round robin in which a player of a pair has the first side in a random number of their games."""
    results = Results()
    for first, second in itertools.combinations(range(len(truth.elo)), 2):
        count = int(rng.integers(games + 1))
        play(truth, [(first, second)], count, rng, results, sided=True)
        play(truth, [(second, first)], games - count, rng, results, sided=True)
    return results


def ratings_covered(truth: Truth, results: Results) -> list[bool]:
    """Whether intervals hold the truth: of the rating of each player, then of the difference of each pair."""
    found = ratings.fit(results)
    centered = dict(zip(truth.players, truth.elo - truth.elo.mean(), strict=True))
    alone = [found.of(name).low <= elo <= found.of(name).high for name, elo in centered.items()]
    differences = [
        found.difference(a, b).low <= centered[a] - centered[b] <= found.difference(a, b).high
        for a, b in itertools.combinations(truth.players, 2)
    ]
    return [*alone, *differences]


def side_covered(truth: Truth, results: Results) -> list[bool]:
    """Whether the interval of the first side's advantage holds the truth."""
    found = ratings.fit(results).side
    return [found.low <= truth.side <= found.high]


def payoffs_covered(truth: Truth, results: Results) -> list[bool]:
    """Per pair, whether the interval of the expected score holds the truth."""
    found = payoff.payoff(results, truth.players)
    pairs = itertools.combinations(range(len(truth.elo)), 2)
    scores = {(a, b): truth.chances(a, b) @ (1, 0.5, 0) for a, b in pairs}
    return [bool(found.low[pair] <= score <= found.high[pair]) for pair, score in scores.items()]


class Gated(NamedTuple):
    """A gate's verdict, and the number of games before it."""

    verdict: Verdict
    games: int


def gate(rule: Gate, truth: Truth, *, batch: int, most: int, rng: np.random.Generator) -> Gated:
    """Applies the test after every batch of games of player 0 against player 1."""
    score, chances = Score(), truth.chances(0, 1)
    while (verdict := state(rule, score).verdict) is Verdict.OPEN and score.games < most:
        score = score.plus(Score(*rng.multinomial(batch, chances).tolist()))
    return Gated(verdict, score.games)


class Ordered(NamedTuple):
    """Whether an order was right, and the number of games before it."""

    right: bool
    games: int


def sequential(truth: Truth, *, error: float, elo: float, batch: int, rng: np.random.Generator) -> Ordered:
    """Plays a tournament by the rules of `arena.league.tournament`, without lanes and sides.

    Every pair plays two games, then the most informative pairs play in batches until the order is decided. If the order
    is undecided only because the games of some pairs contradict it, these pairs double their games.
    """
    results = round_robin(truth, 2, rng)
    while True:
        standings = ranking.Standings(results, truth.players, elo=elo)
        if standings.wrong > error:
            names = [standings.next_pair() for _ in range(batch)]
        elif pairs := standings.contradictions():
            names = [(pair.upper, pair.lower) for pair in pairs for _ in range(pair.games)]
        else:
            return Ordered(is_right(truth, standings.order, elo), results.games)
        play(truth, [(int(a[1:]), int(b[1:])) for a, b in names], 1, rng, results)


def fixed(truth: Truth, games: int, rng: np.random.Generator, *, elo: float) -> Ordered:
    """A round robin of this many games of every pair; the order by points, which is also the order by ratings."""
    results = round_robin(truth, games, rng)
    points = dict.fromkeys(truth.players, 0.0)
    for ((first,), (second,)), score in results.pairs().items():
        points[first] += score.points
        points[second] += score.games - score.points
    return Ordered(is_right(truth, sorted(points, key=points.__getitem__, reverse=True), elo), results.games)


def is_right(truth: Truth, order: Sequence[str], elo: float) -> bool:
    """Whether no player is ranked above a player that is better by `elo` or more."""
    strengths = np.array([truth.elo[int(name[1:])] for name in order])
    best_below = np.maximum.accumulate(strengths[::-1])[::-1]  # of the players at a place or below it
    return bool((best_below - strengths < elo - 1e-9).all())
