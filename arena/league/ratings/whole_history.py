"""Strengths of players that learn: whole-history ratings with draws and sides.

The strength of a policy that learns is a function of the ticks that it has played. It is estimated at nodes, one at the
end of each period (see `arena.league.timeline`), and moves between two of them like a Wiener process (Coulom 2008,
"Whole-History Rating: A Bayesian Rating System for Players of Time-Varying Strength"):

    s(t2) - s(t1)  ~  Normal(0, w(t)^2 (t2 - t1)),     log w(t)^2  =  u + u_p + (v + v_p) (t - mean)

Games of a period are played at the mean of the nodes at its two ends. A player that does not learn is one node. A
snapshot `p@t` is the node of `p` at tick t: the same weights, the same strength. A policy that is reset begins a new
curve; the first node of a copy is the node of its source. Results follow Davidson's model as elsewhere, see `davidson`.

w, the movement of a policy p in a round's ticks, changes with the age t of the policy: most learn fast first, and
slowly later. u and v are common to all policies of a run, and estimated from the games of all of them; u_p and v_p are
the deviations of each policy. They maximize the marginal likelihood of all games in Laplace's approximation, in which
the curvature of the likelihood is held fixed while they vary, times a gamma density of shape 2 for exp(u / 2) and
normal densities for the others. The gamma density keeps w from 0, where the maximum lies by chance if there are few
games, and from infinity (Chung et al. 2013, "A nondegenerate penalized likelihood estimator for variance parameters in
multilevel models"). Without the common part, the games of one policy say too little about its movement at the end: if
all have stopped, intervals are wider by a fifth, and strengths less exact by as much.

Games of a pair in a round are alike: one policy may exploit the other, or play one side only. So n of them have the
weight of n / (1 + likeness (n - 1)) games, as if chances varied from pair to pair and round to round. Games of each
side are weighted as if there were as many of the other one, because quick games are many and long ones few. The
likeness is estimated by the method of moments (see `davidson.alike`), alternating with the movements. Without it,
surprising results would be taken for movement, and intervals would be too narrow. Draws have a likeness of their own:
if it is larger, their weight is smaller than that of wins, see `davidson`.

Intervals at the maximum alone are too narrow if there are few rounds: in simulated leagues of 12 rounds they hold the
truth in 90 % rather than in 95 %. So the covariance of the strengths has a second part, for the uncertainty of these
parameters (Kass and Steffey 1989, "Approximate Bayesian inference in conditionally independent hierarchical models").
The first part, which does not grow in proportion to w, is computed with a larger w: the logarithm of w^2 is raised by
the share `_SHARE` of its own variance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from arena.league.ratings import davidson
from arena.league.ratings.davidson import ELO, PRIOR_DEVIATION, Array, Games, gram
from arena.league.ratings.maximum import EXACT, Minimum, Problem, is_close
from arena.league.results import Results, Score, Team
from arena.league.timeline import Period, Timeline

_MANY = 2000  # nodes, from which on movements are estimated with merged rounds
_USUAL = 35 / ELO  # movement in a round's ticks, in nats: the mode of its gamma density, half of its mean
_BOUNDS = (1 / ELO) ** 2, (400 / ELO) ** 2  # of its square
_BEND = 6.0  # by how much the logarithm of the square changes over the run: the deviation of a normal density
_OWN, _OWN_BEND = 1.0, 1.5  # by how much a policy differs in the logarithm, and in its change over the run, likewise
_SHARE = 3 / 16  # of the variance of a logarithm, added to it; like _BEND chosen for coverage in simulated leagues
_FIRST = 20  # turns in which likenesses may change; after these, the movements settle
_TURNS = 100  # of the estimation, after which the movements are taken as they are
_LONGEST = 1.5  # step of the logarithm of the variance
_SETTLED = 0.04  # longest such step of the last turn: 2 % of the movement
_ROUGH = 0.1  # nats that strengths may be below their maximum while movements are estimated
_ALL = 400  # links, up to which each is looked at; of more, _PROBES random combinations
_PROBES = 32
_BELIEVED = 10.0  # games of each player, that a prior counts for: a deviation of some 110 Elo

Places: TypeAlias = NDArray[np.intp]


class Point(NamedTuple):
    """A node of a policy's curve.

    Args:
        tick: of the node.
        node: its number.
        curve: the number of the curve: it grows whenever the policy begins anew.
    """

    tick: int
    node: int
    curve: int


class Walk(NamedTuple):
    """The ties between nodes: the steps of all curves.

    Args:
        first: int [L], nodes at which steps begin.
        second: int [L], nodes at which they end.
        rounds: float64 [L], the length of each step, in rounds.
        age: float64 [L], the share of the run's rounds that a policy had played then since it began, above the mean of
            all steps.
        policy: int [L], the number of the policy.
        policies: the names by these numbers.
        anchors: int [C], a node of each set of nodes that are tied with each other.
        levels: games between these sets, which decide whether the likelihood has a maximum.
    """

    first: Places
    second: Places
    rounds: Array
    age: Array
    policy: Places
    policies: Sequence[str]
    anchors: Places
    levels: Games

    @property
    def factors(self) -> Array:
        """The factors of `Movement.log_variance` in each step, float64 [L, K]: of u, v, then of each policy's own."""
        own = np.equal.outer(self.policy, np.arange(len(self.policies))).astype(np.float64)
        age = self.age[:, None]
        return np.hstack([np.ones_like(age), age, own, own * age])


