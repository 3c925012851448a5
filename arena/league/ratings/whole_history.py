"""Strengths of players that learn: whole-history ratings with draws and sides (Coulom 2008).

The strength of a policy that learns is a function of the ticks that it has played. It is estimated at nodes, one at the
end of each period (see `arena.league.timeline`), and moves between two of them like a Wiener process:

    s(t2) - s(t1)  ~  Normal(0, w(t)^2 (t2 - t1)),     log w(t)^2  =  u + u_p + (v + v_p) (t - mean)

The model, and how w and the similarity of games of a pair in a round are estimated: docs/statistics.md. In addition:

The gamma density keeps w from 0, where the maximum lies by chance if there are few games, and from infinity (Chung et
al. 2013). Without the common u and v, the games of one policy say too little about its movement at the end: if all have
stopped, intervals are wider by a fifth. Without the similarity, surprising results would be taken for movement.

Intervals at the maximum alone are too narrow if there are few rounds: in simulated leagues of 12 rounds they hold the
truth in 90 % rather than in 95 %. So the covariance of the strengths has a second part, for the uncertainty of these
parameters (Kass and Steffey 1989). The first part, which does not grow in proportion to w, is computed with a larger w:
the logarithm of w^2 is raised by the share `_SHARE` of its own variance.
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
_OF_POLICY = 1.0  # by how much a policy differs in the logarithm, likewise
_BEND_OF_POLICY = 1.5  # by how much it differs in the change over the run, likewise
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
    """A node of a policy's curve."""

    tick: int
    node: int
    curve: int  # grows whenever the policy starts over


class Walk(NamedTuple):
    """The ties between nodes: the steps of all curves."""

    first: Places  # int [L], nodes at which steps begin
    second: Places  # int [L], nodes at which they end
    rounds: Array  # float64 [L], the length of each step, in rounds
    factors: Array  # float64 [L, K], the factors of `Drift.log_variance`: of u, v, then of each policy's own
    anchors: Places  # int [C], a node of each set of nodes that are tied with each other
    levels: Games  # games between these sets, which decide whether the likelihood has a maximum


class Similarity(NamedTuple):
    """How much alike the games of a pair in a round are, from 0 to 1."""

    wins: float = 0.0  # in who wins
    draws: float = 0.0  # in which of them are drawn


class Meetings(NamedTuple):
    """The games of each round by pair of teams, and by meeting: those on the same sides."""

    counts: Array  # float64 [C, 3], games won, drawn and lost by the first team
    row: Places  # int [C], the row of `Games` in which they count
    meeting: Places  # int [C], the number of their meeting
    pair: Places  # int [C], the number of the pair of teams in that round, on whatever sides
    sign: Array  # float64 [C], 1: the first team of the row is the first one of the pair, -1: the other, 0: the same
    others: Array
    """float64 [M, 2], games won and lost in each row that were believed rather than played: they say nothing about
    draws."""

    def weighted(self, games: Games, similarity: Similarity) -> Games:
        """The games with the counts of all rows, weighted by the similarity of those of a pair in a round.

        Each side of a pair has its own weight, as if the other one had as many games: quick ones are many.
        """
        _, first = np.unique(self.meeting, return_index=True)
        sides = np.bincount(self.pair[first])[self.pair]
        played = np.bincount(self.meeting, self.counts.sum(axis=1))[self.meeting] * sides
        whole, less = (1 / (1 + one * (played - 1))[:, None] for one in (similarity.wins, max(similarity)))
        counts, decided = np.zeros((len(self.others), 3)), self.others.copy()
        np.add.at(counts, self.row, less * self.counts)
        np.add.at(decided, self.row, (whole - less) * self.counts[:, ::2])
        return games._replace(counts=counts, decided=decided)

    def similarity(self, chances: Array, fitted: float) -> Similarity:
        """How much alike the games of a pair in a round are.

        Both sides count together, because what a side is worth to a policy says little about its strength; so games of
        a team against itself do not count. The chances are those of the results in each row, float64 [M, 3]; so many
        parameters have been `fitted` to the results, in effect.
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

        return Similarity(alike((wins, of_wins, decided), fitted), alike((draws, of_draws, games), 1.0))


class History(NamedTuple):
    """A timeline as arrays."""

    games: Games  # over the nodes
    meetings: Meetings  # the same games
    walk: Walk  # how the nodes are tied
    nodes: Mapping[str, int]  # the node of every player as it is at the end, and of every snapshot
    curves: Mapping[str, Sequence[Point]]  # the nodes of each policy that learns, in the order of their ticks

    def node(self, player: str, at: int | None = None) -> int:
        """The node of a player at the end, or at a tick; if it starts over at that tick, the node before."""
        points = self.curves.get(player)
        if at is None or points is None:
            return self.nodes[player]
        last = max((point.tick for point in points if point.tick <= at), default=points[0].tick)
        return next(point.node for point in points if point.tick == last)

    def components(self) -> Places:
        """Per node, the number of the set in which it can be compared: sets are connected by games and by ties."""
        return components(self.games, [*zip(self.walk.first.tolist(), self.walk.second.tolist(), strict=True)])


class Drift(NamedTuple):
    """The movements of policies in the ticks of a round: parameters of their variance."""

    log_variance: Array  # float64 [K], the parameters in which the logarithm of a step's variance is linear
    spread: Array  # float64 [K, K], their covariance

    def variance(self, factors: Array) -> Array:
        """The variance [L] of steps in a round's ticks, by the factors [L, K] of these parameters."""
        return np.exp(np.clip(self.logs(factors), *np.log(_BOUNDS)))

    def logs(self, factors: Array) -> Array:
        """The logarithms [L] of these variances, which may be beyond the bounds."""
        unknown = ((factors @ self.spread) * factors).sum(axis=1)
        return factors @ self.log_variance + _SHARE * unknown  # type: ignore[no-any-return]


