"""Davidson's model of games with draws: the likelihood of results, its maximum, and whether there is one.

Of two teams with strengths s and t, in nats, the one on the first side wins, draws or loses with chances in the ratio

    exp(d / 2) : nu : exp(-d / 2),     d = s - t + side

(Davidson 1970, "On extending the Bradley-Terry model to accommodate ties in paired comparison experiments", in
logarithms; with what the first side is worth, Davidson and Beaver 1977, "On extending the Bradley-Terry model to
incorporate within-pair order effects"). Without draws nu is 0 and this is the model of Bradley and Terry. As a
multinomial logit in (strengths, side, log nu) its log-likelihood is concave: what the optimizer finds is the maximum.

So that draws do not move strengths where one nu is wrong for some pairs, they may have a smaller weight V than
decided games, 1. The log-likelihood is then V times Davidson's and 1 - V times Bradley's and Terry's of the decided
games: still concave, and with a maximum if Davidson's has one. V is 1 if draws vary from pair to pair
as nu says, see `alike`.

A maximum does not always exist: if a player has never lost, its strength can grow without end, and if two groups never
met, their distance has no effect. A weak normal prior then takes the place of the games that were not played. The side
always has such a prior: if every player has kept to one side, its worth cannot be estimated, and the intervals of the
strengths show this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse, special

from arena.league.results import Results

Array: TypeAlias = NDArray[np.float64]
Nodes: TypeAlias = tuple[int, ...]
Matrix: TypeAlias = Array | sparse.csr_array
"""Dense or sparse, by its size; used by what both can do alone: products, rows by a mask, `abs` and sums."""

ELO = 400 / math.log(10)  # in a nat
PRIOR_DEVIATION = 400 / ELO  # of a strength or a side, in nats; about as heavy as a single game
LOG_NU_DEVIATION = 2.0  # of log nu, if the prior is needed: draws are anything from rare to usual
_UNLIKE = 10.0  # sets of independent games that are added to those that were played, as a prior
_MOVED = 1e-3  # by how much a direction of length 1 helps, at least, if it helps at all; the solver errs by far less
_AT_ONCE = 2**20  # numbers of a temporary array
_DENSE = 2**16  # numbers of a matrix, up to which a dense one is the faster
_DIGITS = 8  # of strengths in nats; their error is far smaller


class Games(NamedTuple):
    """Results as arrays, as large as there are pairs that have met."""

    design: Matrix
    """float64 [M, P + 1], a row per pair of teams and which of them has the first side, or none: its product with the
    strengths and the side is d."""
    counts: Array  # float64 [M, 3], games won, drawn and lost by the first team, which has the first side if any has
    pairs: Matrix  # float64 [N, P + 1], a row per pair of teams, whatever their sides: the last column is 0
    scores: Array  # float64 [N, 3], games won, drawn and lost by the first of the two
    decided: Array  # float64 [M, 2], games won and lost beyond `counts`, which say nothing about draws

    @property
    def players(self) -> int:
        return int(self.design.shape[1]) - 1

    @property
    def all_drawn(self) -> bool:
        """Whether games were played and none was won, so that log nu can be as large as it likes."""
        return bool(self.counts[:, 1].any() and not self.counts[:, ::2].any())

    @property
    def drawn(self) -> bool:
        """Whether there are draws; otherwise nu is 0 and no parameter."""
        return bool(self.counts[:, 1].any())

    def with_alike_draws(self, similarity: float) -> Games:
        """These games, which all count fully, with a smaller weight of draws if those of a row are alike."""
        weight = 1 / (1 + similarity * (self.counts.sum(axis=1, keepdims=True) - 1))
        return self._replace(counts=weight * self.counts, decided=(1 - weight) * self.counts[:, ::2])


class Fit(NamedTuple):
    """The most likely parameters."""

    parameters: Array  # float64 [P + 1], in nats: strengths, whose mean is 0, and what the first side is worth
    covariance: Array  # float64 [P + 1, P + 1], of these, from the observed information
    nu: float  # how usual draws are: twice the ratio of draws to decided games between equals
    prior: bool  # whether there are no most likely strengths without the prior
    similarity: float = 0.0  # of the draws of a row of `Games`

    @property
    def strengths(self) -> Array:
        return self.parameters[:-1]


def games_of(results: Results, players: Sequence[str]) -> Games:
    """The arrays of results; the strength of a team is the mean of its members'.

    The mean, and not the sum, because only differences of strengths can be observed: with sums, the chances of one
    player against two would depend on where the scale has its zero. For teams of equal size the two differ by a factor
    only, and with the mean, teams of `a` and of `b` are as far apart as `a` and `b`.
    """
    sided, others, met = results.by_side(), results.without_sides(), results.pairs()
    design = _differences([*sided, *others], players, sided=len(sided))
    counts = np.array([*sided.values(), *others.values()], np.float64).reshape(-1, 3)
    pairs, scores = _differences([*met], players), np.array([*met.values()], np.float64).reshape(-1, 3)
    differ = abs(pairs).sum(axis=1) > 0  # (a, b) and (a, a, b, b) are equally strong whatever their members are
    return Games(design, counts, pairs[differ], scores[differ], np.zeros((len(counts), 2)))


def of_nodes(pairs: Sequence[tuple[Nodes, Nodes]], counts: Array, *, sided: int, nodes: int) -> Games:
    """The arrays of games between teams of nodes, which are numbers from 0; `Games.pairs` and `scores` are empty.

    The pairs are distinct; the first `sided` ones have sides.
    """
    none, design = np.zeros((0, nodes + 1)), _differences(pairs, range(nodes), sided=sided)
    return Games(design, counts, none, none[:, :3], np.zeros((len(counts), 2)))


def _differences(pairs: Sequence[tuple[Any, Any]], players: Sequence[Any], *, sided: int = 0) -> Matrix:
    """Per pair the first team minus the second, [M, P + 1]; the first `sided` rows have the first side as well.

    Dense if that is small. Players that are not in `players` count as 0: they have only met themselves.
    """
    index = {name: place for place, name in enumerate(players)}
    numbers = {team: number for number, team in enumerate(dict.fromkeys(team for pair in pairs for team in pair))}
    shares = [  # rounded once: teams that are equal differ by 0
        (number, index[name], team.count(name) / len(team))
        for team, number in numbers.items()
        for name in dict.fromkeys(team)
        if name in index
    ]
    rows, places, values = zip(*shares, strict=True) if shares else ((), (), ())
    shape = len(pairs), len(players) + 1
    teams = sparse.csr_array((values, (rows, places)), shape=(len(numbers), shape[1]), dtype=np.float64)
    side = sparse.csr_array((np.ones(sided), (np.arange(sided), np.full(sided, len(players)))), shape=shape)
    first, second = (teams[np.array([numbers[pair[at]] for pair in pairs], np.intp)] for at in (0, 1))
    found = first - second + side
    return found if math.prod(shape) > _DENSE else found.toarray()


def gram(design: Matrix, weights: Array) -> Array:
    """The products of a matrix' columns with each other, each row [M] with its weight; dense: there are few columns."""
    found = design.T @ (weights[:, None] * design)
    return np.asarray(found if isinstance(found, np.ndarray) else found.toarray())