class Likeness(NamedTuple):
    """How much alike the games of a pair in a round are, from 0 to 1.

    Args:
        wins: in who wins.
        draws: in which of them are drawn.
    """

    wins: float = 0.0
    draws: float = 0.0


class Meetings(NamedTuple):
    """The games of each round by pair of teams, and by meeting: those on the same sides.

    Args:
        counts: float64 [C, 3], games won, drawn and lost by the first team.
        row: int [C], the row of `Games` in which they count.
        meeting: int [C], the number of their meeting.
        pair: int [C], the number of the pair of teams in that round, on whatever sides.
        sign: float64 [C], 1 where the first team of the row is the first one of the pair, -1 where it is the other one,
            0 where they are the same.
        others: float64 [M, 2], games won and lost in each row that were believed rather than played: they say nothing
            about draws.
    """

    counts: Array
    row: Places
    meeting: Places
    pair: Places
    sign: Array
    others: Array

    def weighted(self, games: Games, likeness: Likeness) -> Games:
        """The games with the counts of all rows, weighted by the likeness of those of a pair in a round.

        Each side of a pair has its own weight, as if the other one had as many games: quick ones are many.
        """
        _, first = np.unique(self.meeting, return_index=True)
        sides = np.bincount(self.pair[first])[self.pair]
        played = np.bincount(self.meeting, self.counts.sum(axis=1))[self.meeting] * sides
        whole, less = (1 / (1 + one * (played - 1))[:, None] for one in (likeness.wins, max(likeness)))
        counts, decided = np.zeros((len(self.others), 3)), self.others.copy()
        np.add.at(counts, self.row, less * self.counts)
        np.add.at(decided, self.row, (whole - less) * self.counts[:, ::2])
        return games._replace(counts=counts, decided=decided)

    def likeness(self, chances: Array, fitted: float) -> Likeness:
        """How much alike the games of a pair in a round are.

        Both sides count together, because what a side is worth to a policy says little about its strength; so games of
        a team against itself do not count.

        Args:
            chances: float64 [M, 3], of the results in each row.
            fitted: how many parameters have been fitted to the results, in effect.
        """
        won, drawn, lost = chances[self.row].T
        games, decided, share = self.counts.sum(axis=1), self.counts[:, ::2].sum(axis=1), won / (won + lost)
        wins, draws = self.sign * (self.counts[:, 0] - decided * share), self.counts[:, 1] - games * drawn
        of_wins, of_draws = decided * share * (1 - share), games * drawn * (1 - drawn)

        def alike(each: tuple[Array, Array, Array], fitted: float) -> float:
            """Of the pairs that have played such games: their surplus, variance and number."""
            met = np.unique(self.pair[(self.sign != 0) & (each[-1] > 0)])
            surplus, variance, played = (np.bincount(self.pair, one)[met] for one in each)
            return davidson.alike(surplus, variance, played, fitted)

        return Likeness(alike((wins, of_wins, decided), fitted), alike((draws, of_draws, games), 1.0))


