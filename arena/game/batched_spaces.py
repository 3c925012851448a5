"""Spaces of batches: what a vector environment gives and takes."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space

from arena.game.ragged import Ragged
from arena.game.spaces import is_ragged, stack
from arena.game.units import Items, Shown, UnitActions, UnitSpace


def batched_space(space: Space[Any], rows: int, shown: Callable[[], Shown | None] | None = None) -> Space[Any]:
    """The space of batches of `rows` samples: as Gymnasium's `batch_space`, with `Ragged` for ragged leaves."""
    if not is_ragged(space):
        return batch_space(space, rows)
    if isinstance(space, UnitSpace):
        return UnitRows(space, rows)
    if isinstance(space, UnitActions):
        return UnitActionRows(space, rows, shown)
    if isinstance(space, spaces.Dict):
        parts = OrderedDict((key, batched_space(part, rows)) for key, part in space.spaces.items())
        return spaces.Dict(parts)  # Gymnasium sorts the keys of a plain dict
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([batched_space(part, rows) for part in space.spaces])
    assert isinstance(space, spaces.Sequence), "the only other space with ragged leaves"
    return RaggedRows(space, rows)


class RaggedRows(Space[Any]):
    """Batches of a `Sequence(part, stack=True)`: a `Ragged`, or a sequence with one array per row."""

    def __init__(self, single: spaces.Sequence, rows: int) -> None:
        super().__init__()
        self.single, self.rows = copy.deepcopy(single), rows  # drawing from it must not seed the caller's
        self._items = Items(single.feature_space)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> Ragged:
        part = self.single.feature_space
        part.seed(int(self.np_random.integers(2**31)))
        lengths = self.np_random.geometric(0.25, self.rows)
        items = [part.sample() for _ in range(int(lengths.sum()))]
        return Ragged(np.array(items, part.dtype).reshape(-1, *(part.shape or ())), lengths)

    def contains(self, x: Any) -> bool:
        if isinstance(x, Ragged):
            return len(x) == self.rows and self._items.contains(x.values)
        if not isinstance(x, (list, tuple, np.ndarray)) or len(x) != self.rows:
            return False
        return all(self._items.contains(row) for row in x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedRows) and (self.single, self.rows) == (other.single, other.rows)

    def __repr__(self) -> str:
        return f"RaggedRows({self.single}, {self.rows})"


class _Rows(spaces.Dict):
    """Batches of a Dict space."""

    def __init__(self, single: spaces.Dict, rows: int) -> None:
        self.single, self.rows = copy.deepcopy(single), rows  # drawing from it must not seed the caller's
        super().__init__(OrderedDict((key, batched_space(part, rows)) for key, part in single.spaces.items()))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.single, self.rows) == (other.single, other.rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.single}, {self.rows})"


def _is_joined(space: Space[Any], batch: Any) -> bool:
    """Whether all ragged leaves are `Ragged`, none a sequence with one array per row."""
    if isinstance(space, spaces.Dict):
        return all(_is_joined(part, batch[key]) for key, part in space.spaces.items())
    return isinstance(batch, Ragged) or not isinstance(space, RaggedRows)


class UnitRows(_Rows):
    """Batches of a `UnitSpace`."""

    single: UnitSpace

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        self.single.seed(int(self.np_random.integers(2**31)))
        drawn: dict[str, Any] = stack(self.single, [self.single.sample() for _ in range(self.rows)])
        return drawn

    def contains(self, x: Any) -> bool:
        return super().contains(x) and _is_joined(self, x) and self.single.breach(x) is None


class UnitActionRows(_Rows):
    """Batches of `UnitActions`."""

    single: UnitActions

    def __init__(self, single: UnitActions, rows: int, shown: Callable[[], Shown | None] | None) -> None:
        super().__init__(single, rows)
        self._shown = shown

    def sample(self, mask: Any = None, probability: Any = None) -> dict[str, Any]:
        """One choice per actor, drawn evenly among what is allowed."""
        if probability is not None:
            raise ValueError("probabilities cannot be given here: pass mask=observations['actions']")
        if mask is None and self._shown is not None:
            mask = self._shown()
        if mask is None:
            return {name: Ragged.empty(self.rows, np.int64) for name in self.single.actions}
        return dict(self.single.draw(mask, self.np_random))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shown": None}  # of a copy nothing is shown
