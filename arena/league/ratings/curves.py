"""The strength of policies that learn over ticks, with 95 % intervals, on the scale of the final standings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec
import numpy as np

from arena.league.ratings.davidson import ELO
from arena.league.ratings.ratings import interval
from arena.league.ratings.whole_history import Point, estimate
from arena.league.timeline import Timeline

_MOST = 200  # points of a curve
_ALL = 1000  # points of all curves together: the variance of each takes a solution of the whole system


class CurvePoint(msgspec.Struct, frozen=True):
    """The strength of a policy at a tick of each match."""

    tick: int
    elo: float  # on the scale of the policy's table
    low: float  # where the 95 % interval begins
    high: float  # where it ends
    curve: int  # grows whenever the policy starts over


def curves(timeline: Timeline, tables: Sequence[Mapping[str, float]]) -> dict[str, list[CurvePoint]]:
    """The curves of all policies that learn and have played, by name, on the scale of the `tables` of Elo at the end.

    A curve has no points where nothing connects it with the players of its policy's table at the end.
    """
    if not timeline.learns:
        return {}
    found = estimate(timeline, timeline.players, (), coarse=False)
    most = min(_MOST, -(-_ALL // len(found.history.curves)))
    labels, drawn = found.history.components(), dict[str, list[CurvePoint]]()
    for table in tables:
        ends, middle = [found.history.node(name) for name in table], fmean(table.values())
        shown = [
            (name, point)
            for name in table
            if name in found.history.curves
            for point in _thinned(found.history.curves[name], most)
            if labels[point.node] == labels[ends[0]]
        ]
        if not shown:
            continue
        fit = found.fit([point.node for _, point in shown], ends)
        for (name, point), strength, variance in zip(shown, fit.strengths, np.diag(fit.covariance), strict=False):
            strip = interval(middle + ELO * strength, ELO**2 * variance)
            drawn.setdefault(name, []).append(CurvePoint(point.tick, *strip, point.curve))
    return dict(sorted(drawn.items()))


def at_tick(points: Sequence[CurvePoint], tick: int) -> CurvePoint | None:
    """The strength of a policy at a tick, before it starts over there; None before its first point."""
    times = sorted({point.tick for point in points if point.tick <= tick})
    return next((point for point in points if point.tick == times[-1]), None) if times else None


def _thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most `most` of the points, and those at which curves begin and end."""
    step = -(-len(points) // most)
    ends = {place for place, point in enumerate(points[1:]) if point.curve != points[place].curve}
    keep = {0, len(points) - 1, *ends, *(place + 1 for place in ends), *range(0, len(points), step)}
    return [points[place] for place in sorted(keep)]
