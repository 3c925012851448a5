"""Sequential ranking: the pair to play next, and the test of whether the order of all players is decided.

Both look at neighbors in the standings, which are settled by the more certain of two sequential tests (Wald 1945), of
their order and of their equality: docs/statistics.md. `elo` is the difference that the games are to resolve. All this
assumes strengths, so no order is decided while a pair's own games contradict it, see `contradictions`.

What to play is the pair whose game is expected to lower the sum of all doubts most. A game adds its information to the
posterior of all strengths, so it also tells of neighbors that do not take part in it. A difference below `elo` is taken
for `elo` here: otherwise games between players that look equal would promise nothing. Of very many players only those
that are near each other in the standings are considered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from arena.league.ratings import davidson
from arena.league.ratings.contradictions import Contradiction, contradictions, head_to_head
from arena.league.ratings.ratings import fitted
from arena.league.results import Results
from arena.league.timeline import Timeline

Array: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]

RESOLUTION = 20.0  # Elo
_SAME = (0.1 / davidson.ELO) ** 2  # the least variance of a difference
_LEAST = 1e-9  # growth of a ratio per game
_WEIGHED = 2**26  # pairs to play times pairs of neighbors, at most, in one choice
_AT_ONCE = 2**20  # of these, in one array


def most_informative(
    results: Results, players: Sequence[str], *, count: int = 1, games: int = 1, elo: float = RESOLUTION
) -> list[tuple[str, str]]:
    """The pairs whose games would change the standings most, the most urgent one first.

    They are chosen one after the other, as if the games of those before had been played: a pair may come several
    times. The same results give the same pairs. Each of them plays so many `games`.

    Raises:
        ValueError: there are fewer than two players.
    """
    if len(players) < 2:
        raise ValueError(f"a pair needs two players, got {list(players)}")
    standings = Standings(results, players, elo=elo)
    return [standings.next_pair(games=games) for _ in range(count)]


def decided(results: Results, players: Sequence[str], error: float = 0.05, *, elo: float = RESOLUTION) -> bool:
    """Whether the order of all players is decided; that of fewer than two players always is.

    The error is the probability that it is wrong, if all players are at least `elo` apart (see above), or that two
    players count as equal that are not. Half of `elo` needs four times as many games.
    """
    if len(set(players)) < 2:
        return True
    standings = Standings(results, players, elo=elo)
    return standings.wrong <= error and not standings.contradictions()


class OrderUncertainty(NamedTuple):
    """The doubt about two neighbors in the standings: the probability that the verdict on them is wrong."""

    upper: str
    lower: str
    probability: float  # that they are in the wrong order, or if `equal`, that they are not equal
    equal: bool  # whether their equality is more certain than their order
    games_left: int = 0  # about how many more of their games settle it, where `Standings.doubts_within` says so


class Standings:
    """The order of players by strength, with the ratios of likelihoods of every two neighbors.

    Args:
        results: all games so far. If policies learn in a timeline, their strength differs from game to game: no two
            players count as equal, and the ratios of likelihoods are those of normally distributed strengths.
        players: the players to order, at least one; games with other players count as evidence about these.
        elo: the difference to resolve.

    Attributes:
        order: the players, the best first.
    """

    def __init__(self, results: Results | Timeline, players: Sequence[str], *, elo: float = RESOLUTION) -> None:
        rated, included = sorted({*players, *results.players}), set(players)
        self._fitted = found = fitted(results, rated, coarse=True)
        at = [place for place in davidson.best_first(found.strengths) if rated[place] in included]
        self.order = tuple(rated[place] for place in at)
        self._elo = elo / davidson.ELO
        self._strengths = found.strengths[at]
        self._covariance = found.covariance[np.ix_(at, at)]
        if isinstance(results, Timeline) and results.learns:
            self._results = Results()
            self._ratios: Array = -2 * self._elo * np.diff(self._strengths) / _variances(self._covariance)  # [P - 1]
        else:
            self._results = results.results if isinstance(results, Timeline) else results
            self._ratios = _ratios_of_order(davidson.games_of(self._results, rated), found, at, self._elo)
        # The games of neighbors [P - 1, 3, 3]: won, drawn and lost by the one with the first side, or else the upper.
        played = head_to_head(self._results)
        ends = [played.get(pair, np.zeros((3, 3))).copy() for pair in zip(self.order, self.order[1:], strict=False)]
        for one in ends:
            one[1] = one[1, ::-1]
        self._equal_ratios, self._growth = _ratios_of_equality(np.reshape(ends, (-1, 3, 3)), self._elo)  # [3, P - 1]

    @property
    def wrong(self) -> float:
        """The sum of the doubts: an upper bound of the probability that the order is wrong."""
        return float(sum(doubt.probability for doubt in self.doubts))

    @property
    def doubts(self) -> list[OrderUncertainty]:
        """The doubts about each two neighbors, the best ones first."""
        equal_ratios = self._equal_ratios.max(axis=0)
        numbers = _doubts(self._ratios, equal_ratios).tolist(), (equal_ratios > self._ratios).tolist()
        return [OrderUncertainty(*found) for found in zip(self.order, self.order[1:], *numbers, strict=False)]

    def doubts_within(self, error: float) -> list[OrderUncertainty]:
        """The doubts, with the games after which each is at most `error`; 0: it is so already.

        Their games are expected to go as those so far; players that look equal count as differing by `elo`.
        """
        differences = -np.diff(self._strengths)
        information = davidson.information(differences, self._fitted.nu)
        of_order = 2 * self._elo * np.maximum(differences, self._elo) * information
        growth = np.maximum(np.vstack([of_order, self._growth]), _LEAST)  # of the ratios per game, [4, P - 1]
        missing = math.log((1 - error) / error) - np.vstack([self._ratios, self._equal_ratios])
        games = np.ceil(np.maximum(missing / growth, 0.0).min(axis=0)).astype(int).tolist()
        return [doubt._replace(games_left=left) for doubt, left in zip(self.doubts, games, strict=True)]

    def contradictions(self) -> list[Contradiction]:
        """The pairs of players whose own games contradict the order."""
        elo, strengths = self._elo * davidson.ELO, self._strengths.tolist()
        return contradictions(head_to_head(self._results), self.order, strengths, self._fitted, elo=elo)

    def next_pair(self, *, of: str | None = None, games: int = 1) -> tuple[str, str]:
        """The pair to play next, the upper one first: of any players, or of one player and another one.

        From then on its `games` count as played, with the expected results.
        """
        count = len(self.order)
        if of is None:  # the pairs [C] by their places
            first, second = np.triu_indices(count, 1)
            near = second - first <= max(1, _WEIGHED // count**2)
            first, second = first[near], second[near]
        else:
            place = self.order.index(of)
            others = np.delete(np.arange(count), place)
            first, second = np.minimum(place, others), np.maximum(place, others)
        step = max(1, _AT_ONCE // count)
        blocks = [slice(start, start + step) for start in range(0, len(first), step)]
        wrong = [_doubts(*self._played(first[block], second[block], games)).sum(axis=0) for block in blocks]
        best = int(np.argmin(np.concatenate(wrong)))
        first, second = first[best : best + 1], second[best : best + 1]
        ratios, _ = self._played(first, second, games)
        shown, variance = self._shown(first, second, games)
        self._ratios = ratios[:, 0]
        if second[0] == first[0] + 1:
            self._equal_ratios[:, first[0]] += games * self._growth[:, first[0]]
        self._covariance -= np.outer(shown, shown) / variance
        return self.order[first[0]], self.order[second[0]]

    def _shown(self, first: Places, second: Places, games: int) -> tuple[Array, Array]:
        """The covariance [P, C] of all strengths with the difference that each pair's games show; its variance [C]."""
        noise = 1 / (games * davidson.information(self._strengths[first] - self._strengths[second], self._fitted.nu))
        shown = self._covariance[:, first] - self._covariance[:, second]
        each = np.arange(len(first))
        return shown, noise + shown[first, each] - shown[second, each]

    def _played(self, first: Places, second: Places, games: int) -> tuple[Array, Array]:
        """The logs of both ratios [P - 1, C] as they are expected to be after games of each pair."""
        shown, variance = self._shown(first, second, games)
        shrinking = (shown[:-1] - shown[1:]) ** 2 / variance  # [P - 1, C]
        differences = np.maximum(-np.diff(self._strengths), self._elo)
        before = _variances(self._covariance)
        gained = 2 * self._elo * differences[:, None] * (1 / (before[:, None] - shrinking) - 1 / before[:, None])
        equal_ratios = np.repeat(self._equal_ratios.max(axis=0)[:, None], len(first), axis=1)
        neighbors = np.flatnonzero(second == first + 1)
        grown = (self._equal_ratios + games * self._growth).max(axis=0)
        equal_ratios[first[neighbors], neighbors] = grown[first[neighbors]]
        return self._ratios[:, None] + gained, equal_ratios


