"""Batches: the spaces of what a vector environment gives and takes, and actions with ragged leaves as arrays."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from arena.errors import nearest
from arena.game.api import Flags
from arena.game.arrays import lost_value
from arena.game.ragged import Ragged
from arena.game.spaces import Columns, Leaf, check_choices, is_ragged, stack
from arena.game.units import AvailableActions, Items, UnitActions, UnitSpace


def batched_space(
    space: Space[Any], rows: int, shown: Callable[[], AvailableActions | None] | None = None
) -> Space[Any]:
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
        return stack(self.single, [self.single.sample() for _ in range(self.rows)])  # type: ignore[no-any-return]

    def contains(self, x: Any) -> bool:
        return super().contains(x) and _is_joined(self, x) and self.single.breach(x) is None


class UnitActionRows(_Rows):
    """Batches of `UnitActions`."""

    single: UnitActions

    def __init__(self, single: UnitActions, rows: int, shown: Callable[[], AvailableActions | None] | None) -> None:
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


def action_leaves(
    space: Space[Any], actions: Sequence[Any], shown: AvailableActions | None, *, first_row: int
) -> list[Any]:
    """The leaves of single actions, one per row, checked; raises as `batch_leaves`."""
    for action in actions:
        _check_form(space, action, "action")
    try:
        batch = stack(space, actions)
    except (KeyError, IndexError) as error:
        raise ValueError(f"{error} is missing in an action of {_brief(space)}") from error
    active = np.ones(len(actions), np.bool_)
    return batch_leaves(space, Columns(space), batch, shown, active=active, first_row=first_row)


def batch_leaves(
    space: Space[Any],
    columns: Columns,
    batch: Any,
    shown: AvailableActions | None,
    *,
    active: Flags,
    first_row: int = 0,
) -> list[Any]:
    """The leaves of a batch of actions, checked; ragged leaves may be given as sequences of arrays, one per row.

    `active` [B]: ragged items of other rows are dropped, and their values are not checked.

    Raises:
        TypeError: values have another type, such as floats for choices, or there is no action.
        ValueError: another shape or number of rows, a value out of range, or for units not one choice per actor.
    """
    if batch is None:
        raise TypeError(f"None is no batch of {_brief(space)}; an action is needed for each row")
    if not (isinstance(space, UnitActions) and type(batch) is dict and batch.keys() == space.spaces.keys()):
        _check_form(space, batch, "batch")  # most batches of units need none
    try:
        parts = columns.flatten(batch)
    except (KeyError, IndexError) as error:
        raise ValueError(f"{error} is missing in a batch of {_brief(space)}") from error
    except TypeError as error:
        raise TypeError(f"{type(batch).__name__} is no batch of {_brief(space)}: {error}") from error
    found: list[Any] = []
    for leaf, part in zip(columns.leaves, parts, strict=True):
        if leaf.ragged:
            found.append(_ragged(space, leaf, part, active))
            continue
        found.append(array := np.asarray(part))
        if array.shape != (shape := (len(active), *leaf.shape)):
            raise ValueError(f"a batch of {space} has the shape {shape} at {leaf.place}, got {array.shape}")
        _check_dtype(space, leaf, array)
    if isinstance(space, UnitActions):
        space.check_choices(dict(zip(space.actions, found, strict=True)), shown, first_row=first_row)
    else:
        check_choices(space, columns.unflatten(found), active)
    return found


def _ragged(space: Space[Any], leaf: Leaf, batch: Any, active: Flags) -> Ragged:
    if not isinstance(batch, Ragged):
        if isinstance(batch, (str, bytes)) or not isinstance(batch, (Sequence, np.ndarray)):
            raise TypeError(f"{leaf.place} of {_brief(space)}: a Ragged or one array per row, got {batch!r:.80}")
        arrays = [np.asarray(row) for row in batch]
        for array in arrays:
            _check_dtype(space, leaf, array)
        batch = Ragged.of(arrays, leaf.dtype, leaf.shape)
    rows: Ragged = batch
    if len(rows.lengths) != len(active) or rows.values.shape[1:] != leaf.shape:
        raise ValueError(
            f"{leaf.place} of {_brief(space)}: {len(active)} rows with items {leaf.shape} are needed, got {len(rows)} "
            f"rows with items {rows.shape}"
        )
    if rows.values.dtype is leaf.dtype:
        return rows.kept(active)
    _check_dtype(space, leaf, rows.values)
    return rows.kept(active).astype(leaf.dtype)


def _check_form(space: Space[Any], value: Any, what: str) -> None:
    """Checks that mappings and sequences are given where the space has them, without unknown keys."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            raise TypeError(f"{value!r:.80} is no {what} of {_brief(space)}; a mapping is needed")
        if not value.keys() <= space.spaces.keys():
            unknown = next(key for key in value if key not in space.spaces)
            raise ValueError(f"{unknown!r} is not in {_brief(space)}; {nearest(str(unknown), map(str, space.spaces))}")
        for key, part in value.items():
            _check_form(space.spaces[key], part, what)
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, (Sequence, np.ndarray)) or len(value) != len(space.spaces):
            raise TypeError(f"{value!r:.80} is no {what} of {space}; a tuple of {len(space.spaces)} is needed")
        for part, inner in zip(space.spaces, value, strict=True):
            _check_form(part, inner, what)
    elif isinstance(space, spaces.Sequence) and what == "action" and not isinstance(value, (Sequence, np.ndarray)):
        raise TypeError(f"{value!r:.80} is no {what} of {space}; an array or a list is needed")


def _brief(space: Space[Any]) -> str:
    """A space in a message: of units the names of their actions."""
    return f"the actions {', '.join(map(repr, space.actions))}" if isinstance(space, UnitActions) else str(space)


def _check_dtype(space: Space[Any], leaf: Leaf, array: NDArray[Any]) -> None:
    lost = lost_value(array, leaf.dtype)
    if lost is None:
        return
    if isinstance(space, UnitActions):
        raise TypeError(f"action {leaf.path[0]!r}: {array.dtype} values {array.ravel()[:3]}; choices are whole numbers")
    raise TypeError(f"the value {lost} for {space}, which holds {leaf.dtype} at {leaf.place}")
