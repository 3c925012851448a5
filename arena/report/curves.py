"""Many numbers over ticks as a curve that fits a page: means of equal parts, and a band over the matches."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from arena.report.episodes import Floats, Ints

MOST_PARTS, _FEWEST_PARTS = 80, 8
_OF_A_MATCH = 8  # numbers of a match in a part, on average
_QUARTILES = 0.25, 0.75


class Curve(msgspec.Struct, frozen=True):
    """A curve of N points; those without a number are left out.

    Args:
        ticks: [N] the end of each part.
        mean: [N] of the numbers in it.
        low: [N] of the band, the lower quartile of the matches' means; if one match alone has numbers, they are equal.
        high: [N] the upper quartile.
        count: [N] how many numbers.
    """

    ticks: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    count: list[int]


def edges_for(last: int, *, numbers: int, matches: float = 1) -> Floats:
    """Where the parts of a run end: [parts + 1] ticks from 0 to the last one.

    N numbers make sqrt(N) parts of as many each: more would show mostly chance, fewer would hide what is learned. With
    several matches there are fewer parts, as the band is of the matches' means, which need some numbers each.

    Args:
        last: tick.
        numbers: of a curve.
        matches: that are played at the same time.
    """
    parts = math.isqrt(numbers)
    shared = max(_FEWEST_PARTS, numbers / (_OF_A_MATCH * max(1, matches)))
    return np.linspace(0.0, max(last, 1), 1 + min(MOST_PARTS, max(1, parts), int(shared)))


def curve(ticks: Ints, values: Floats, *, matches: Ints, edges: Floats) -> Curve:
    """The curve of numbers which came at these ticks in these matches; all [N]. Those that are not finite are left out.

    Args:
        ticks: each in (edges[0], edges[-1]].
        values: the numbers.
        matches: an index of the match of each.
        edges: of the parts.
    """
    finite = np.isfinite(values)
    if not finite.any():
        return Curve([], [], [], [], [])
    values, matches = values[finite], matches[finite]
    part = np.searchsorted(edges, ticks[finite], side="left") - 1
    many = int(matches.max()) + 1
    keys, place = np.unique(part * many + matches, return_inverse=True)
    counts, sums = np.bincount(place), np.bincount(place, weights=values)
    parts = np.unique(keys // many)
    points = [_point(sums[mine], counts[mine]) for mine in (keys // many == one for one in parts)]
    mean, low, high, count = map(list, zip(*points, strict=True))
    return Curve(edges[parts + 1].tolist(), mean, low, high, count)


def _point(sums: Floats, counts: Ints) -> tuple[float, float, float, int]:
    """Mean, band and count of one part, from the sums and counts of its matches."""
    mean = float(sums.sum() / counts.sum())
    low, high = (mean, mean) if len(counts) == 1 else map(float, np.quantile(sums / counts, _QUARTILES))
    return mean, low, high, int(counts.sum())