def log_of(nu: float) -> float:
    """The logarithm, minus infinity where there are no draws."""
    return math.log(nu) if nu else -math.inf


def chances(differences: Array, log_nu: float) -> Array:
    """Of a win, a draw and a loss, float64 [..., 3], for differences [...] in nats."""
    half = differences / 2
    return special.softmax(np.stack([half, np.full_like(half, log_nu), -half], axis=-1), axis=-1)  # type: ignore[no-any-return]


def best_first(strengths: Array) -> NDArray[np.intp]:
    """The places of strengths, the largest first; strengths that differ by rounding only keep their order."""
    return np.argsort(-strengths.round(_DIGITS), kind="stable")


def information(differences: Array, nu: float) -> Array:
    """The information of one game about the difference of its sides, float64 [M]: an inverse variance, in nats."""
    won, _, lost = chances(differences, log_of(nu)).T
    return (won + lost - (won - lost) ** 2) / 4  # type: ignore[no-any-return]


def alike(surplus: Array, variance: Array, games: Array, fitted: float) -> float:
    """How much alike the games of a set are, by how far their results deviate from the expected ones.

    The square of the surplus of a set is expected to be v (1 + similarity (n - 1)), with the number of games n and v,
    the sum of their variances (Williams 1982, "Extra-binomial variation in logistic linear models", by moments). The
    fit of the parameters reduces the squares of M sets by the share `fitted` / M.

    Args:
        surplus: float64 [M], of wins, or of draws, in each set.
        variance: float64 [M], of all its games together if they are independent.
        games: float64 [M], how many.
        fitted: how many parameters have been fitted to the results, in effect.
    """
    free = len(games) - fitted
    left = max(0.0, free) / max(1, len(games))
    more = left * (variance * (games - 1) / games).sum()
    if not more:
        return 0.0
    found = ((surplus**2 - left * variance) / games).sum() / more
    return float(np.clip(found * free / (free + _UNLIKE), 0.0, 1.0))


