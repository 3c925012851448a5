"""Pairings of the later rounds of knockout and Swiss tournaments.

A knockout goes on with the winners, in the order in which they met; so it is a bracket. If their number is odd, the
first player with the fewest byes has a bye. A Swiss tournament pairs neighbors in its standings that have not met; if
the number is odd, the last player with the fewest byes has one. A pairing is won by the larger share of the points of
its games; if the shares are equal, by the higher rating; if these are equal too, by a coin. Standings count the points
of all rounds, even if a player has learned since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
import numpy as np

from arena.config.matches import Knockout, Match, Pair, Swiss, neighbors
from arena.league.ratings.ratings import Ratings, fit
from arena.league.results import Encounter, Results
from arena.league.timeline import Timeline

_DIGITS = 5  # of an Elo; rounding of the fit is far smaller, and decides nothing

Pairings: TypeAlias = tuple[tuple[str, ...], ...]
"""Who meets whom; a player alone has a bye."""
Shares: TypeAlias = Mapping[str, float]
"""What each player has made of its pairing in a round, in [0, 1]: 1 for a bye, 1/2 if no game counts."""


def shares(
    entry: Knockout | Swiss,
    pairings: Pairings,
    games: Iterable[tuple[Match, Sequence[Encounter]]],
) -> Shares:
    """The shares of one round of a tournament.

    The games are those of all matches of the round, of this tournament or not, each with its description.
    """
    results = results_of(entry, pairings, games)
    found = {}
    for players in pairings:
        for name in players:
            score = results[frozenset(players)].between(name, *{*players} - {name}) if len(players) > 1 else None
            found[name] = 1.0 if score is None else score.points / score.games if score.games else 0.5
    return found


def results_of(
    entry: Knockout | Swiss,
    pairings: Pairings,
    games: Iterable[tuple[Match, Sequence[Encounter]]],
) -> Mapping[frozenset[str], Results]:
    """The games of each pairing of one round; as `shares`."""

    def key(match: Match) -> bytes:
        """Its game and players, without copies and lanes, which a resumed run may change."""
        return msgspec.json.encode(msgspec.structs.replace(match, copies=1, lanes=1, pipeline=1))

    keys = {*map(key, entry.written_out(teams(entry, pairings)))}
    results = {frozenset(players): Results() for players in pairings}
    for match, found in games:
        if key(match) in keys:
            for game in found:
                results[frozenset(match.names)].add(*game)
    return results


class KnockoutRules:
    """The rules of winners and standings: points, then ratings by these results, then a coin of `rng`."""

    def __init__(self, results: Results | Timeline, rng: np.random.Generator) -> None:
        self._results = results
        self._rng = rng
        self._fitted: Ratings | None = None

    def winner(self, players: Sequence[str], made: Shares) -> str:
        """The better of two players, or the player that had a bye."""
        return max(players, key=lambda name: (made[name], self._elo(name), self._rng.random()))

    def reason(self, players: Sequence[str], made: Shares) -> Literal["points", "rating", "coin"]:
        """What has decided `winner`."""
        if len({made[name] for name in players}) > 1:
            return "points"
        return "rating" if len({*map(self._elo, players)}) > 1 else "coin"

    def standings(self, players: Sequence[str], made: Sequence[Shares]) -> list[str]:
        """The players of a Swiss tournament, the best first."""
        points = {name: sum(share[name] for share in made) for name in players}
        coins = dict(zip(players, self._rng.random(len(players)), strict=True))
        return sorted(players, key=lambda name: (-points[name], -self._elo(name), coins[name]))

    def _elo(self, player: str) -> float:
        if self._fitted is None:
            self._fitted = fit(self._results, coarse=True)
        return round(self._fitted.of(player).elo, _DIGITS) if player in self._fitted.players else 0.0


def opening(entry: Knockout | Swiss) -> Pairings:
    """The pairings of a tournament's first round."""
    byes, others = entry.policies[: entry.byes], entry.policies[entry.byes :]
    return (*((name,) for name in byes), *neighbors(others))


def teams(entry: Knockout | Swiss, pairings: Pairings) -> list[Pair]:
    """The sides of all players."""
    return [entry.pair(players[0], players[1]) for players in pairings if len(players) > 1]


def next_pairings(
    entry: Knockout | Swiss, before: Sequence[Pairings], made: Sequence[Shares], judge: KnockoutRules
) -> Pairings:
    """The pairings of a tournament's next round; of a knockout that is over, its winner alone.

    Per earlier round there are its pairings, and what each player has made of them.
    """
    byes = Counter(players[0] for one in before for players in one if len(players) == 1)
    if isinstance(entry, Swiss):
        standings = judge.standings(entry.policies, made)
        resting = [min(reversed(standings), key=byes.__getitem__)] if len(standings) % 2 else []
        playing = [name for name in standings if name not in resting]
        return (*((name,) for name in resting), *_matched(playing, before))
    left = [judge.winner(players, made[-1]) for players in before[-1]]
    if len(left) == 1:
        return ((left[0],),)
    if len(left) % 2 == 0:
        return tuple(neighbors(left))
    rests = min(left, key=byes.__getitem__)  # the first of those with the fewest
    return ((rests,), *neighbors([name for name in left if name != rests]))


def _matched(standings: Sequence[str], before: Sequence[Pairings]) -> list[tuple[str, str]]:
    """The pairs of a Swiss round: as few second meetings as possible, then the smallest distances in the standings."""
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