class Estimate(NamedTuple):
    """The most likely strengths of a history, with what their covariance is made of."""

    history: History
    problem: Problem  # whose minimum is the most likely strengths
    minimum: Minimum
    prior: bool  # whether the sets of tied nodes have a prior
    movement: Drift  # of the policies that learn
    similarity: Similarity  # of the games of a pair in a round, see `Meetings`
    unsure: Array
    """float64 [N, K], by how much each strength changes with K independent standard normal numbers, which stand for
    the uncertainty of the movements."""

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
    games, walk, factors = made.games, made.walk, made.walk.factors
    nodes, count = games.players, len(walk.rounds)
    prior = games.all_drawn or not davidson.has_maximum(walk.levels)
    anchored = np.zeros(nodes)
    anchored[walk.anchors] = prior * PRIOR_DEVIATION**-2
    each = np.arange(count)
    steps = sparse.csr_array(
        (np.repeat([1.0, -1.0], count), (np.tile(each, 2), np.concatenate([walk.second, walk.first]))),
        shape=(count, nodes),
    )
    looks = np.eye(count) if count <= _ALL else np.random.default_rng(0).choice([-1.0, 1.0], (count, _PROBES))
    logs: Array = np.zeros(factors.shape[1])
    logs[0] = 2 * math.log(_USUAL)
    movement = Drift(logs, np.zeros((len(logs), len(logs))))
    pace, before = np.ones_like(logs), np.zeros_like(logs)
    similarity, settled, order, start = Similarity(), not count, None, None
    if nodes > _MANY and not coarse:  # the movements of an estimate with fewer nodes, and its strengths as a beginning
        rough = estimate.__wrapped__(timeline, players, (), coarse=True)
        movement, similarity, settled = rough.movement, rough.similarity, True
        known = rough.minimum.parameters
        start = np.concatenate([np.zeros(nodes), known[rough.history.games.players :]])
        for name, node in made.nodes.items():
            start[node] = known[rough.history.nodes[name]]
        for name, points in made.curves.items():
            ticks, at = zip(*((point.tick, point.node) for point in rough.history.curves[name]), strict=True)
            start[[point.node for point in points]] = np.interp([point.tick for point in points], ticks, known[[*at]])
    turn = 0
    while True:
        scaled = sparse.diags_array((walk.rounds * movement.variance(factors)) ** -0.5) @ steps
        weighted = made.meetings.weighted(games, similarity)
        problem = Problem(weighted, sparse.csr_array(scaled.T @ scaled + sparse.diags_array(anchored)), prior=prior)
        problem.order = order
        minimum = problem.minimum(start, done=EXACT if settled else _ROUGH)
        order, start = problem.order, minimum.parameters
        low, high = np.log(_BOUNDS)
        inside = (low < movement.logs(factors)) & (movement.logs(factors) < high)  # variances that are not at a bound
        changing = factors * inside[:, None]
        if settled:
            # The derivatives [N, K] of the strengths by the movements, each scaled to its standard deviation.
            root = np.linalg.cholesky(movement.spread) if movement.spread.any() else movement.spread
            right = np.zeros((len(start), len(root)))
            right[:nodes] = scaled.T @ ((scaled @ start[:nodes])[:, None] * (changing @ root))
            return Estimate(made, problem, minimum, prior, movement, similarity, minimum.solve(right)[:nodes])
        slope, information, known_steps = _slope(scaled, minimum, looks, changing, logs)
        change = np.linalg.solve(information, slope).astype(np.float64)
        pace[change * before < 0] /= 2  # it has overshot
        change = np.clip(pace * change, -_LONGEST, _LONGEST)
        settled, before = bool((abs(change) < _SETTLED).all()) or turn >= _TURNS, change
        now = made.meetings.similarity(problem.chances(start), problem.size - count + known_steps)
        if turn < _FIRST and not all(map(is_close, now, similarity)):
            similarity, settled, pace = now, False, np.ones_like(logs)
        logs = logs + change
        movement = Drift(logs, np.linalg.inv(information).astype(np.float64) * settled)
        turn += 1


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
    visible = looks - scaled @ minimum.solve(units)[:strengths]  # M times the looks
    known, squares = (visible * looks).sum(axis=1), (visible**2).sum(axis=1)
    if looks.shape[0] != looks.shape[1]:  # random looks, each of which sees all links
        known, squares = known / looks.shape[1], squares / looks.shape[1]
    moved = (scaled @ minimum.parameters[:strengths]) ** 2
    # Of the normal density of each parameter of movements; the first one has a gamma density instead.
    policies = len(logs) // 2 - 1
    precision = np.array([0.0, _BEND**-2, *[_OF_POLICY**-2] * policies, *[_BEND_OF_POLICY**-2] * policies])
    slope = factors.T @ (moved - known) / 2 - precision * logs
    information = gram(factors, squares) / 2 + np.diag(precision)
    movement = math.exp(logs[0] / 2)
    slope[0] += 0.5 - movement / (2 * _USUAL)
    information[0, 0] += movement / (4 * _USUAL)
    return slope, information, float(known.sum())