def log_likelihood(games: Games, parameters: Array, fitted: Fit) -> Array:
    """Of strengths and side [K, P + 1] in nats, with nu, similarity of draws and priors of a fit; float64 [K]."""
    games = games.with_alike_draws(fitted.similarity)
    won, drawn, lost = games.counts.T
    played, decided = games.counts.sum(axis=1), games.decided.sum(axis=1)
    surplus = won - lost + games.decided[:, 0] - games.decided[:, 1]
    squares = parameters**2
    penalty = (fitted.prior * squares[:, :-1].sum(axis=1) + squares[:, -1]) / (2 * PRIOR_DEVIATION**2)
    found = special.xlogy(drawn.sum(), fitted.nu) - penalty  # [K]
    step = max(1, _AT_ONCE // max(1, len(played)))
    for start in range(0, len(parameters), step):
        half = (games.design @ parameters[start : start + step].T) / 2  # [M, step]
        size = np.abs(half)
        weights = size + np.log1p(np.exp(-2 * size) + fitted.nu * np.exp(-size))  # log(exp(h) + nu + exp(-h))
        found[start : start + step] += surplus @ half - played @ weights
        if fitted.similarity:
            found[start : start + step] -= decided @ (size + np.log1p(np.exp(-2 * size)))
    return found  # type: ignore[no-any-return]


def has_maximum(games: Games) -> bool:
    """Whether the likelihood has one maximum: no direction to move strengths and log nu forever without reducing it.

    Except the shift of all strengths, which changes nothing, and the side, which has a prior. Ford 1957, "Solution
    of a ranking problem from binary comparisons", for wins and losses; in general the question is a linear program
    (Konis 2007, "Linear programming algorithms for detecting separated data in binary logistic regression models").
    """
    if games.all_drawn:
        return False
    won, drawn, lost = (games.scores > 0).T
    free = games.players - 1
    if _rank(games.pairs[won & lost]) == free:  # the usual case: no group can be shifted against another
        return True
    if _rank(games.pairs) < free:
        return False
    # Whether some direction (strengths, log nu) makes no game that was played less likely, and one more likely. An
    # outcome becomes more likely if its logit (d / 2, log nu or -d / 2) grows more than the others.
    design, rows = sparse.csr_array(games.pairs), games.pairs.shape[0]
    half = sparse.hstack([design / 2, sparse.csr_array((rows, 1))], format="csr")  # [N, P + 2]
    draw = sparse.hstack([sparse.csr_array(design.shape), np.ones((rows, 1))], format="csr")
    growth = [(2 * half)[won], (-2 * half)[lost]]
    if drawn.any():
        growth += [(half - draw)[won], (draw - half)[drawn], (draw + half)[drawn], (-half - draw)[lost]]
    gains = sparse.vstack(growth, format="csr")
    best = optimize.linprog(-gains.sum(axis=0), A_ub=-gains, b_ub=np.zeros(gains.shape[0]), bounds=(-1, 1))
    return not (best.fun is not None and -best.fun > _MOVED)


def _rank(design: Matrix) -> int:
    square = gram(design, np.ones(design.shape[0]))  # there may be far more games than players
    return int(np.linalg.matrix_rank(square, hermitian=True))
