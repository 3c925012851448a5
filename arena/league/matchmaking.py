"""Matchmaking: the draw of the opponents of a learner in the next round.

    past_selves   snapshots of itself, with equal weights
    fictitious    all players, by prioritized fictitious self-play (Vinyals et al. 2019, supplement)
    exploiters    main agents meet main agents and all snapshots, main exploiters the main agents, league exploiters all
                  snapshots (same source)
    uncertainty   the opponents against which a result would change the standings most
    own           what a class of the user's own draws, see `custom`

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
    ExploitersRule,
    Fictitious,
    FictitiousRule,
    MatchmakingConfig,
    OwnRule,
    PastSelves,
    PastSelvesRule,
    UncertaintyRule,
)
from arena.league.custom import draw_opponents
from arena.league.metagame.payoff import posterior
from arena.league.ratings.ranking import Standings
from arena.league.results import Results
from arena.league.rng import systematic
from arena.league.rounds import player_of
from arena.league.timeline import Timeline
from arena.league.view import LeagueView

Weights: TypeAlias = dict[str, float]


class OpponentPool(NamedTuple):
    """All players that a learner can meet.

    Args:
        results: of the games that count; of policies that learn with their ticks.
        snapshots: per policy its snapshots in the league, the oldest first.
        learns: the policies that learn.
    """

    results: Results | Timeline
    snapshots: Mapping[str, Sequence[str]]
    learns: frozenset[str]

    def past(self, members: Sequence[str]) -> list[str]:
        """The players that never change: snapshots, and policies that do not learn."""
        fixed = [name for name in members if name not in self.learns]
        return [*fixed, *(name for member in members for name in self.snapshots.get(member, ()))]

    def newest(self, policy: str) -> str | None:
        """The newest snapshot of a policy."""
        return next(reversed(self.snapshots.get(policy, ())), None)

    def newest_of(self, policies: Sequence[str]) -> str:
        """The newest snapshot of several policies; without one the first policy as it is."""
        found = [name for name in map(self.newest, policies) if name is not None]
        return max(found, key=lambda name: player_of(name).tick, default=policies[0])


def draw(
    entry: MatchmakingConfig,
    field: OpponentPool,
    rng: np.random.Generator,
    *,
    tested: Mapping[str, str] = NO_SNAPSHOTS,
    view: LeagueView | None = None,
    path: str = "",
) -> dict[str, Sequence[str]]:
    """The opponents of each learner, one per match.

    Args:
        entry: learners and rule.
        field: all players that they can meet.
        rng: what is left to chance.
        tested: per learner with a gate to pass, the snapshot that the gate compares it with: one match is against it.
        view: what a rule of the user's own sees.
        path: of the entry in the configuration, for errors of such a rule.

    Raises:
        ConfigError: a rule of the user's own raises, or returns something else than names of players.
    """
    standings = None
    found: dict[str, Sequence[str]] = {}
    for learner in entry.learners:
        newest = tested.get(learner)
        free = entry.copies - (0 if newest is None else 2 if entry.versus else 1)
        if isinstance(entry.rule, UncertaintyRule):
            if standings is None or entry.versus:
                pool = entry.rivals(learner) or entry.members
                current = [name for name in pool if name in field.learns]
                own = [learner] if entry.versus else []
                standings = Standings(field.results, [*own, *current, *field.past(pool)])
            pairs = [standings.next_pair(of=learner) for _ in range(free)]
            drawn = [second if first == learner else first for first, second in pairs]
        elif isinstance(entry.rule, OwnRule):
            assert view is not None, "given where the rule is the user's own"
            seen = _view_of_rivals(view, entry, learner) if entry.versus else view
            drawn = draw_opponents(entry, learner, seen, free, rng, path=path)
        else:
            drawn = systematic(_weights(entry, learner, field), free, rng)
        if newest is not None:
            drawn = [*drawn, field.newest_of(entry.rivals(learner)) if entry.versus else newest]
        found[learner] = drawn
    return found


def _view_of_rivals(view: LeagueView, entry: MatchmakingConfig, learner: str) -> LeagueView:
    """What a user's own rule sees of two populations: the policies of the learner's, the players of the other."""
    rivals = entry.rivals(learner)
    return replace(
        view,
        policies=entry.versus if learner in entry.versus else entry.policies,
        players=(*rivals, *(name for policy in rivals for name in view.snapshots.get(policy, ()))),
    )


def due(
    entry: MatchmakingConfig, field: OpponentPool, ages: Mapping[str, int], rng: np.random.Generator
) -> dict[str, bool]:
    """The exploiters whose snapshots join, after enough rounds or with success; true for those that begin anew.

    Args:
        entry: learners and rule.
        field: all players that they can meet.
        ages: for how many rounds each has learned.
        rng: decides whether a league exploiter begins anew.
    """
    if not isinstance(entry.rule, ExploitersRule):
        return {}
    rule, past = entry.rule.exploiters, field.past(entry.members)
    targets = {**dict.fromkeys(rule.main_exploiters, rule.main), **dict.fromkeys(rule.league_exploiters, past)}
    found = {}
    for name, others in targets.items():
        limit = rule.reset
        late = limit.after is not None and ages[name] >= limit.after
        if late or beats_all(field.results, name, others, score=limit.beats, confidence=limit.confidence):
            found[name] = name in rule.main_exploiters or bool(rng.random() < limit.share)
    return found


def _weights(entry: MatchmakingConfig, learner: str, field: OpponentPool) -> Weights:
    """Weights of a learner's opponents: how often it is to meet each of them."""
    if entry.versus:
        return _of_rivals(entry, learner, field)
    if isinstance(entry.rule, PastSelvesRule):
        own = [*field.snapshots.get(learner, ()), *field.past(entry.against)]
        return _mixed({learner: entry.rule.past_selves.self_play}, dict.fromkeys(own, 1.0))
    if isinstance(entry.rule, FictitiousRule):
        rule = entry.rule.fictitious
        current = [name for name in entry.members if name != learner and name in field.learns]
        opponents = [*current, *field.past(entry.members)]
        return _mixed(
            {learner: rule.self_play}, priorities(field.results, learner, opponents, weighting=rule.weighting)
        )
    if isinstance(entry.rule, ExploitersRule):
        return _exploiters(entry.rule.exploiters, entry.members, learner, field)
    raise TypeError(f"rule {entry.rule.kind!r}: arena.league.matchmaking says nothing about how it draws opponents")


