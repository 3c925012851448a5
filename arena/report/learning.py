"""How the policies have learned: returns, wins and what was logged, over ticks; evaluations; lengths of episodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from arena.league.ratings.intervals import half_of_mean, of_share
from arena.records.formats import EvaluationLine
from arena.report.episodes import Curve, EpisodeTable, UpdateRows, curve, edges_for
from arena.report.read_run import RunFiles

T = TypeVar("T")

MOST_POINTS = 160  # of a logged value: more do not fit the width of a page
_MOST_BARS = 40  # of lengths


class Learning(msgspec.Struct, frozen=True):
    """Per configured policy that has finished episodes: its mean return, and the share of its games that it won."""

    returns: dict[str, Curve]
    won: dict[str, Curve]


class Series(msgspec.Struct, frozen=True):
    """A value over ticks, of one policy or of all together; None where there was none."""

    ticks: list[float]
    values: list[float | None]


class Evaluation(EvaluationLine, frozen=True, kw_only=True):
    """How a policy did in one evaluation; `margin` is half of the 95 % interval of its mean return.

    One episode has no margin. `won` is the 95 % interval of the share of games won (Wilson); None where there was no
    game, or where the line does not say how many games there were.
    """

    margin: float | None
    won: tuple[float, float] | None


class Lengths(msgspec.Struct, frozen=True):
    """The lengths of one environment's episodes."""

    env: str
    episodes: int  # without those that were cut
    mean: float
    median: float
    longest: int
    terminated: int  # by the rules
    truncated: int  # otherwise alone
    cut: int
    edges: list[float]  # [N + 1] of the bars, in ticks: lengths from one edge up to, but not including, the next one
    counts: list[int]  # [N] episodes in each bar
    over_time: Curve | None
    """The mean length over the run's ticks; None where episodes were counted, as in a tournament: there it would only
    show which episodes of a batch end first."""


def learning_curves(files: RunFiles, *, last: int) -> Learning:
    """The curves up to the last tick; without snapshots, which do not learn; none if no policy learns."""
    table, policies = files.episodes, files.config.policies
    if all(policy.frozen for policy in policies.values()):
        return Learning({}, {})
    names, seats_of = [name for name in policies if name in table.policies], np.bincount(table.policy)
    # Of a policy, at most; several seats of an episode count once.
    counts = [min(int(seats_of[table.policies.index(name)]), table.results) for name in names]
    appearances = sum(counts) / max(1, len(counts))
    seats = appearances / max(1, table.results) * table.matches_at_once  # of a policy, at the same time
    edges = edges_for(last, numbers=int(appearances), matches=seats)
    returns, won, series = dict[str, Curve](), dict[str, Curve](), table.series

    def draw(name: str) -> None:  # by itself: the columns of one policy are in memory at a time
        mine = table.of(name)
        ticks, matches, decided = table.tick[mine.episode], series[mine.episode], mine.decided
        returns[name] = curve(ticks, mine.returns, matches=matches, edges=edges)
        if decided.any():
            won[name] = curve(ticks[decided], mine.shares[decided, 0], matches=matches[decided], edges=edges)

    for name in names:
        draw(name)
    return Learning(returns, won)


def results(files: RunFiles) -> dict[str, dict[str, Series]]:
    """The rewards of the results, and means of what games and callbacks measure; by policy, or "" of all together.

    Where there are more results than fit the page, they are those of every second, fourth, ... one.
    """
    if not files.results:
        return {}
    lines, last = thinned(files.results, MOST_POINTS), files.results[-1]

    def series(values: Iterable[float | None]) -> Series:
        return Series([float(line.ticks) for line in lines], [*values])

    names = [name for name in files.config.policies if name in last.policy_reward_mean]
    found = {
        "episode_reward_mean": {"": series(line.episode_reward_mean for line in lines)},
        "policy_reward_mean": {name: series(line.policy_reward_mean.get(name) for line in lines) for name in names},
    }
    for one in (name for name in last.custom_metrics if name.endswith("_mean")):
        found[f"custom_metrics/{one}"] = {"": series(line.custom_metrics.get(one) for line in lines)}
        if one in last.policy_custom_metrics:
            by_policy = [line.policy_custom_metrics.get(one, {}) for line in lines]
            found[f"policy_custom_metrics/{one}"] = {name: series(of.get(name) for of in by_policy) for name in names}
    return found


def lengths(table: EpisodeTable, *, last: int | None) -> list[Lengths]:
    """Per environment with finished episodes; `last` tick, None where the number of episodes decides."""
    rows = []
    for env, name in enumerate(table.envs):
        mine = (table.env == env) & ~table.cut
        found = table.length[mine]
        if not len(found):
            continue
        over_time = None
        if last is not None:
            ends = edges_for(last, numbers=len(found), matches=table.matches_at_once)
            over_time = curve(table.tick[mine], found.astype(float), matches=table.series[mine], edges=ends)
        low, high = int(found.min()), int(found.max())
        width = max(1, -(-(high - low + 1) // _MOST_BARS))
        edges = np.arange(low, high + width + 1, width, dtype=np.float64)
        rows.append(
            Lengths(
                env=name,
                episodes=len(found),
                mean=float(found.mean()),
                median=float(np.median(found)),
                longest=high,
                terminated=int(np.count_nonzero(table.terminated[mine])),
                truncated=int(np.count_nonzero(table.truncated[mine] & ~table.terminated[mine])),
                cut=int(np.count_nonzero((table.env == env) & table.cut)),
                edges=edges.tolist(),
                counts=np.histogram(found, edges)[0].tolist(),
                over_time=over_time,
            )
        )
    return rows


def logged_values(updates: UpdateRows) -> dict[str, dict[str, Series]]:
    """Logged values by name, then by policy; in the order in which they were first logged.

    They are means of neighboring updates where there are more than fit the page.
    """
    found: dict[str, dict[str, Series]] = {}
    for name, by_policy in updates.values.items():
        for policy, points in by_policy.items():
            firsts = np.arange(0, len(points), stride(len(points), MOST_POINTS))
            counts = np.diff(firsts, append=len(points))
            ends, means = points[firsts + counts - 1, 0], np.add.reduceat(points[:, 1], firsts) / counts
            found.setdefault(name, {})[policy] = Series(ends.tolist(), means.tolist())
    return found


def stride(number: int, most: int) -> int:
    """How many of so many points stand for one, if at most `most` may be shown.

    It is a power of two: while points come in, those that are shown stay.
    """
    return 1 << max(0, math.ceil(math.log2(max(1, number) / most)))


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Each `stride`-th item, and the last one."""
    step = stride(len(items), most)
    return [*items[step - 1 : -1 : step], *items[-1:]]


def evaluations(files: RunFiles) -> list[Evaluation]:
    """Every evaluation of every policy, in the order of the file."""
    return [
        Evaluation(
            **msgspec.structs.asdict(line),
            margin=None if line.return_std is None else half_of_mean(line.episodes, line.return_std),
            won=of_share(line.wins * line.games, line.games) if line.wins is not None and line.games else None,
        )
        for line in files.evaluations
    ]
