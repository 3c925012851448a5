"""The strength of policies that learn over ticks, with 95 % intervals, on the scale of the final standings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arena.league.ratings.davidson import ELO
from arena.league.ratings.ratings import comparable, interval
from arena.league.ratings.whole_history import Point, estimate
from arena.league.timeline import Timeline

_MOST = 200  # points of a curve


class CurvePoint(NamedTuple):
    """The strength of a policy at a tick.

    Args:
        tick: of each match.
        elo: the distance from the mean of all players at the end.
        low: where the 95 % interval begins.
        high: where it ends.
        curve: the number of the curve: it grows whenever the policy begins anew.
    """

    tick: int
    elo: float
    low: float
    high: float
    curve: int


def curves(timeline: Timeline) -> dict[str, list[CurvePoint]]:
    """The curves of all policies that learn and have played, by name.

    A curve has no points where nothing connects it with the players of its policy's table at the end.

    Args:
        timeline: the games.
    """
    if not timeline.learns:
        return {}
    players = timeline.players
    found = estimate(timeline, players=players)
    labels, nodes = found.history.components(), {name: found.history.node(name) for name in players}
    tables = {labels[nodes[name]]: names for names in comparable(timeline, players) for name in names}
    chosen: dict[int, list[tuple[str, Point]]] = {}
    for name, points in sorted(found.history.curves.items()):
        own = labels[points[-1].node]
        for point in _thinned(points):
            if own in tables and labels[point.node] == own:
                chosen.setdefault(own, []).append((name, point))
    curves: dict[str, list[CurvePoint]] = {}
    for label, named in chosen.items():
        fit = found.fit([point.node for _, point in named], [nodes[name] for name in tables[label]])
        spread = np.diag(fit.covariance)[:-1]
        for (name, point), strength, variance in zip(named, fit.strengths, spread, strict=True):
            strip = interval(ELO * strength, ELO**2 * variance)
            curves.setdefault(name, []).append(CurvePoint(point.tick, *strip, point.curve))
    return dict(sorted(curves.items()))


def at_tick(points: Sequence[CurvePoint], tick: int) -> CurvePoint | None:
    """The strength of a policy at a tick, before it begins anew there; None before its first point."""
    times = sorted({point.tick for point in points if point.tick <= tick})
    return next((point for point in points if point.tick == times[-1]), None) if times else None


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """At most so many of the points as can be seen, and those at which curves begin and end."""
    step = -(-len(points) // _MOST)
    ends = {place for place, point in enumerate(points[1:]) if point.curve != points[place].curve}
    keep = {0, len(points) - 1, *ends, *(place + 1 for place in ends), *range(0, len(points), step)}
    return [points[place] for place in sorted(keep)]