def _of_rivals(entry: MatchmakingConfig, learner: str, field: OpponentPool) -> Weights:
    """Weights of the opponents in another population: its current policies with the share `self`, else by the rule."""
    rivals, rule = entry.rivals(learner), entry.options
    current = [name for name in rivals if name in field.learns]
    if isinstance(rule, Fictitious):
        weights = priorities(field.results, learner, [*current, *field.past(rivals)], weighting=rule.weighting)
    else:
        assert isinstance(rule, PastSelves), f"rule {entry.rule.kind!r} is refused, or draws by itself"
        weights = dict.fromkeys(field.past(rivals), 1.0)
    return _mixed({name: rule.self_play / len(current) for name in current}, weights)


def _mixed(first: Weights, second: Weights) -> Weights:
    """Joint weights: the first ones as shares, the second ones share what is left, in proportion to their weights."""
    total, rest = sum(second.values()), 1.0 - sum(first.values())
    if not total:
        return first if sum(first.values()) else dict.fromkeys(first, 1.0)
    found = {name: share for name, share in first.items() if share}
    for name, weight in second.items():
        found[name] = found.get(name, 0.0) + rest * weight / total
    return found


def _exploiters(rule: Exploiters, members: Sequence[str], learner: str, field: OpponentPool) -> Weights:
    mains = dict.fromkeys(rule.main, 1.0)
    if learner in rule.main_exploiters:
        return _of_main_exploiter(rule, learner, field)
    past = priorities(field.results, learner, field.past(members), weighting="hard")
    if learner in rule.league_exploiters:
        return past or mains
    return _mixed({name: rule.self_play / len(mains) for name in mains}, past) if past else mains


def _of_main_exploiter(rule: Exploiters, learner: str, field: OpponentPool) -> Weights:
    """Weights of a main exploiter's opponents: each main, or its snapshots if the expected score is below `weak`."""
    weights: Weights = {}
    scores, _ = _moments(field.results, learner, rule.main)
    for main, score in zip(rule.main, scores, strict=True):
        snapshots = field.snapshots.get(main, ())
        if score >= rule.weak or not snapshots:
            weights[main] = 1.0
        else:
            weights |= _mixed({}, priorities(field.results, learner, snapshots, weighting="variance"))
    return weights


def priorities(results: Results | Timeline, learner: str, opponents: Sequence[str], *, weighting: str) -> Weights:
    """The mean of f(p) over the posterior of a learner's chance to score against each opponent.

    With E[p] = m and Var[p] = v: E[(1 - p)^2] = (1 - m)^2 + v, E[p (1 - p)] = m (1 - m) - v, E[1 - p] = 1 - m.

    Args:
        results: of the games that count.
        learner: the policy that learns.
        opponents: the players that it can meet.
        weighting: hard, variance or linear.
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
