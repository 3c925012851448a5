"""Matchmaking: the draw of the opponents of a learner in the next round.

    past_selves   snapshots of itself, with equal weights
    fictitious    all players, by prioritized fictitious self-play (Vinyals et al. 2019, supplement)
    exploiters    main agents meet main agents and all snapshots, main exploiters the main agents, league exploiters all
                  snapshots (same source)
    nash          the equilibrium of all snapshots, until a learner gains no more against it, see `metagame.oracles`
    uncertainty   the opponents against which a result would change the standings most
    custom        what a class of the user draws, see `custom`

The priorities are functions f of p, the chance to score against an opponent: hard (1 - p)^2, variance p (1 - p),
linear 1 - p. p is not known but estimated: each priority is the mean of f over the posterior of p given the games, see
`payoff`. So a player that was never met has a priority as well, without a least number of games.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from arena.config.matches import (
    NO_SNAPSHOTS,
    Exploiters,
    Fictitious,
    Matchmaking,
    Nash,
    OwnRule,
    PastSelves,
    Uncertainty,
)
from arena.league.custom import draw_opponents
from arena.league.metagame.oracles import MetaGame, meta_game, progress
from arena.league.metagame.payoff import posterior
from arena.league.ratings.ranking import Standings
from arena.league.results import Results
from arena.league.rounds_file import player_of
from arena.league.timeline import Timeline
from arena.league.view import LeagueView

Weights: TypeAlias = dict[str, float]


class OpponentPool(NamedTuple):
    """All players that a learner can meet."""

    results: Results | Timeline  # of the games that count; of policies that learn with their ticks
    snapshots: Mapping[str, Sequence[str]]  # per policy its snapshots in the league, the oldest first
    learns: frozenset[str]  # the policies that learn

    def past(self, members: Sequence[str]) -> list[str]:
        """The players that never change: snapshots, and policies that do not learn."""
        fixed = [name for name in members if name not in self.learns]
        return [*fixed, *(name for member in members for name in self.snapshots.get(member, ()))]

    def newest(self, policy: str) -> str | None:
        """The newest snapshot of a policy."""
        return next(reversed(self.snapshots.get(policy, ())), None)


def draw(
    entry: Matchmaking,
    pool: OpponentPool,
    rng: np.random.Generator,
    *,
    tested: Mapping[str, str] = NO_SNAPSHOTS,
    view: LeagueView | None = None,
    path: str = "",
) -> dict[str, Sequence[str]]:
    """The opponents of each learner, one per match.

    Args:
        entry: learners and rule.
        pool: all players that they can meet.
        rng: for what is left to chance.
        tested: per learner with a gate to pass, the snapshot that the gate compares it with: one match is against it.
        view: what a rule of the user's own sees; likewise `path`, that of the entry in the configuration.

    Raises:
        ConfigError: a rule of the user's own raises, or returns something else than names of players.
    """
    standings = None
    found: dict[str, Sequence[str]] = {}
    for learner in entry.learners:
        newest, rivals = tested.get(learner), entry.rivals(learner)
        free = entry.copies - (0 if newest is None else 2 if entry.versus else 1)
        if isinstance(entry.rule, Uncertainty):
            if standings is None or entry.versus:
                members = rivals or entry.members
                current = [name for name in members if name in pool.learns]
                first = [learner] if entry.versus else []
                standings = Standings(pool.results, [*first, *current, *pool.past(members)])
            pairs = [standings.next_pair(of=learner) for _ in range(free)]
            drawn = [lower if upper == learner else upper for upper, lower in pairs]
        elif isinstance(entry.rule, OwnRule):
            assert view is not None, "there is one where the rule is the user's"
            if entry.versus:  # the policies of the learner's population, the players of the other one
                past = (name for policy in rivals for name in view.snapshots.get(policy, ()))
                policies = entry.versus if learner in entry.versus else entry.policies
                view = replace(view, policies=tuple(policies), players=(*rivals, *past))
            drawn = draw_opponents(entry, learner, view, free, rng, path=path)
        else:
            drawn = systematic(_weights(entry, learner, pool), free, rng)
        if newest is not None and entry.versus:  # the newest snapshot of all rivals; without one the first rival
            newest_ones = [name for name in map(pool.newest, rivals) if name is not None]
            newest = max(newest_ones, key=lambda name: player_of(name).tick, default=rivals[0])
        found[learner] = drawn if newest is None else [*drawn, newest]
    return found


def systematic(weights: Weights, count: int, rng: np.random.Generator) -> list[str]:
    """Draws names so that each comes as often as its share says, to within one (Kitagawa 1996, appendix).

    Of ten draws with shares 0.45 and 0.55 the first comes four or five times, 4.5 times in the mean. Independent draws
    have the same mean, and would leave it out now and then. One number is taken from `rng`. The weights are at least 0,
    not all 0.
    """
    shares = np.cumsum([*weights.values()])
    places = (rng.random() + np.arange(count)) / count * shares[-1]
    places = np.minimum(places, np.nextafter(shares[-1], 0.0))  # rounding must not lead behind the last one
    names = [*weights]
    return [names[place] for place in np.searchsorted(shares, places, side="right")]


def due(entry: Matchmaking, pool: OpponentPool, ages: Mapping[str, int], rng: np.random.Generator) -> dict[str, bool]:
    """The exploiters whose snapshots join, after enough rounds or with success; true for those that start over.

    The ages are the rounds that each has learned; `rng` decides whether a league exploiter starts over. Best responses
    of the rule `nash` join together, when none of them gains any more.
    """
    if isinstance(entry.rule, Nash):
        joining = all(_gains_no_more(entry.rule, entry, name, pool) for name in entry.learners)
        return dict.fromkeys(entry.learners, entry.rule.start == "first") if joining else {}
    if not isinstance(entry.rule, Exploiters):
        return {}
    rule, past = entry.rule, pool.past(entry.members)
    targets = {**dict.fromkeys(rule.main_exploiters, rule.main), **dict.fromkeys(rule.league_exploiters, past)}
    found = {}
    for name, others in targets.items():
        limit = rule.reset
        late = limit.after is not None and ages[name] >= limit.after
        if late or beats_all(pool.results, name, others, score=limit.beats, confidence=limit.confidence):
            found[name] = name in rule.main_exploiters or bool(rng.random() < limit.share)
    return found


def unmet(entry: Matchmaking, pool: OpponentPool) -> list[tuple[str, str]]:
    """The pairs that have to meet before an entry has a mixture; none without the rule `nash`, or if it is uniform."""
    rule = entry.rule
    if not isinstance(rule, Nash) or rule.solver == "uniform":
        return []
    newest = map(pool.newest, entry.learners) if rule.solver == "rectified" else ()
    return meta_game_of(entry, pool).to_meet(rule.solver, rule.games, [name for name in newest if name is not None])


def meta_game_of(entry: Matchmaking, pool: OpponentPool) -> MetaGame:
    """The meta-game of an entry with the rule `nash`: all its players that never change."""
    assert isinstance(pool.results, Timeline), "a league's rounds are planned from all of its games"
    if entry.versus:
        return meta_game(pool.results, pool.past(entry.policies), pool.past(entry.versus))
    players = pool.past(entry.members)
    return meta_game(pool.results, players, players)


def _mixture(rule: Nash, entry: Matchmaking, learner: str, pool: OpponentPool) -> Weights:
    """What a learner meets by the rule `nash`."""
    game = meta_game_of(entry, pool)
    weights = game.solved(rule.solver)[0 if learner in entry.versus else -1]
    newest = pool.newest(learner)
    if rule.solver != "rectified" or newest is None:
        return weights
    margins = -game.payoffs.T if learner in entry.versus else game.payoffs
    mine, theirs = (game.columns, game.rows) if learner in entry.versus else (game.rows, game.columns)
    beaten = dict(zip(theirs, margins[mine.index(newest)] >= 0, strict=True))
    return {name: weight for name, weight in weights.items() if beaten[name]} or weights


def _gains_no_more(rule: Nash, entry: Matchmaking, learner: str, pool: OpponentPool) -> bool:
    """Whether a best response joins: none of its newest rounds was better, by `gain`, than the best one before."""
    newest = pool.newest(learner)
    if newest is None:  # after the first round
        return True
    assert isinstance(pool.results, Timeline), "a league's rounds are planned from all of its games"
    found = progress(pool.results, learner, _mixture(rule, entry, learner, pool), since=player_of(newest).tick)
    newest_best, before = max(found[-rule.patience :], default=0.0), found[: -rule.patience]
    return len(found) >= rule.after or (bool(before) and newest_best <= max(before) + rule.gain)


def _weights(entry: Matchmaking, learner: str, pool: OpponentPool) -> Weights:
    """Weights of a learner's opponents: how often it is to meet each of them."""
    rule, results, weights = entry.rule, pool.results, Weights()
    if isinstance(rule, (PastSelves, Fictitious)):
        # With the share `self` itself, or the current policies of the other population; else by the rule.
        rivals = entry.rivals(learner) if entry.versus else ()
        members = rivals or entry.members
        current = [name for name in members if name != learner and name in pool.learns]
        same = current if rivals else [learner]
        if isinstance(rule, Fictitious):
            weights = priorities(results, learner, [*current, *pool.past(members)], weighting=rule.weighting)
        else:
            past_selves = pool.past(rivals) if rivals else [*pool.snapshots.get(learner, ()), *pool.past(entry.against)]
            weights = dict.fromkeys(past_selves, 1.0)
        return _mixed({name: rule.self_play / len(same) for name in same}, weights)
    if isinstance(rule, Nash):
        return _mixture(rule, entry, learner, pool)
    if not isinstance(rule, Exploiters):
        raise TypeError(f"rule {entry.rule.kind!r}: arena.league.matchmaking says nothing about how it draws opponents")
    if learner in rule.main_exploiters:  # each main, or its snapshots if the expected score is below `weak`
        scores, _ = _moments(results, learner, rule.main)
        for main, score in zip(rule.main, scores, strict=True):
            snapshots = pool.snapshots.get(main, ())
            if score >= rule.weak or not snapshots:
                weights[main] = 1.0
            else:
                weights |= _mixed({}, priorities(results, learner, snapshots, weighting="variance"))
        return weights
    mains = dict.fromkeys(rule.main, 1.0)
    past = priorities(results, learner, pool.past(entry.members), weighting="hard")
    if learner in rule.league_exploiters:
        return past or mains
    return _mixed({name: rule.self_play / len(mains) for name in mains}, past) if past else mains


