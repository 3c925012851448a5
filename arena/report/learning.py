"""How the policies have learned: returns, wins and what their algorithms logged, over ticks; and their evaluations."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from arena.league.ratings.intervals import half_of_mean, of_share
from arena.records.metrics import UpdateRecord
from arena.report.curves import Curve, curve, edges_for
from arena.report.episodes import EpisodeTable
from arena.report.read_run import RunFiles

MOST_POINTS = 160  # of a logged value: more do not fit the width of a page


class Learning(msgspec.Struct, frozen=True):
    """Per configured policy that has finished episodes: its mean return, and the share of its games that it won."""

    returns: dict[str, Curve]
    won: dict[str, Curve]


class Logged(msgspec.Struct, frozen=True):
    """A logged value of one policy: means of neighboring updates where there are more than fit the page."""

    ticks: list[float]
    values: list[float]


class Rewards(msgspec.Struct, frozen=True):
    """The rewards of the results: of whole episodes, and of each policy; None where there was no episode."""

    ticks: list[int]
    episodes: list[float | None]
    policies: dict[str, list[float | None]]


class Evaluation(msgspec.Struct, frozen=True):
    """How a policy did in one evaluation; `margin` is half of the 95 % interval of its mean return.

    One episode has no margin. `won` is the 95 % interval of the share of games won (Wilson); None where there was no
    game, or where the line does not say how many games there were.
    """

    ticks: int
    policy: str
    episodes: int
    mean: float | None
    margin: float | None
    wins: float | None
    won: tuple[float, float] | None
    draws: float | None
    losses: float | None


def learning_curves(files: RunFiles, *, last: int) -> Learning:
    """The curves up to the last tick; without snapshots, which do not learn; none if no policy learns."""
    table, policies = files.episodes, files.config.policies
    names = [name for name in policies if name in table.policies]
    if all(policy.frozen for policy in policies.values()):
        return Learning({}, {})
    each = 1 / max(1, len(names))
    edges = edges_for(last, numbers=int(each * len(table.appearances.episode)), matches=each * table.seats_at_once)
    returns, won = {}, {}
    for name in names:
        mine = table.appearances.of(table.policies.index(name))
        ticks, matches = table.tick[mine.episode], table.series[mine.episode]
        returns[name] = curve(ticks, mine.returns, matches=matches, edges=edges)
        decided = mine.decided
        if decided.any():
            won[name] = curve(ticks[decided], mine.shares[decided, 0], matches=matches[decided], edges=edges)
    return Learning(returns, won)


def rewards(files: RunFiles) -> Rewards | None:
    """The rewards of the results; None without a result."""
    if not files.results:
        return None
    names = [name for name in files.config.policies if name in files.results[-1].policy_reward_mean]
    return Rewards(
        [line.ticks for line in files.results],
        [line.episode_reward_mean for line in files.results],
        {name: [line.policy_reward_mean.get(name) for line in files.results] for name in names},
    )


def length_curve(table: EpisodeTable, env: int, *, last: int) -> Curve:
    """The mean length of the episodes of one environment."""
    mine = (table.env == env) & ~table.cut
    edges = edges_for(last, numbers=int(mine.sum()), matches=table.matches_at_once)
    return curve(table.tick[mine], table.length[mine].astype(float), matches=table.series[mine], edges=edges)


def logged_values(updates: tuple[UpdateRecord, ...]) -> dict[str, dict[str, Logged]]:
    """Logged values by name, then by policy; in the order in which they were first logged."""
    found: defaultdict[str, defaultdict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for update in updates:
        for name, value in update.values.items():
            found[name][update.policy].append((update.ticks, value))
    return {name: {policy: _thinned(points) for policy, points in by.items()} for name, by in found.items()}


def _thinned(points: list[tuple[int, float]]) -> Logged:
    parts = np.array_split(np.array(points, np.float64), min(MOST_POINTS, len(points)))
    return Logged([float(part[-1, 0]) for part in parts], [float(part[:, 1].mean()) for part in parts])


def evaluations(files: RunFiles) -> list[Evaluation]:
    """Every evaluation of every policy, in the order of the file."""
    return [
        Evaluation(
            ticks=line.ticks,
            policy=line.policy,
            episodes=line.episodes,
            mean=line.return_,
            margin=None if line.return_std is None else half_of_mean(line.episodes, line.return_std),
            wins=line.wins,
            won=of_share(line.wins * line.games, line.games) if line.wins is not None and line.games else None,
            draws=line.draws,
            losses=line.losses,
        )
        for line in files.evaluations
    ]