class History(NamedTuple):
    """A timeline as arrays.

    Args:
        games: over the nodes.
        meetings: the same games.
        walk: how the nodes are tied.
        nodes: the node of every player as it is at the end, and of every snapshot.
        curves: the nodes of each policy that learns, in the order of their ticks.
    """

    games: Games
    meetings: Meetings
    walk: Walk
    nodes: Mapping[str, int]
    curves: Mapping[str, Sequence[Point]]

    def node(self, player: str, at: int | None = None) -> int:
        """The node of a player at the end, or at a tick; if it begins anew at that tick, the node before."""
        points = self.curves.get(player)
        if at is None or points is None:
            return self.nodes[player]
        last = max((point.tick for point in points if point.tick <= at), default=points[0].tick)
        return next(point.node for point in points if point.tick == last)

    def components(self) -> Places:
        """Per node, the number of the set in which it can be compared: sets are connected by games and by ties."""
        return components(self.games, [*zip(self.walk.first.tolist(), self.walk.second.tolist(), strict=True)])


class Movement(NamedTuple):
    """The movements of policies in the ticks of a round: parameters of their variance.

    Args:
        log_variance: float64 [K], the parameters in which the logarithm of a step's variance is linear.
        spread: float64 [K, K], their covariance.
    """

    log_variance: Array
    spread: Array

    def variance(self, factors: Array) -> Array:
        """The variance [L] of steps in a round's ticks, by the factors [L, K] of these parameters."""
        found: Array = np.exp(np.clip(self._logs(factors), *np.log(_BOUNDS)))
        return found

    def moves_with(self, factors: Array) -> Array:
        """Which steps' variances change with these parameters, bool [L]: those that are not at a bound."""
        logs = self._logs(factors)
        low, high = np.log(_BOUNDS)
        found: Array = (low < logs) & (logs < high)
        return found

    def _logs(self, factors: Array) -> Array:
        unknown = ((factors @ self.spread) * factors).sum(axis=1)
        found: Array = factors @ self.log_variance + _SHARE * unknown
        return found


class Estimate(NamedTuple):
    """The most likely strengths of a history, with what their covariance is made of.

    Args:
        history: the nodes.
        problem: whose minimum is the most likely strengths.
        minimum: of the problem.
        prior: whether the sets of tied nodes have a prior.
        movement: of the policies that learn.
        likeness: of the games of a pair in a round, see `Meetings`.
        unsure: float64 [N, K], by how much each strength changes with K independent standard normal numbers, which
            stand for the uncertainty of the movements.
    """

    history: History
    problem: Problem
    minimum: Minimum
    prior: bool
    movement: Movement
    likeness: Likeness
    unsure: Array

    def of_players(self, players: Sequence[str], *, at: int | None = None) -> davidson.Fit:
        """The strengths of players at the end, or at a tick, above their mean."""
        nodes = [self.history.node(name, at) for name in players]
        return self.fit(nodes, nodes)

    def fit(self, at: Sequence[int], zero: Sequence[int]) -> davidson.Fit:
        """The strengths of the nodes `at`, above the mean of the nodes `zero`."""
        found = self.problem.fit(self.minimum, np.array(at, np.intp), np.array(zero, np.intp), prior=self.prior)
        unsure = self.unsure[[*at]] - self.unsure[[*zero]].mean(axis=0)
        found.covariance[:-1, :-1] += unsure @ unsure.T
        return found