def _mixed(first: Weights, second: Weights) -> Weights:
    """Joint weights: the first ones as shares, the second ones share what is left, in proportion to their weights."""
    total, rest = sum(second.values()), 1.0 - sum(first.values())
    if not total:
        return first if sum(first.values()) else dict.fromkeys(first, 1.0)
    found = {name: share for name, share in first.items() if share}
    for name, weight in second.items():
        found[name] = found.get(name, 0.0) + rest * weight / total
    return found


def priorities(results: Results | Timeline, learner: str, opponents: Sequence[str], *, weighting: str) -> Weights:
    """The mean of f(p) over the posterior of a learner's chance to score against each opponent.

    With E[p] = m and Var[p] = v: E[(1 - p)^2] = (1 - m)^2 + v, E[p (1 - p)] = m (1 - m) - v, E[1 - p] = 1 - m. The
    `weighting` is hard, variance or linear.
    """
    mean, variance = _moments(results, learner, opponents)
    weights = {"hard": (1 - mean) ** 2 + variance, "variance": mean * (1 - mean) - variance, "linear": 1 - mean}
    return dict(zip(opponents, weights[weighting].tolist(), strict=True))


def beats_all(
    results: Results | Timeline, player: str, targets: Sequence[str], *, score: float, confidence: float
) -> bool:
    """Whether a player's expected score against every target is above `score`, each with at least `confidence`.

    The posterior of a score is approximated by the Beta distribution with its mean and variance. No player beats
    itself.
    """
    mean, variance = _moments(results, player, targets)
    size = mean * (1 - mean) / variance - 1
    above = 1 - betainc(mean * size, (1 - mean) * size, score)
    return bool(len(targets) and (above >= confidence).all())


def _moments(
    results: Results | Timeline, player: str, others: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of the posterior of a player's score against each of the others, float64 [others]."""
    weights = posterior(results, player, others)  # of wins, draws and losses
    total = weights.sum(axis=-1)
    won, drawn = weights[:, 0] / total, weights[:, 1] / total
    mean = won + drawn / 2
    return mean, (won + drawn / 4 - mean**2) / (total + 1)