def history(timeline: Timeline, players: Iterable[str], marks: Sequence[int], *, coarse: bool) -> History:
    """The arrays of a timeline.

    Its prior counts as results that are expected from the strengths of an earlier run: each player has equally many
    games against each other, `_BELIEVED` in all, so games of this run soon outweigh it (a likelihood to a power below 1
    as a prior: Ibrahim and Chen 2000, "Power prior distributions for regression models").

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
    begun = chains.fixed | {name: points[0].node for name, points in chains.points.items()}
    believed = sorted((begun[name], elo) for name, elo in timeline.prior.items() if name in begun)
    for (one, high), (other, low) in combinations(believed, 2):
        expected, share = _BELIEVED / (len(believed) - 1), 1 / (1 + math.exp((low - high) / ELO))
        rows.expected.append((one, other, expected * share, expected * (1 - share)))
    return History(*rows.games(chains.count), chains.walk(rows), {**chains.fixed, **chains.current}, chains.points)


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
    return labels[rows.shape[0] :].astype(np.intp)  # type: ignore[no-any-return]


class _Chains:
    """The nodes of all players, made in the order of their ticks."""

    def __init__(self, timeline: Timeline, marks: Sequence[int]) -> None:
        self._timeline = timeline
        self.count = 0
        self.points: dict[str, list[Point]] = {}
        self.current: dict[str, int] = {}  # the newest node of each policy that learns
        self.fixed: dict[str, int] = {}  # of other players
        self._before: dict[str, int] = {}  # the node before the periods that were played last
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
        """Begins new curves of policies that start over by a tick; a copy begins at its source's node before that."""
        before, ages = dict(self.current), dict(self._age)
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
            if name not in self.current:
                self._put(name, group[0].start, self._new())
        self._before = dict(self.current)
        for name in sorted(self.current):
            ticks = 0
            for period in group:
                inside = sorted(tick for tick in self._marks[name] if period.start < tick < period.end)
                for begin, end in zip((period.start, *inside), (*inside, period.end), strict=True):
                    ticks += (end - begin) * (name in period.playing)
                    if ticks and (end in self._marks[name] or period is group[-1]):
                        node, rounds, age = self._new(), ticks / self._timeline.round_ticks, self._age.get(name, 0.0)
                        self._links.append((self.current[name], node, rounds, age + rounds / 2, name))
                        self._age[name] = age + rounds
                        self.points[name].append(Point(end, node, self.points[name][-1].curve))
                        self.current[name], ticks = node, 0
                    for snapshot in self._joining.get((name, end), ()):
                        self.fixed.setdefault(snapshot, self.current[name])

    def ends(self, name: str) -> tuple[int, int]:
        """The nodes between which a player was in the periods that were played last."""
        if name in self.current:
            return self._before.get(name, self.current[name]), self.current[name]
        if name not in self.fixed:
            self.fixed[name] = self._new()
        return self.fixed[name], self.fixed[name]

    def walk(self, rows: _Rows) -> Walk:
        """How the nodes are tied."""
        first, second, steps, ages, policy = zip(*self._links, strict=True) if self._links else ((), (), (), (), ())
        rounds, age = np.array(steps, np.float64), np.array(ages, np.float64)
        # The share of the run's rounds that a policy had played since it began, above the mean of all steps.
        mean = (rounds * age).sum() / max(1.0, rounds.sum())
        whole = max(1, self._timeline.end) / self._timeline.round_ticks
        share = ((age - mean) / whole)[:, None]
        names = np.array(sorted({*policy}), np.str_)
        of_policy = np.equal.outer(np.array(policy, np.str_), names).astype(np.float64)
        level = list(range(self.count))
        for one, other in zip(first, second, strict=True):
            level[other] = level[one]  # in the order of their ticks: the first one of a link has its level
        anchors, levels = np.unique(np.array(level, np.intp), return_inverse=True)
        return Walk(
            np.array(first, np.intp),
            np.array(second, np.intp),
            rounds,
            np.hstack([np.ones_like(share), share, of_policy, of_policy * share]),
            anchors.astype(np.intp),
            rows.between(levels.tolist(), len(anchors)),
        )

    def _new(self) -> int:
        self.count += 1
        return self.count - 1

    def _put(self, name: str, tick: int, node: int) -> None:
        points = self.points.setdefault(name, [])
        points.append(Point(tick, node, points[-1].curve + 1 if points else 0))
        self.current[name] = node