@lru_cache(maxsize=1)
def estimate(timeline: Timeline, players: tuple[str, ...], marks: tuple[int, ...], *, coarse: bool) -> Estimate:
    """The most likely strengths of a timeline; arguments as of `history`. The newest estimate is cached."""
    made = history(timeline, players, marks, coarse=coarse)
    games, walk = made.games, made.walk
    prior = games.all_drawn or not davidson.has_maximum(walk.levels)
    anchored = np.zeros(games.players)
    anchored[walk.anchors] = prior * PRIOR_DEVIATION**-2
    count = len(walk.rounds)
    each = np.arange(count)
    steps = sparse.csr_array(
        (np.repeat([1.0, -1.0], count), (np.tile(each, 2), np.concatenate([walk.second, walk.first]))),
        shape=(count, games.players),
    )
    looks = np.eye(count) if count <= _ALL else np.random.default_rng(0).choice([-1.0, 1.0], (count, _PROBES))
    factors = walk.factors
    logs: Array = np.zeros(factors.shape[1])
    logs[0] = 2 * math.log(_USUAL)
    movement = Movement(logs, np.zeros((len(logs), len(logs))))
    pace, before = np.ones_like(logs), np.zeros_like(logs)
    likeness, settled, order, start = Likeness(), not count, None, None
    if games.players > _MANY and not coarse:
        rough = estimate.__wrapped__(timeline, players, (), coarse=True)
        movement, likeness = rough.movement, rough.likeness
        settled, start = True, _interpolated(rough, made)
    turn = 0
    while True:
        scaled = sparse.diags_array((walk.rounds * movement.variance(factors)) ** -0.5) @ steps
        games = made.meetings.weighted(games, likeness)
        problem = Problem(games, sparse.csr_array(scaled.T @ scaled + sparse.diags_array(anchored)), prior=prior)
        problem.order = order
        minimum = problem.minimum(start, done=EXACT if settled else _ROUGH)
        order, start = problem.order, minimum.parameters
        changing = factors * movement.moves_with(factors)[:, None]
        if settled:
            unsure = _sensitivity(scaled, minimum, changing, movement)
            return Estimate(made, problem, minimum, prior, movement, likeness, unsure)
        slope, information, known = _slope(scaled, minimum, looks, changing, logs)
        change = np.linalg.solve(information, slope).astype(np.float64)
        pace[change * before < 0] /= 2  # it has overshot
        change = np.clip(pace * change, -_LONGEST, _LONGEST)
        settled, before = bool((abs(change) < _SETTLED).all()) or turn >= _TURNS, change
        now = made.meetings.likeness(problem.chances(start), problem.size - count + known)
        if turn < _FIRST and not all(map(is_close, now, likeness)):
            likeness, settled, pace = now, False, np.ones_like(logs)
        logs = logs + change
        movement = Movement(logs, np.linalg.inv(information).astype(np.float64) * settled)
        turn += 1


def _sensitivity(scaled: sparse.csr_array, minimum: Minimum, factors: Array, movement: Movement) -> Array:
    """The derivatives [N, K] of the strengths by the movements, each scaled to its standard deviation."""
    strengths = scaled.shape[1]
    root = np.linalg.cholesky(movement.spread) if movement.spread.any() else movement.spread
    right = np.zeros((len(minimum.parameters), len(root)))
    right[:strengths] = scaled.T @ ((scaled @ minimum.parameters[:strengths])[:, None] * (factors @ root))
    found: Array = minimum.factor.solve(right)[:strengths]
    return found


def _interpolated(rough: Estimate, made: History) -> Array:
    """The parameters at all nodes, interpolated from an estimate with fewer of them."""
    known, players = rough.minimum.parameters, made.games.players
    found = np.concatenate([np.zeros(players), known[rough.history.games.players :]])
    for name, node in made.nodes.items():
        found[node] = known[rough.history.nodes[name]]
    for name, points in made.curves.items():
        ticks, nodes = zip(*((point.tick, point.node) for point in rough.history.curves[name]), strict=True)
        found[[point.node for point in points]] = np.interp([point.tick for point in points], ticks, known[[*nodes]])
    return found