def open_doubts(found: Sequence[OrderUncertainty], error: float) -> list[OrderUncertainty]:
    """The doubts that keep the order from being decided, of the best neighbors first; none if it is decided.

    These are the doubts above an equal share of the error, and the next larger ones until their sum exceeds the error.
    If all doubts together are no larger than the error, the order is decided.
    """
    if sum(doubt.probability for doubt in found) <= error:
        return []
    share, together, chosen = error / len(found), 0.0, set[OrderUncertainty]()
    for doubt in sorted(found, key=lambda doubt: -doubt.probability):
        if doubt.probability > share or together <= error:
            together += doubt.probability
            chosen.add(doubt)
    return [doubt for doubt in found if doubt in chosen]


def equals(
    results: Results, players: Sequence[str], *, error: float = 0.05, elo: float = RESOLUTION
) -> list[OrderUncertainty]:
    """The neighbors in the standings of these players that have proved to be as good as each other.

    All doubts together may be as large as the error.
    """
    found = Standings(results, players, elo=elo).doubts if players else []
    left_open = open_doubts(found, error)
    return [doubt for doubt in found if doubt.equal and doubt not in left_open]


def _doubts(ratios: Array, equal_ratios: Array) -> Array:
    """The probabilities that two neighbors are judged wrongly, by the logs of the ratios of their two tests."""
    return expit(-np.maximum(ratios, equal_ratios))  # type: ignore[no-any-return]


