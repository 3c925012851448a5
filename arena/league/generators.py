"""Who plays whom in a later round of a tournament: knockouts and Swiss.

A knockout goes on with the winners, in the order in which they met; so it is a bracket. Of an odd number the first who
has had no bye has one. A Swiss tournament pairs neighbours in its standings who have not met; the last who has had the
fewest byes has one. Of two who met the better has the larger share of the points of their games that count; of equals
the one with the higher rating, and then a coin decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from arena.config.matches import KnockoutConfig, Pair, SwissConfig, neighbours
from arena.league.ratings import Ratings, fit
from arena.league.results import Results

Pairings = tuple[tuple[str, ...], ...]
"""Who meets whom; one alone has a bye."""


class Judge:
    """Says who of two is better, and who has how many points.

    Args:
        results: of the games that count.
        rng: of its coins.
    """

    def __init__(self, results: Results, rng: np.random.Generator) -> None:
        self._results = results
        self._rng = rng
        self._fitted: Ratings | None = None

    def winner(self, players: Sequence[str]) -> str:
        """The better one of two, or the one who had a bye."""
        return max(players, key=lambda name: (self.share(name, players), self._elo(name), self._rng.random()))

    def share(self, player: str, players: Sequence[str]) -> float:
        """What a player has made of its pairing, in [0, 1]: 1 for a bye, 1/2 if no game counts."""
        others = [name for name in players if name != player]
        if not others:
            return 1.0
        score = self._results.between(player, *others)
        return score.points / score.games if score.games else 0.5

    def standings(self, entry: SwissConfig, before: Sequence[Pairings]) -> list[str]:
        """The players of a Swiss tournament, the best first."""
        points = dict.fromkeys(entry.policies, 0.0)
        for players in (players for pairings in before for players in pairings):
            for name in players:
                points[name] += self.share(name, players)
        coins = dict(zip(entry.policies, self._rng.random(len(entry.policies)), strict=True))
        return sorted(entry.policies, key=lambda name: (-points[name], -self._elo(name), coins[name]))

    def _elo(self, player: str) -> float:
        if self._fitted is None:
            self._fitted = fit(self._results)
        return self._fitted.of(player).elo if player in self._fitted.players else 0.0


def opening(entry: KnockoutConfig | SwissConfig) -> Pairings:
    """The pairings of a tournament's first round."""
    byes, others = entry.policies[: entry.byes], entry.policies[entry.byes :]
    return (*((name,) for name in byes), *neighbours(others))


def teams(entry: KnockoutConfig | SwissConfig, pairings: Pairings) -> list[Pair]:
    """The sides of all who play."""
    return [(entry.team(players[0]), entry.team(players[1])) for players in pairings if len(players) > 1]


def next_pairings(entry: KnockoutConfig | SwissConfig, before: Sequence[Pairings], judge: Judge) -> Pairings:
    """The pairings of a tournament's next round; of a knockout that is over, its winner alone.

    Args:
        entry: the tournament.
        before: its earlier pairings, the first ones first.
        judge: of the games played in it.
    """
    if isinstance(entry, SwissConfig):
        return _swiss(judge.standings(entry, before), before)
    left = [judge.winner(players) for players in before[-1]]
    if len(left) == 1:
        return ((left[0],),)
    if len(left) % 2 == 0:
        return tuple(neighbours(left))
    byes = _byes(before)
    rests = min(left, key=byes.__getitem__)  # the first of those with the fewest
    return ((rests,), *neighbours([name for name in left if name != rests]))


def _swiss(standings: Sequence[str], before: Sequence[Pairings]) -> Pairings:
    byes = _byes(before)
    resting = [min(reversed(standings), key=byes.__getitem__)] if len(standings) % 2 else []
    return (*((name,) for name in resting), *_matched([name for name in standings if name not in resting], before))


def _matched(standings: Sequence[str], before: Sequence[Pairings]) -> list[tuple[str, str]]:
    """Pairs with as few second meetings as can be, and then of those who stand as close together as can be."""
    import networkx  # type: ignore[import-untyped]  # half a second, for a Swiss tournament alone

    met = Counter(frozenset(players) for pairings in before for players in pairings)
    many = len(standings) ** 3 + 1  # more than all distances together
    graph = networkx.Graph()
    for first, one in enumerate(standings):
        for second in range(first + 1, len(standings)):
            again = met[frozenset((one, standings[second]))]
            graph.add_edge(first, second, weight=-(again * many + (second - first) ** 2))
    pairs = networkx.max_weight_matching(graph, maxcardinality=True)
    return [(standings[first], standings[second]) for first, second in sorted(map(sorted, pairs))]


def _byes(before: Sequence[Pairings]) -> Counter[str]:
    return Counter(players[0] for pairings in before for players in pairings if len(players) == 1)
