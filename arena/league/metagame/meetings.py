"""Weights of past games as evidence of how players score against each other now: policies that learn change.

Age is counted in the periods of the strength curves, see `Timeline.groups`: rounds, or parts of them where rounds are
few. A game that a policy played d periods ago counts as w^d games for the policy as it is now; a policy that is a copy
of another one has the games of that one from before. w is estimated for each policy: the value in `RATES` with which
earlier results best predict those of the next period, opponent by opponent (the product of the predictive probabilities
of the posterior that `payoff` uses, with a slight preference for 0.8, which remembers about five periods). Unlike a
rating this also detects changes that make a policy neither better nor worse, such as from rock to paper. Games of
snapshots, and of other players that never change, count in full, and only for these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from arena.league.timeline import Timeline

Array: TypeAlias = NDArray[np.float64]

RATES = np.array([0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0])
_USUAL = 4  # the place of the rate that is preferred
_PREFERENCE = 0.5  # nats, for each place
_SWEEPS = 2  # over all policies, whose rates depend on those of their opponents
_NEWEST = 32  # periods from which rates are estimated
_LEAST = 0.01  # games that count less do not count
_SHOWN = 0.05  # games that count less are left out of spans
_JEFFREYS = 0.5


class Span(NamedTuple):
    """The ticks in which the games of a player were played."""

    first: int
    last: int


class _Self(NamedTuple):
    """A player in its games: a policy that learns, in the period that begins at `start`; others in all (None)."""

    name: str
    start: int | None = None


class Meetings:
    """The games of a timeline in which one player alone filled each side.

    Args:
        timeline: all games.
        by_round: whether age is counted in whole rounds, as matchmaking does between two of them.
    """

    def __init__(self, timeline: Timeline, *, by_round: bool = False) -> None:
        self._timeline = timeline
        self._ends: dict[int, int] = {}  # of each period, by its start
        found = defaultdict[tuple[_Self, _Self], Array](lambda: np.zeros(3))
        for begun, period in ((group[0].start, period) for group in timeline.groups() for period in group):
            start = timeline.round_of(period) if by_round else begun
            self._ends[start] = period.end
            for first, second, score, _ in period.results.duels():
                mine, theirs = (_Self(name, start if name in timeline.learners else None) for name in (first, second))
                if first < second:
                    found[mine, theirs] += score
                else:
                    found[theirs, mine] += score.reversed
        scores = {pair: found[pair] for pair in sorted(found)}
        self._selves = list(dict.fromkeys(one for pair in scores for one in pair))
        self._ages = {start: age for age, start in enumerate(reversed(self._ends))}
        places = {one: place for place, one in enumerate(self._selves)}
        self._first, self._second = (np.array([places[pair[side]] for pair in scores], np.intp) for side in (0, 1))
        self._scores = np.array([*scores.values()]).reshape(-1, 3)

    def counts(self, players: Sequence[str]) -> Array:
        """Games won, drawn and lost by each player against each other one, weighted, [P, P, 3]."""
        weights = self._weights(players)
        return self._joined(weights, weights)

    def counts_of(self, player: str, others: Sequence[str]) -> Array:
        """The same of one player, [others, 3]."""
        return self._joined(self._weights([player]), self._weights(others))[0]  # type: ignore[no-any-return]

    def spans(self, players: Sequence[str]) -> list[Span | None]:
        """The ticks of the games of each player, without games that count for very little; None: it never changes."""
        weights = self._weights(players).toarray()
        found: list[Span | None] = []
        for place in range(len(players)):
            starts = [
                one.start for one, weight in zip(self._selves, weights[:, place], strict=True) if weight >= _SHOWN
            ]
            moving = [start for start in starts if start is not None]
            found.append(Span(min(moving), self._ends[max(moving)]) if moving else None)
        return found

    @cached_property
    def rates(self) -> Mapping[str, float]:
        """Per policy w, the weight that is left of a game after a period."""
        learners = sorted({one.name for one in self._selves} & self._timeline.learners)
        periods = min(_NEWEST, len(self._ends))
        since = {name: next(self._lineage(name))[1] for name in learners}
        games: dict[str, dict[str, Array]] = {name: {} for name in learners}  # by opponent, [periods, 3]
        for first, second, score in zip(self._first, self._second, self._scores, strict=True):
            one, other = self._selves[first], self._selves[second]
            for mine, theirs, counted in ((one, other, score), (other, one, score[::-1])):
                if mine.start is not None and mine.start >= since[mine.name] and self._ages[mine.start] < periods:
                    counts = games[mine.name].setdefault(theirs.name, np.zeros((periods, 3)))
                    counts[-1 - self._ages[mine.start]] += counted
        places = dict.fromkeys(learners, _USUAL)
        for _ in range(_SWEEPS):
            for name, met in games.items():
                theirs_left = np.array([RATES[places[one]] if one in places else 1.0 for one in met])
                fits = _predicted(np.array([*met.values()]).reshape(-1, periods, 3), np.outer(RATES, theirs_left))
                places[name] = int(np.argmax(fits - _PREFERENCE * abs(np.arange(len(RATES)) - _USUAL)))
        return {name: float(RATES[place]) for name, place in places.items()}

    def _weights(self, players: Sequence[str]) -> sparse.csr_array:
        """How much the games of each self count for each player, [selves, players]."""
        places = defaultdict[str, list[int]](list)
        for place, one in enumerate(self._selves):
            places[one.name].append(place)
        found: list[tuple[int, int, float]] = []
        for column, player in enumerate(players):
            if player not in self._timeline.learners:
                found += [(place, column, 1.0) for place in places[player]]
                continue
            rate = self.rates.get(player, 1.0)
            for name, since, until in self._lineage(player):
                for place in places[name]:
                    start = self._selves[place].start
                    assert start is not None, self._selves[place]
                    weight = rate ** self._ages[start]
                    if since <= start < until and weight >= _LEAST:
                        found.append((place, column, weight))
        rows, columns, values = zip(*found, strict=True) if found else ((), (), ())
        return sparse.csr_array((values, (rows, columns)), shape=(len(self._selves), len(players)))

    def _lineage(self, policy: str) -> Iterator[tuple[str, int, int]]:
        """What a policy was, from which tick to which: itself, and before it became a copy its source."""
        until = self._timeline.end + 1
        while True:
            begun = [one for one in self._timeline.beginnings.get(policy, ()) if one.tick < until]
            yield policy, begun[-1].tick if begun else 0, until
            if not begun or begun[-1].source is None:
                return
            policy, until = begun[-1].source, begun[-1].tick

    def _joined(self, mine: sparse.csr_array, theirs: sparse.csr_array) -> Array:
        """Games won, drawn and lost by the players of some weights against those of others, [P, Q, 3]."""
        by_first, by_second = mine[self._first].T, mine[self._second].T
        to_first, to_second = theirs[self._first], theirs[self._second]
        endings = [sparse.diags_array(self._scores[:, ending]) for ending in range(3)]
        found = [
            by_first @ forward @ to_second + by_second @ backward @ to_first
            for forward, backward in zip(endings, reversed(endings), strict=True)
        ]
        return np.stack([one.toarray() for one in found], axis=-1)


@lru_cache(maxsize=1)
def meetings(timeline: Timeline, *, by_round: bool = False) -> Meetings:
    """The meetings of a timeline, see `Meetings`; the newest ones are cached."""
    return Meetings(timeline, by_round=by_round)


def _predicted(counts: Array, rates: Array) -> Array:
    """The log probability of each period's results given those before, summed, for each of several rates.

    The counts are [opponents, periods, 3]; the rates, what is left of a game after a period, [K, opponents].
    """
    kinds = [0, 1, 2] if counts[..., 1].any() else [0, 2]
    counts = counts[..., kinds]
    before = np.full((*rates.shape, len(kinds)), 0.0)
    found = np.zeros(len(rates))
    for number in range(counts.shape[1]):
        now = counts[:, number]
        alpha = before + _JEFFREYS
        found += (special.gammaln(alpha + now) - special.gammaln(alpha)).sum(axis=(1, 2))
        total = alpha.sum(axis=-1)
        found += (special.gammaln(total) - special.gammaln(total + now.sum(axis=-1))).sum(axis=1)
        before = (before + now) * rates[..., None]
    return found