def _variances(covariance: Array) -> Array:
    """The variances of the differences of neighbors, float64 [P - 1]; a policy and its newest snapshot may be equal."""
    each = np.diag(covariance)
    return np.maximum(each[:-1] + each[1:] - 2 * np.diag(covariance, 1), _SAME)


def _ratios_of_order(games: davidson.Games, fitted: davidson.Fit, at: Sequence[int], elo: float) -> Array:
    """The logs [P - 1] of the likelihood ratios of neighbors: the upper one is `elo` better, against the lower is."""
    upper, lower = at[:-1], at[1:]
    each = np.arange(len(upper))
    found = fitted.strengths[upper] - fitted.strengths[lower]
    moves = fitted.covariance[upper] - fitted.covariance[lower]  # [P - 1, P + 1]
    moves /= (moves[each, upper] - moves[each, lower])[:, None]  # of all parameters, per unit of this difference
    better, worse = (
        davidson.log_likelihood(games, fitted.parameters + (difference - found)[:, None] * moves, fitted)
        for difference in (elo, -elo)
    )
    return better - worse


def _ratios_of_equality(ends: Array, elo: float) -> tuple[Array, Array]:
    """The logs [3, P - 1] of the likelihood ratios of the equality of neighbors, and the growth expected of a game.

    For three cases: nearly all of their games are drawn; the first side wins; the first side loses. The games `ends`
    are float64 [P - 1, 3, 3]; axis 1: the upper one has the first side, the lower one, or no one; axis 2: games won,
    drawn and lost by the one with the first side, or else by the upper one.
    """
    many = math.tanh(elo / 2)  # share of other games that, all won by one player, equals a lead of `elo`
    few = many / 4
    alike, otherwise = math.log((1 - few) / (1 - many)), math.log(few / many)
    usual = ends.sum(axis=(0, 1)) / max(1.0, ends.sum())  # [3], counts as one game

    def tested(counts: Array) -> tuple[Array, Array]:
        games = counts.sum(axis=-1, keepdims=True)
        share = (counts + usual) / (games + 1)
        ratios = counts * alike + (games - counts) * otherwise
        return ratios, np.maximum(0.0, share * alike + (1 - share) * otherwise)

    on_all = tested(ends.sum(axis=1))  # each [P - 1, 3]
    ratios, growth = tested(ends[:, :2])  # [P - 1, 2, 3]
    on_either = ratios.min(axis=1), growth.min(axis=1) / 2  # a game is on one of the sides
    found = [
        np.stack([all_[:, 1], by_side[:, 0], by_side[:, 2]]) for all_, by_side in zip(on_all, on_either, strict=True)
    ]
    return found[0], found[1]