class _Rows:
    """Games between teams of nodes; the strength of a team is the mean of its nodes'."""

    def __init__(self) -> None:
        self._scores: dict[tuple[bool, davidson.Nodes, davidson.Nodes], list[tuple[Score, int, int, int]]] = {}
        self._meetings: dict[tuple[Team, Team, bool, int], int] = {}
        self._pairs: dict[tuple[Team, Team, int], int] = {}
        self.expected: list[tuple[int, int, float, float]] = []
        """Parts of games without draws and sides: two nodes, and the games that each wins of the other."""

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
        teams += [((first,), (second,)) for first, second, _, _ in self.expected]
        others = np.zeros((len(teams), 2))
        others[len(keys) :] = [part[2:] for part in self.expected] or np.zeros((0, 2))
        parts = [(row, *rest, *score) for row, key in enumerate(keys) for score, *rest in self._scores[key]]
        row, meeting, pair, sign, *scores = np.array(parts, np.intp).reshape(-1, 7).T
        counts = np.stack(scores, axis=-1).astype(np.float64)
        meetings = Meetings(counts, row, meeting, pair, sign.astype(np.float64), others)
        sided = sum(not key[0] for key in keys)
        games = davidson.of_nodes(teams, np.zeros((len(teams), 3)), sided=sided, nodes=nodes)
        return meetings.weighted(games, Similarity()), meetings

    def between(self, levels: Sequence[int], count: int) -> Games:
        """The games between sets of nodes, by the numbers of these sets."""
        results, names = Results(), [f"{level:09d}" for level in range(count)]
        for (_, first, second), scores in self._scores.items():
            mine, theirs = (tuple(names[levels[node]] for node in team) for team in (first, second))
            for score, *_ in scores:
                results.add_score(mine, theirs, score)
        for one, other, _, _ in self.expected:  # either may win
            results.add_score((names[levels[one]],), (names[levels[other]],), Score(wins=1, losses=1))
        return davidson.games_of(results, names)
