"""A sum tree: numbers that are drawn in proportion to their size, and that may change at any time.

    leaves   x_0 ... x_{n-1}, at the bottom
    nodes    the sum, and the least that is not 0, of the 64 numbers below each; up to a level of a few thousand
    top      that level, which is searched from end to end

Wide nodes make a low tree: NumPy handles all requested nodes of a level in one operation, and a hundred thousand
numbers need one such level and the top. A node is always summed anew from the numbers below it, never corrected by
differences: nothing drifts, and the tree depends on its leaves alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WIDTH = 64
_TOP = 4096  # numbers whose running sum takes no longer than one more level would

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class SumTree:
    """`n` numbers, all 0 in the beginning.

    Args:
        capacity: n.
    """

    def __init__(self, capacity: int) -> None:
        sizes = [capacity]
        while sizes[-1] > _TOP:
            sizes[-1] = -(-sizes[-1] // _WIDTH) * _WIDTH  # the next multiple of the width
            sizes.append(sizes[-1] // _WIDTH)
        self.capacity = capacity
        self._sums = [np.zeros(size) for size in sizes]  # from the leaves up
        self._least = [np.full(size, np.inf) for size in sizes]
        self._changed: list[Indices] = []  # leaves that the nodes above do not include yet

    @property
    def leaves(self) -> Floats:
        """The numbers [n], not to be written to."""
        return self._sums[0][: self.capacity]

    @property
    def total(self) -> float:
        """The sum of all."""
        self._rise()
        return float(self._sums[-1].cumsum()[-1])

    @property
    def least(self) -> float:
        """The least that is not 0; infinity where all are."""
        self._rise()
        return float(self._least[-1].min())

    def set(self, indices: Indices, values: Floats | float) -> None:
        """Changes numbers; where an index stands several times, the last value holds. No value is below 0."""
        if len(indices) == 0:
            return
        self._sums[0][indices] = values
        written = self._sums[0][indices]
        self._least[0][indices] = np.where(written > 0.0, written, np.inf)
        self._changed.append(indices)

    def find(self, shares: Floats) -> Indices:
        """The numbers on which shares [m] of the total, from 0 to 1, fall if all are laid end to end.

        No share falls on a 0.

        Raises:
            ValueError: all numbers are 0.
        """
        self._rise()
        ends = self._sums[-1].cumsum()
        if not ends[-1] > 0.0:
            raise ValueError("nothing can be drawn from a sum tree whose numbers are all 0")
        rest = np.minimum(shares * ends[-1], np.nextafter(ends[-1], 0.0))
        nodes: Indices = ends.searchsorted(rest, side="right")
        rest -= np.where(nodes > 0, ends[nodes - 1], 0.0)
        for sums in self._sums[-2::-1]:
            nodes, rest = _below(sums.reshape(-1, _WIDTH)[nodes], nodes, rest)
        return nodes

    def _rise(self) -> None:
        """Updates the nodes above changed leaves."""
        if not self._changed:
            return
        nodes = np.concatenate(self._changed)
        self._changed.clear()
        for level in range(1, len(self._sums)):
            nodes = nodes // _WIDTH
            self._sums[level][nodes] = self._sums[level - 1].reshape(-1, _WIDTH)[nodes].sum(1)
            self._least[level][nodes] = self._least[level - 1].reshape(-1, _WIDTH)[nodes].min(1)


def _below(numbers: Floats, nodes: Indices, rest: Floats) -> tuple[Indices, Floats]:
    """One level down: of the numbers [m, 64] below nodes [m], those on which the rest of each share falls."""
    ends = numbers.cumsum(1)
    rest = np.minimum(rest, np.nextafter(ends[:, -1], 0.0))  # rounding may have passed it
    places = (ends <= rest[:, None]).sum(1)
    before = ends[np.arange(len(ends)), places - 1]
    return nodes * _WIDTH + places, rest - np.where(places > 0, before, 0.0)
