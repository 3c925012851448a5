"""Many numbers over ticks as a curve that fits a page: means of equal parts, and a band over the matches."""

from __future__ import annotations

import msgspec
import numpy as np

from arena.report.episodes import Floats, Ints

MOST_PARTS = 80
_IN_A_PART = 12  # numbers, on average: fewer make a curve that is mostly noise
BAND = (10.0, 90.0)  # percentiles


class Curve(msgspec.Struct, frozen=True):
    """A curve of N points; those without a number are left out.

    Args:
        ticks: [N] the end of each part.
        mean: [N] of the numbers in it.
        low: [N] the 10th percentile of the matches' means; `high` the 90th; both equal the mean where one match alone
            has numbers.
        count: [N] how many numbers.
    """

    ticks: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    count: list[int]


def edges_for(last: int, *, numbers: int) -> Floats:
    """Where the parts of a run end: [parts + 1] ticks from 0 to the last one, so many that each holds some numbers."""
    parts = min(MOST_PARTS, max(1, numbers // _IN_A_PART))
    return np.linspace(0.0, max(last, 1), parts + 1)


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
    low, high = np.percentile(sums / counts, BAND) if len(sums) > 1 else [sums[0] / counts[0]] * 2
    return float(sums.sum() / counts.sum()), float(low), float(high), int(counts.sum())