def _slope(
    scaled: sparse.csr_array, minimum: Minimum, looks: Array, factors: Array, logs: Array
) -> tuple[Array, Array, float]:
    """The slope [K] of the log of the posterior of the movements by their `log_variance`, and its information [K, K].

    The third result is the effective number of known steps.

    With the strengths' covariance V and the differences C of nodes that are tied, scaled to variance 1, the matrix
    M = I - C V C' says how much of each step is known. By the log of a step's variance, the slope is half the
    difference between the step's square and its entry on the diagonal of M; the information is about half the squares
    of M.
    """
    strengths = scaled.shape[1]
    units = np.zeros((len(minimum.parameters), looks.shape[1]))
    units[:strengths] = scaled.T @ looks
    seen = looks - scaled @ minimum.factor.solve(units)[:strengths]  # M times the looks
    known, squares = (seen * looks).sum(axis=1), (seen**2).sum(axis=1)
    if looks.shape[0] != looks.shape[1]:  # random looks, each of which sees all links
        known, squares = known / looks.shape[1], squares / looks.shape[1]
    moved = (scaled @ minimum.parameters[:strengths]) ** 2
    precision = _precision(len(logs))
    slope = factors.T @ (moved - known) / 2 - precision * logs
    information = gram(factors, squares) / 2 + np.diag(precision)
    movement = math.exp(logs[0] / 2)
    slope[0] += 0.5 - movement / (2 * _USUAL)
    information[0, 0] += movement / (4 * _USUAL)
    return slope, information, float(known.sum())


def _precision(count: int) -> Array:
    """The precision of the normal density of each parameter of movements; the first one has a gamma density instead."""
    policies = count // 2 - 1
    return np.array([0.0, _BEND**-2, *[_OWN**-2] * policies, *[_OWN_BEND**-2] * policies])


def history(timeline: Timeline, players: Iterable[str], marks: Sequence[int], *, coarse: bool) -> History:
    """The arrays of a timeline.

    Args:
        timeline: the games.
        players: players that have a node as well, even without a game.
        marks: ticks at which every policy has a node.
        coarse: whether old rounds are merged if there are very many.
    """
    chains, rows = _Chains(timeline, marks), _Rows()
    for group in timeline.groups(coarse=coarse):
        chains.play(group)
        scores = defaultdict[tuple[Team, Team, bool, int], Score](Score)
        for period in group:
            start = timeline.round_of(period)
            for first, second, score, sided in period.results.scores():
                scores[first, second, sided, start] = scores[first, second, sided, start].plus(score)
        nodes = dict[Team, davidson.Nodes]()
        for first, second, sided, start in sorted(scores):
            for team in (first, second):
                if team not in nodes:
                    nodes[team] = tuple(sorted(node for name in team for node in chains.ends(name)))
            met = (first, second, sided, start)
            rows.add(nodes[first], nodes[second], scores[met], met)
    chains.begin(timeline.end)
    for name in players:
        chains.ends(name)
    _expect(timeline.prior, chains, rows)
    return History(*rows.games(chains.count), chains.walk(rows), chains.nodes(), chains.points)


def _expect(prior: Mapping[str, float], chains: _Chains, rows: _Rows) -> None:
    """Adds the prior: results that are expected from the strengths of an earlier run.

    Each player has equally many games against each other, `_BELIEVED` in all, so games of this run soon outweigh it (a
    likelihood to a power below 1 as a prior: Ibrahim and Chen 2000, "Power prior distributions for regression models").
    """
    known = sorted((node, elo) for name, elo in prior.items() if (node := chains.first(name)) is not None)
    for (one, high), (other, low) in combinations(known, 2):
        rows.expect(one, other, games=_BELIEVED / (len(known) - 1), share=1 / (1 + math.exp((low - high) / ELO)))


def components(games: Games, ties: Sequence[tuple[int, int]] = ()) -> Places:
    """Per player or node, the number of the set in which it can be compared, int [P]."""
    players = games.players
    design = sparse.csr_array(games.design)[:, :players]
    tied = sparse.csr_array(
        (np.ones(2 * len(ties)), (np.repeat(np.arange(len(ties)), 2), np.array(ties, np.intp).reshape(-1))),
        shape=(len(ties), players),
    )
    rows = abs(sparse.vstack([design, tied], format="csr"))
    graph = sparse.block_array([[None, rows], [rows.T, None]], format="csr")
    _, labels = csgraph.connected_components(graph, directed=False)
    found: Places = labels[rows.shape[0] :].astype(np.intp)
    return found


