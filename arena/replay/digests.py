"""Digests of episodes: two bytes per lane and tick, to check that a playback is what was recorded.

A digest covers its episode up to its tick: actions, observations, rewards and ends. So a difference shows at the tick
at which it arises, and on all later ticks of the episode.

The actions and results of a lane on a tick are a row of 32-bit words w_i, hashed to h = sum_i m_i w_i mod 2^64 with
odd m_i drawn once (multilinear hashing, Carter and Wegman 1979). An episode's digest is d <- A d + h, from 0; its 16
highest bits are kept. A difference is missed with probability 2^-16 at each tick. This finds errors, not forgeries.

A ragged leaf stands in the row with two numbers of 64 bits: its length, and the same sum over the words of its items,
each item padded to whole words, with multipliers by their place in the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.game.api import Frame, Interface, Step
from arena.game.ragged import Ragged
from arena.game.spaces import flatten, leaves_of
from arena.replay.format import Column

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Uint64s = NDArray[np.uint64]
Layout = tuple[np.dtype[Any], tuple[int, ...]]
"""The dtype of an array, and its shape without the lanes."""
_RAGGED: Layout = (np.dtype(np.uint64), (2,))

_SEED = 0x5245504C  # of the m_i; must never change, or all recorded digests become wrong
_CHAIN = np.uint64(0x9E3779B97F4A7C15)  # A: odd, from the golden ratio
_DROPPED = np.uint64(48)  # bits
_ALIGNED = 8  # bytes
_WORD = 4  # bytes


class Digests:
    """The digests of some lanes of a game; those of a lane do not depend on the other lanes.

    `actions` has per entity the columns of its actions.
    """

    def __init__(self, interface: Interface, lanes: int, *, actions: Sequence[Sequence[Column]]) -> None:
        per_entity = (len(interface.entities),)
        observed = [list(_observed(interface, entity)) for entity in range(len(interface.entities))]
        flags: Layout = (np.dtype(np.bool_), per_entity)
        rest = [
            *(_RAGGED if one.ragged else (one.dtype, one.shape) for columns in actions for one in columns),
            (np.dtype(np.float64), per_entity),
            flags,
            flags,
            flags,
        ]
        layouts = [layout for part in [*observed, rest] for layout in part]
        sizes = [dtype.itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in layouts]
        ends: list[int] = np.cumsum([-(-size // _ALIGNED) * _ALIGNED for size in sizes]).tolist()
        edges = [0, *ends]
        self._spaces = interface.observation_spaces
        self._leaves = [leaves_of(space, ragged=True) for space in interface.observation_spaces]
        row = np.dtype(
            {
                "names": [*map(str, range(len(layouts)))],
                "formats": layouts,
                "offsets": edges[:-1],
                "itemsize": edges[-1],
            }
        )
        rows = np.zeros(lanes, row)
        self._rows = rows.view(np.uint8).reshape(lanes, edges[-1])
        views = iter([rows[str(number)] for number in range(len(layouts))])
        self._observed = [[next(views) for _ in part] for part in observed]  # per entity its leaves, and its mask
        self._rest = list(views)
        first = np.cumsum([0, *map(len, observed)]).tolist()
        self._parts = [slice(edges[start], edges[end]) for start, end in pairwise(first)]
        self._n_shown = edges[first[-1]] // _WORD
        self._uint32s = self._rows.view(np.uint32)
        self._multipliers = _multipliers(self._uint32s.shape[1])
        self._state = np.zeros(lanes, np.uint64)

    def begin(self, frame: Frame, lanes: Flags) -> NDArray[np.uint16]:
        """Episodes begin in some lanes [L]; returns the digests [L], of first observations in these lanes."""
        self._see(frame, frame.active)
        shown = self._uint32s[lanes, : self._n_shown]
        self._state[lanes] = shown @ self._multipliers[: self._n_shown]
        return self._kept()

    def add(self, actions: Iterable[Any], step: Step) -> NDArray[np.uint16]:
        """Adds a tick with the game's result; returns the digests [L].

        `actions` are arrays [L, ...], with zeros for entities that were not to act.
        """
        self._see(step.frame, step.frame.active | step.terminated | step.truncated)
        parts = [*actions, step.rewards, step.terminated, step.truncated, step.frame.active]
        for view, array in zip(self._rest, parts, strict=True):
            view[...] = _summed(array) if isinstance(array, Ragged) else array
        self._state = self._state * _CHAIN + self._uint32s @ self._multipliers
        return self._kept()

    def _see(self, frame: Frame, shown: Flags) -> None:
        """Adds the observations of the rows in `shown` [L, E]; other rows are ignored."""
        for entity, views in enumerate(self._observed):
            arrays = flatten(self._spaces[entity], frame.observations[entity])
            for view, array, leaf in zip(views, arrays, self._leaves[entity], strict=False):
                view[...] = _summed(array.astype(leaf.dtype)) if leaf.ragged else array
            if len(views) > len(arrays):
                mask = frame.masks[entity]
                views[-1][...] = 0 if mask is None else mask
        if not shown.all():
            for entity, part in enumerate(self._parts):
                self._rows[~shown[:, entity], part] = 0

    def _kept(self) -> NDArray[np.uint16]:
        return (self._state >> _DROPPED).astype(np.uint16)


def _observed(interface: Interface, entity: int) -> Iterator[Layout]:
    """The arrays of an entity's observations."""
    for leaf in leaves_of(interface.observation_spaces[entity], ragged=True):
        yield _RAGGED if leaf.ragged else (leaf.dtype, leaf.shape)
    if interface.mask_sizes[entity]:
        yield np.dtype(np.int8), (interface.mask_sizes[entity],)


def _summed(rows: Ragged) -> Uint64s:
    """[B, 2] the length of each row, and the sum over the words of its items."""
    found = np.zeros((len(rows), 2), np.uint64)
    found[:, 0] = rows.lengths
    size = rows.dtype.itemsize * int(np.prod(rows.shape, dtype=np.int64))
    if not rows.total or not size:
        return found
    padded = np.zeros((rows.total, -(-size // _WORD) * _WORD), np.uint8)
    padded[:, :size] = np.ascontiguousarray(rows.values).reshape(rows.total, -1).view(np.uint8)
    items = padded.view(np.uint32)
    places = rows.places()
    multipliers = _multipliers((int(places.max()) + 1) * items.shape[1]).reshape(-1, items.shape[1])
    sums = np.cumsum((items * multipliers[places]).sum(axis=1, dtype=np.uint64), dtype=np.uint64)  # modulo 2^64
    ends = np.concatenate([np.zeros(1, np.uint64), sums])
    found[:, 1] = ends[rows.offsets + rows.lengths] - ends[rows.offsets]
    return found


def _multipliers(count: int) -> Uint64s:
    """The first of the m_i; the same in every process and with every version of NumPy."""
    return _drawn(1 << max(count - 1, 0).bit_length())[:count]


@cache
def _drawn(count: int) -> Uint64s:
    drawn: Uint64s = np.random.SeedSequence(_SEED).generate_state(count, np.uint64) | np.uint64(1)
    return drawn
