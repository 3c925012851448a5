"""How long the episodes of each environment were, and what ended them."""

from __future__ import annotations

import msgspec
import numpy as np

from arena.report.curves import Curve
from arena.report.episodes import EpisodeTable
from arena.report.learning import length_curve

_MOST_BARS = 40


class Lengths(msgspec.Struct, frozen=True):
    """The lengths of one environment's episodes; cut episodes are counted apart.

    Args:
        edges: [N + 1] of the bars, in ticks: lengths from one edge up to, but not including, the next one.
        counts: [N] episodes in each bar.
        terminated: ended by the rules; `truncated`: from outside alone.
        over_time: the mean length over the run's ticks; None where episodes were counted, as in a tournament: there it
            would only show which episodes of a batch end first.
    """

    env: str
    episodes: int
    mean: float
    median: float
    longest: int
    terminated: int
    truncated: int
    cut: int
    edges: list[float]
    counts: list[int]
    over_time: Curve | None


def lengths(table: EpisodeTable, *, last: int | None) -> list[Lengths]:
    """Per environment with finished episodes; `last` tick, None where the number of episodes decides."""
    rows = (_lengths(table, env, last=last) for env in range(len(table.envs)))
    return [row for row in rows if row is not None]


def _lengths(table: EpisodeTable, env: int, *, last: int | None) -> Lengths | None:
    here = table.env == env
    mine = here & ~table.cut
    found = table.length[mine]
    if not len(found):
        return None
    low = int(found.min())
    high = int(found.max())
    width = max(1, -(-(high - low + 1) // _MOST_BARS))
    edges = np.arange(low, high + width + 1, width, dtype=np.float64)
    return Lengths(
        env=table.envs[env],
        episodes=len(found),
        mean=float(found.mean()),
        median=float(np.median(found)),
        longest=int(found.max()),
        terminated=int(np.count_nonzero(table.terminated[mine])),
        truncated=int(np.count_nonzero(table.truncated[mine] & ~table.terminated[mine])),
        cut=int(np.count_nonzero(here & table.cut)),
        edges=edges.tolist(),
        counts=np.histogram(found, edges)[0].tolist(),
        over_time=None if last is None else length_curve(table, env, last=last),
    )