class _Chains:
    """The nodes of all players, made in the order of their ticks."""

    def __init__(self, timeline: Timeline, marks: Sequence[int]) -> None:
        self._timeline = timeline
        self.count = 0
        self.points: dict[str, list[Point]] = {}
        self._current: dict[str, int] = {}  # the newest node of each policy that learns
        self._before: dict[str, int] = {}  # the one before the periods that were played last
        self._fixed: dict[str, int] = {}  # of other players
        self._links: list[tuple[int, int, float, float, str]] = []
        self._age: dict[str, float] = {}  # in rounds, of the newest node of each policy that learns
        self._begun = dict.fromkeys(timeline.beginnings, 0)
        self._joining = defaultdict[tuple[str, int], list[str]](list)
        self._marks: dict[str, set[int]] = {name: {*marks} for name in timeline.learners}
        for name in timeline.snapshots:
            policy, _, tick = name.rpartition("@")
            if policy in timeline.learners:
                self._joining[policy, int(tick)].append(name)
                self._marks[policy].add(int(tick))

    def begin(self, tick: int) -> None:
        """Begins new curves of policies that begin anew by a tick; a copy begins at its source's node before that."""
        before = dict(self._current)
        ages = dict(self._age)
        for name, times in sorted(self._timeline.beginnings.items()):
            for one in times[self._begun[name] :]:
                if one.tick <= tick:
                    self._begun[name] += 1
                    source = None if one.source is None else before.get(one.source)
                    self._put(name, one.tick, self._new() if source is None else source)
                    self._age[name] = 0.0 if one.source is None else ages.get(one.source, 0.0)

    def play(self, group: Sequence[Period]) -> None:
        """Appends the nodes of periods to the curves of all policies that have played in them."""
        self.begin(group[0].start)
        for name in sorted({name for period in group for name in period.playing} & self._timeline.learners):
            if name not in self._current:
                self._put(name, group[0].start, self._new())
        self._before = dict(self._current)
        for name in sorted(self._current):
            ticks = 0
            for period in group:
                inside = sorted(tick for tick in self._marks[name] if period.start < tick < period.end)
                for begin, end in zip((period.start, *inside), (*inside, period.end), strict=True):
                    ticks += (end - begin) * (name in period.playing)
                    if ticks and (end in self._marks[name] or period is group[-1]):
                        self._step(name, end, ticks)
                        ticks = 0
                    self._join(name, end)

    def ends(self, name: str) -> tuple[int, int]:
        """The nodes between which a player was in the periods that were played last."""
        if name in self._current:
            return self._before.get(name, self._current[name]), self._current[name]
        if name not in self._fixed:
            self._fixed[name] = self._new()
        return self._fixed[name], self._fixed[name]

    def nodes(self) -> dict[str, int]:
        """The node of every player at the end."""
        return {**self._fixed, **self._current}

    def first(self, name: str) -> int | None:
        """The node at which a player has begun; None if it has none."""
        points = self.points.get(name)
        return points[0].node if points else self._fixed.get(name)

    def walk(self, rows: _Rows) -> Walk:
        """How the nodes are tied."""
        first, second, steps, ages, policy = zip(*self._links, strict=True) if self._links else ((), (), (), (), ())
        policies = sorted({*policy})
        place = np.array([policies.index(name) for name in policy], np.intp)
        rounds, age = np.array(steps, np.float64), np.array(ages, np.float64)
        mean = (rounds * age).sum() / max(1.0, rounds.sum())
        whole = max(1, self._timeline.end) / self._timeline.round_ticks
        level = list(range(self.count))
        for one, other in zip(first, second, strict=True):
            level[other] = level[one]  # in the order of their ticks: the first one of a link has its level
        anchors, levels = np.unique(np.array(level, np.intp), return_inverse=True)
        return Walk(
            np.array(first, np.intp),
            np.array(second, np.intp),
            rounds,
            (age - mean) / whole,
            place,
            policies,
            anchors.astype(np.intp),
            rows.between(levels.tolist(), len(anchors)),
        )

    def _new(self) -> int:
        self.count += 1
        return self.count - 1

    def _put(self, name: str, tick: int, node: int) -> None:
        points = self.points.setdefault(name, [])
        points.append(Point(tick, node, points[-1].curve + 1 if points else 0))
        self._current[name] = node

    def _step(self, name: str, tick: int, ticks: int) -> None:
        node, rounds = self._new(), ticks / self._timeline.round_ticks
        age = self._age.get(name, 0.0)
        self._links.append((self._current[name], node, rounds, age + rounds / 2, name))
        self._age[name] = age + rounds
        self.points[name].append(Point(tick, node, self.points[name][-1].curve))
        self._current[name] = node

    def _join(self, policy: str, tick: int) -> None:
        """Gives the snapshots of a policy that join at a tick their node."""
        for snapshot in self._joining.get((policy, tick), ()):
            self._fixed.setdefault(snapshot, self._current[policy])


class _Rows:
    """Games between teams of nodes; the strength of a team is the mean of its nodes'."""

    def __init__(self) -> None:
        self._scores: dict[tuple[bool, davidson.Nodes, davidson.Nodes], list[tuple[Score, int, int, int]]] = {}
        self._meetings: dict[tuple[Team, Team, bool, int], int] = {}
        self._pairs: dict[tuple[Team, Team, int], int] = {}
        self._expected: list[tuple[int, int, float, float]] = []  # two nodes, the games that each wins of the other

    def expect(self, first: int, second: int, *, games: float, share: float) -> None:
        """Takes parts of games without draws and sides, of which the first node wins a share."""
        self._expected.append((first, second, games * share, games * (1 - share)))

    def add(
        self, first: davidson.Nodes, second: davidson.Nodes, score: Score, met: tuple[Team, Team, bool, int]
    ) -> None:
        """Takes games of a meeting: two teams, whether the first one has the first side, and the round."""
        one, other, sided, start = met
        meeting = self._meetings.setdefault(met, len(self._meetings))
        pair = self._pairs.setdefault((min(one, other), max(one, other), start), len(self._pairs))
        sign = (one < other) - (other < one)
        if not sided and second < first:
            first, second, score, sign = second, first, score.reversed, -sign
        self._scores.setdefault((not sided, first, second), []).append((score, meeting, pair, sign))

    def games(self, nodes: int) -> tuple[Games, Meetings]:
        """The games as arrays."""
        keys = sorted(self._scores)
        teams = [(first, second) for _, first, second in keys]
        teams += [((first,), (second,)) for first, second, _, _ in self._expected]
        others = np.zeros((len(teams), 2))
        others[len(keys) :] = [own[2:] for own in self._expected] or np.zeros((0, 2))
        parts = [(row, *rest, *score) for row, key in enumerate(keys) for score, *rest in self._scores[key]]
        row, meeting, pair, sign, *scores = np.array(parts, np.intp).reshape(-1, 7).T
        counts = np.stack(scores, axis=-1).astype(np.float64)
        meetings = Meetings(counts, row, meeting, pair, sign.astype(np.float64), others)
        sided = sum(not key[0] for key in keys)
        games = davidson.of_nodes(teams, np.zeros((len(teams), 3)), sided=sided, nodes=nodes)
        return meetings.weighted(games, Likeness()), meetings

    def between(self, levels: Sequence[int], count: int) -> Games:
        """The games between sets of nodes, by the numbers of these sets."""
        results, names = Results(), [f"{level:09d}" for level in range(count)]
        for (_, first, second), scores in self._scores.items():
            mine, theirs = (tuple(names[levels[node]] for node in team) for team in (first, second))
            for score, *_ in scores:
                results.add_score(mine, theirs, score)
        for one, other, _, _ in self._expected:  # either may win
            results.add_score((names[levels[one]],), (names[levels[other]],), Score(wins=1, losses=1))
        return davidson.games_of(results, names)
