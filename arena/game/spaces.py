"""Spaces as columns: every sample of a space is a fixed list of arrays.

A *leaf* is one array of a sample: `Dict(a=Box(3), b=Discrete(5))` has the leaves `a` (float32, (3,)) and `b`
(int64, ()). Processes exchange leaves: no pickle, no allocation, and the space determines the layout of a message.

A leaf is *ragged* if its samples have any number of items: `Sequence(part, stack=True)`, with `part` an array space. In
a single sample it is an array [n, *shape], in a batched one a `Ragged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.game.api import Interface
from arena.game.arrays import lost_value
from arena.game.ragged import Ragged
from arena.game.units import UnitActions, UnitSpace, bounds

Array = NDArray[Any]
_LARGE = 1000.0  # networks learn from numbers around 1; with an id up to 5,000 PPO was worse than a random policy
_COARSE = 0.001  # a distance between neighbors in float32 that is named
_NAMED = 3


class Leaf(NamedTuple):
    """One array of a sample: its path in the sample, and its type and shape without batch axes."""

    path: tuple[str | int, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of a ragged leaf: of an item
    ragged: bool = False  # samples have any number of items
    of_actors: bool = False  # part of a `UnitSpace`, and empty in rows that do not act

    @property
    def nbytes(self) -> int:
        """Of a sample; of a ragged leaf, of an item."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def place(self) -> str:
        """The path as it is written in Python: `['units']['Mine']`."""
        return "".join(f"[{key!r}]" for key in self.path)


_ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def leaves_of(space: Space[Any], *, ragged: bool = False) -> tuple[Leaf, ...]:
    """The leaves of a space, in the space's order.

    Raises:
        ConfigError: the space, or a part of it, has no leaves (Text, Graph, OneOf, other sequences), or has ragged
            leaves although `ragged` is false.
    """
    leaves = tuple(_leaves_of(space))
    found = next((leaf for leaf in leaves if leaf.ragged), None)
    if found is not None and not ragged:
        raise ConfigError(
            f"{space} has a part with any number of items ({found.place or 'the whole space'}); only fixed shapes can "
            "be taken here"
        )
    return leaves


def leaf_spaces(space: Space[Any]) -> Iterator[Space[Any]]:
    """The spaces of the leaves of a space, in the order of `leaves_of`."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for _, part in _parts(space):
            yield from leaf_spaces(part)
    else:
        yield space


def check_unit_spaces(interface: Interface) -> None:
    """Checks that each entity has both units and their actions, or neither; raises `ConfigError`."""
    columns = zip(interface.entities, interface.observation_spaces, interface.action_spaces, strict=True)
    for entity, observed, acted in columns:
        for space in (observed, acted):
            if (place := _nested_units(space)) is not None:
                raise ConfigError(
                    f"{entity!r}: units inside of another space, at {place}; a seat has one UnitSpace and its actions"
                )
        if isinstance(observed, UnitSpace) and acted != observed.action_space:
            raise ConfigError(
                f"{entity!r} observes a UnitSpace with the actions {observed.action_space}, but its action space is "
                f"{acted}; use the `action_space` of the UnitSpace"
            )
        if isinstance(acted, UnitActions) and not isinstance(observed, UnitSpace):
            raise ConfigError(f"{entity!r} has the actions {acted}, but observes {observed}, which is no UnitSpace")


def _nested_units(space: Space[Any], place: str = "") -> str | None:
    """Where in a Dict or Tuple units or their actions are; None: nowhere."""
    if isinstance(space, (UnitSpace, UnitActions)):
        return place or None
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return None
    found = (_nested_units(part, f"{place}[{key!r}]") for key, part in _parts(space))
    return next((one for one in found if one is not None), None)


def is_ragged(space: Space[Any]) -> bool:
    """Whether any leaf is ragged."""
    return any(leaf.ragged for leaf in leaves_of(space, ragged=True))


def _leaves_of(space: Space[Any], place: str = "") -> Iterator[Leaf]:
    if isinstance(space, _ARRAY_SPACES):
        yield Leaf((), np.dtype(space.dtype), tuple(space.shape or ()))
    elif isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in _parts(space):
            of_actors = isinstance(space, UnitSpace) and key == "actions"
            for leaf in _leaves_of(part, f"{place}[{key!r}]"):
                yield leaf._replace(path=(key, *leaf.path), of_actors=of_actors or leaf.of_actors)
    elif isinstance(space, spaces.Sequence) and space.stack and isinstance(space.feature_space, _ARRAY_SPACES):
        part = space.feature_space
        yield Leaf((), np.dtype(part.dtype), tuple(part.shape or ()), ragged=True)
    else:
        kind = type(space).__name__
        remedy = next((text for known, text in _INSTEAD.items() if isinstance(space, known)), "numbers in one of these")
        raise ConfigError(
            f"the space{place and ' ' + place} is a {kind}, which has no fixed layout; seats can hold Box, Discrete, "
            "MultiDiscrete, MultiBinary, Sequence(one of these, stack=True), and Dict and Tuple of these; instead of "
            f"{kind} give {remedy}"
        )


_INSTEAD = {
    spaces.Text: "the text as numbers, as MultiDiscrete with one number per character or word",
    spaces.Graph: "a Dict of Sequence(stack=True) of its nodes, edges and edge_links, or units (docs/units.md)",
    spaces.OneOf: "a Dict of a Discrete that says which part holds, and all parts",
    spaces.Sequence: "Sequence(part, stack=True) of one array space, or a Dict of such sequences",
}


def _parts(space: spaces.Dict | spaces.Tuple[Any]) -> list[tuple[str | int, Space[Any]]]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces))


def flatten(space: Space[Any], sample: Any) -> list[Any]:
    """The arrays of a sample, in the order of `leaves_of`; any leading batch axes are kept.

    In a batched sample ragged leaves are `Ragged`.
    """
    if type(sample) is np.ndarray:  # no container: an isinstance check of the space would take longer than the rest
        return [sample]
    if isinstance(sample, np.generic):  # likewise
        return [np.asarray(sample)]
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return [array for key, part in _parts(space) for array in flatten(part, sample[key])]
    if isinstance(sample, Ragged):
        return [sample]
    if isinstance(space, spaces.Sequence):
        part = space.feature_space
        return [np.asarray(sample) if len(sample) else np.zeros((0, *(part.shape or ())), part.dtype)]
    return [np.asarray(sample)]


def missing_parts(space: Space[Any], sample: Any, place: str = "") -> list[str]:
    """The places of the parts of its space that a sample has not, as `['grid']`."""
    missing: list[str] = []
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in _parts(space):
            try:
                inner = None if isinstance(sample, np.ndarray) else sample[key]
            except (KeyError, IndexError, TypeError):
                inner = None
            at = f"{place}[{key!r}]"
            missing += [at] if inner is None else missing_parts(part, inner, at)
    return missing


def unflatten(space: Space[Any], arrays: Sequence[Any]) -> Any:
    """The sample that holds these arrays: the inverse of `flatten`, without a copy."""
    return _unflatten(space, iter(arrays))


def _unflatten(space: Space[Any], remaining: Iterator[Any]) -> Any:
    # Not a nested function: a recursive closure keeps the arrays alive until the garbage collector runs.
    if isinstance(space, spaces.Dict):
        return {key: _unflatten(inner, remaining) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_unflatten(inner, remaining) for inner in space.spaces)
    return next(remaining)


class Columns:
    """The leaves of one space: `flatten` and `unflatten` of batches, compiled once.

    Looking at a Dict space takes as long as copying a small array, and a recursive function several times as long as
    one expression with all keys in it. `flatten` raises `KeyError`, `IndexError` or `TypeError` if a part is missing.
    """

    def __init__(self, space: Space[Any]) -> None:
        self.leaves = leaves_of(space, ragged=True)
        keys: dict[str, Any] = {}  # by name, because a key may be any object

        def name(key: Any) -> str:
            keys[f"key_{len(keys)}"] = key
            return f"key_{len(keys) - 1}"

        def built(part: Space[Any], numbers: Iterator[int]) -> str:
            if isinstance(part, spaces.Dict):
                return "{" + "".join(f"{name(key)}: {built(of, numbers)}, " for key, of in part.spaces.items()) + "}"
            if isinstance(part, spaces.Tuple):
                return "(" + "".join(f"{built(of, numbers)}, " for of in part.spaces) + ")"
            return f"leaves[{next(numbers)}]"

        taken = ("batch" + "".join(f"[{name(key)}]" for key in leaf.path) for leaf in self.leaves)
        self.flatten: Callable[[Any], list[Any]] = eval(f"lambda batch: [{', '.join(taken)}]", keys)
        whole = built(space, iter(range(len(self.leaves))))
        self.unflatten: Callable[[Sequence[Any]], Any] = eval(f"lambda leaves: {whole}", keys)


def copy_rows(space: Space[Any], source: Any, target: Any, rows: Any) -> None:
    """Copies rows of one batched sample into the same rows of another.

    Raises:
        TypeError: a value does not survive the conversion to the space's dtype (floats for integers, 300 for uint8).
        ValueError: an array does not have the space's shape; NumPy would broadcast it silently.
    """
    if source is None:
        raise TypeError(f"None is no batch of {space}; a sample is needed for each row")
    for number, (array, into) in enumerate(zip(flatten(space, source), flatten(space, target), strict=True)):
        _check_dtype(space, number, array, into)
        if array.shape != into.shape:
            at = leaves_of(space, ragged=True)[number].place
            raise ValueError(f"a batch of {space}{at} has the shape {into.shape}, got {array.shape}")
        into[rows] = array[rows]


def write_sample(space: Space[Any], sample: Any, target: Any, rows: Any) -> None:
    """Writes one sample into one or several rows of a batch; raises as `copy_rows`."""
    for number, (array, into) in enumerate(zip(flatten(space, sample), flatten(space, target), strict=True)):
        _check_dtype(space, number, array, into)
        if array.shape != into.shape[1:]:
            at = leaves_of(space, ragged=True)[number].place
            raise ValueError(f"a sample of {space}{at} has the shape {into.shape[1:]}, got {array.shape}")
        into[rows] = array


def _check_dtype(space: Space[Any], number: int, array: Array, into: Array) -> None:
    if array.dtype != into.dtype and (lost := lost_value(array, into.dtype)) is not None:
        at = leaves_of(space, ragged=True)[number].place
        raise TypeError(f"the value {lost} for {space}{at}, which holds {into.dtype}")


def check_choices(space: Space[Any], sample: Any, rows: NDArray[np.bool_] | None = None) -> None:
    """Checks the values of Discrete, MultiDiscrete and MultiBinary spaces in a sample or a batch.

    Boxes are not checked: whether values out of bounds are clipped or refused is up to the game.

    Raises:
        TypeError: the sample is None.
        ValueError: a value is out of its range.
    """
    if sample is None:
        raise TypeError(f"None is no action of {space}; an action is needed on every tick")
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in _parts(space):
            check_choices(part, sample[key], rows)
        return
    part = space.feature_space if isinstance(space, spaces.Sequence) else space
    if isinstance(part, spaces.Box):
        return
    low, high = bounds(part)
    values = sample.values if isinstance(sample, Ragged) else np.asarray(sample)
    wrong = (values < low) | (values > high)
    if part is space:
        if np.count_nonzero(wrong) and (rows is None or wrong[rows].any()):
            raise ValueError(f"{values} is no action of {space}: choices go from {low} to {high}")
        return
    wrong = wrong.reshape(len(wrong), -1).any(axis=1)
    if isinstance(sample, Ragged) and rows is not None:
        wrong &= np.repeat(rows, sample.lengths)
    if wrong.any():
        where = f", row {sample.rows()[np.argmax(wrong)]}" if isinstance(sample, Ragged) else ""
        raise ValueError(f"{values[np.argmax(wrong)]} is no item of {space}{where}: choices go from {low} to {high}")


class BatchWriter:
    """`copy_rows` of whole batches with `check_choices`, prepared for one space and one target."""

    def __init__(self, space: Space[Any], target: Any) -> None:
        self._space, self._target = space, target
        self._free = isinstance(space, spaces.Box)  # values are not checked
        self._array: Array = target if isinstance(target, np.ndarray) else np.zeros(0)  # not for Dict and Tuple
        self._count, self._offsets = 0, self._array
        if isinstance(space, spaces.Discrete) and int(space.start) == 0:  # as unsigned, negative values are large
            self._count, self._offsets = int(space.n), self._array.view(self._array.dtype.str.replace("i", "u"))

    def write(self, batch: Any, rows: Callable[[], NDArray[np.bool_]]) -> None:
        """Copies a batch; if a value is out of range, `rows` gives the rows in which that is an error."""
        array = self._array
        if type(batch) is not np.ndarray or batch.dtype != array.dtype or batch.shape != array.shape:
            copy_rows(self._space, batch, self._target, slice(None))
            check_choices(self._space, batch, rows())  # cast to the target's type, a wrong value may look right
            return
        array[...] = batch
        if self._free or (self._count and not np.count_nonzero(self._offsets >= self._count)):
            return
        check_choices(self._space, batch, rows())


def as_action(space: Space[Any], written: Any) -> Any:
    """Converts an action written in a configuration (numbers, lists, mappings) to the types of the space.

    For `UnitActions` it is `{action: label or its number}`, and the result has the labels' numbers.

    Raises:
        ValueError: it is no action of the space, such as 1.5 for a Discrete, or true for a number.
    """

    def typed(space: Space[Any], written: Any) -> Any:
        if isinstance(space, spaces.Dict):
            if set(written) != set(space.spaces):
                raise KeyError(written)
            return {key: typed(part, written[key]) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(typed(part, item) for part, item in zip(space.spaces, written, strict=True))
        if isinstance(space, spaces.Sequence):
            part = space.feature_space
            items = [typed(part, item) for item in written]
            return np.array(items, part.dtype).reshape(-1, *(part.shape or ()))
        array = np.asarray(written)
        with np.errstate(over="ignore", invalid="ignore"):
            cast = array.astype(space.dtype)
        if array.dtype.kind == "b" and not isinstance(space, spaces.MultiBinary):
            raise ValueError(written)
        lost = cast.dtype.kind in "iu" and not np.array_equal(cast, array)
        if lost or (cast.dtype.kind == "f" and not np.isfinite(cast).all()):
            raise ValueError(written)
        return cast[()] if isinstance(space, spaces.Discrete) else cast

    if isinstance(space, UnitActions):
        return space.parse_idle(written)
    try:
        action = typed(space, written)
    except (TypeError, ValueError, KeyError, OverflowError):
        action = None
    if action is None or not space.contains(action):
        raise ValueError(f"{written!r} is no action of {space}")
    return action


def row(space: Space[Any], batched: Any, index: Any) -> Any:
    """One sample out of a batched one, a copy: arrays, and a numpy scalar for a Discrete space."""
    if type(batched) is not np.ndarray:  # as in `flatten`
        if isinstance(space, spaces.Dict):
            return {key: row(part, batched[key], index) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(row(part, value, index) for part, value in zip(space.spaces, batched, strict=True))
    value = batched[index]
    return value if isinstance(space, spaces.Discrete) else np.array(value)  # of a Box also if the shape is ()


def rows_of(space: Space[Any], leaves: Sequence[Any], count: int) -> list[Any]:
    """The first `count` samples of a batch, given as its leaves [B, ...]; copies, as of `row`."""
    if isinstance(space, spaces.Box) and space.shape:
        return list(leaves[0].copy())
    batched = unflatten(space, leaves)
    return [row(space, batched, index) for index in range(count)]


def stack(space: Space[Any], samples: Sequence[Any]) -> Any:
    """A batched sample of single ones, [B, ...], copied; raises `ValueError` or `TypeError` as `write_sample`."""
    leaves = leaves_of(space, ragged=True)
    columns: list[list[Any]] = [[] for _ in leaves]
    for sample in samples:
        for column, leaf, array in zip(columns, leaves, flatten(space, sample), strict=True):
            empty = leaf.ragged and not array.size  # of any dtype, as an empty list is float64
            if array.dtype != leaf.dtype and not empty and (lost := lost_value(array, leaf.dtype)) is not None:
                raise TypeError(f"the value {lost} for {space}{leaf.place}, which holds {leaf.dtype}")
            column.append(array)
    batch = [
        Ragged.of(column, leaf.dtype, leaf.shape)
        if leaf.ragged
        else np.array(column, leaf.dtype).reshape(len(column), *leaf.shape)
        for leaf, column in zip(leaves, columns, strict=True)
    ]
    return unflatten(space, batch)


def take_rows(space: Space[Any], batched: Any, rows: Any) -> Any:
    """Some rows of a batched sample, in the order of an index array, a mask or a slice."""
    return unflatten(space, [leaf[rows] for leaf in flatten(space, batched)])


def replace_rows(space: Space[Any], before: Any, after: Any, rows: NDArray[np.bool_]) -> Any:
    """A batched sample with the rows of `after` where `rows` [B] is true, else those of `before`; a copy."""
    pairs = zip(flatten(space, before), flatten(space, after), strict=True)
    mixed = [
        old.replaced(new, rows)
        if isinstance(old, Ragged)
        else np.where(rows.reshape(-1, *(1,) * (old.ndim - 1)), new, old)
        for old, new in pairs
    ]
    return unflatten(space, mixed)


def empty_batch(space: Space[Any], *axes: int) -> Any:
    """A batched sample of zeros with the given leading axes; ragged leaves have rows without items, and one axis."""
    leaves = [
        Ragged.empty(axes[0], leaf.dtype, leaf.shape) if leaf.ragged else np.zeros((*axes, *leaf.shape), leaf.dtype)
        for leaf in leaves_of(space, ragged=True)
    ]
    return unflatten(space, leaves)


def no_op(space: Space[Any], mask: NDArray[np.int8] | None = None) -> Any:
    """The action of an idle entity: zeros, or `start`, clipped to the space's bounds; no items of a ragged leaf.

    With a mask (see `mask_size`), the first allowed action; a mask of all zeros is ignored.
    """
    if isinstance(space, spaces.Dict):
        return {key: no_op(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(no_op(part) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return np.dtype(space.dtype).type(space.start + (0 if mask is None else int(np.argmax(mask != 0))))
    if isinstance(space, spaces.Box):
        return np.asarray(np.clip(np.zeros(space.shape, space.dtype), space.low, space.high))
    if isinstance(space, spaces.MultiDiscrete):
        choices = space.nvec.ravel()
        masks = np.split(np.ones(choices.sum()) if mask is None else mask, np.cumsum(choices)[:-1])
        offsets = np.array([np.argmax(part != 0) for part in masks], space.dtype)
        return np.asarray(space.start + offsets.reshape(space.nvec.shape))
    if isinstance(space, spaces.Sequence):
        part = space.feature_space
        return np.zeros((0, *(part.shape or ())), part.dtype)
    return np.zeros(space.shape, space.dtype)


def allows_some(space: Space[Any], masks: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows of action masks [N, mask_size] allow an action: an option of every choice."""
    if isinstance(space, spaces.MultiDiscrete):
        firsts = np.cumsum(space.nvec.ravel()) - space.nvec.ravel()
        return np.asarray((np.maximum.reduceat(masks, firsts, axis=1) > 0).all(axis=1))
    return np.asarray(masks.any(axis=1))


def are_allowed(space: Any, masks: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.bool_]:
    """Which actions [N, ...] of a Discrete or MultiDiscrete space action masks [N, mask_size] allow."""
    places = (actions - space.start).reshape(len(actions), np.size(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        places += np.cumsum(space.nvec.ravel()) - space.nvec.ravel()
    return np.asarray((np.take_along_axis(masks, places, axis=1) > 0).all(axis=1))


def mask_fault(space: Space[Any], masks: NDArray[Any], *axes: int) -> str | None:
    """Why an array is not the action masks [*axes, mask_size] of this space; None: it is."""
    shape = (*axes, mask_size(space))
    if masks.shape != shape or masks.dtype.kind not in "biuf":
        found = f"dtype {masks.dtype} and shape {masks.shape}"
    elif masks.size and (
        masks.max() > 1 or masks.min() < 0 or (masks.dtype.kind == "f" and ((masks != 0) & (masks != 1)).any())
    ):
        found = f"the value {masks[(masks != 0) & (masks != 1)][0]}"
    elif shape[-1] and allows_some(space, masks.reshape(-1, shape[-1])).all():
        return None
    else:
        found = "no allowed action"
    return f"{found}; expected numbers {shape}: 1 for each allowed action, 0 for each forbidden one"


def mask_size(space: Space[Any]) -> int:
    """The length of an action mask for this space: one item per action (MultiDiscrete: all of its choices in a row)."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return 0


def large_numbers(space: Space[Any], leaves: Sequence[Any]) -> str:
    """A sentence about numbers that are far beyond what a network learns from; empty if there are none.

    The leaves are those of a batch of observations, arrays [N, ...], of ragged ones the items.
    """
    found: list[str] = []
    largest = coarsest = 0.0
    for leaf, part, values in zip(leaves_of(space, ragged=True), leaf_spaces(space), leaves, strict=False):
        box = part.feature_space if isinstance(part, spaces.Sequence) else part
        array = np.asarray(values)
        if not isinstance(box, spaces.Box) or box.dtype == np.uint8 or not array.size:
            continue  # choices become one-hot vectors, bytes are scaled
        numbers = np.abs(array.reshape(len(array), -1).astype(np.float64))
        sizes = np.max(numbers, axis=0, initial=0.0, where=np.isfinite(numbers))
        for index in np.flatnonzero(sizes >= _LARGE):
            within = "".join(f"[{place}]" for place in np.unravel_index(index, box.shape))
            found.append(f"observation{leaf.place}{within}")
            largest = max(largest, float(sizes[index]))
            if box.dtype.itemsize > 4 or box.dtype in (np.int32, np.uint32):
                coarsest = max(coarsest, float(np.spacing(np.float32(sizes[index]))))
    if not found:
        return ""
    names = ", ".join(found[:_NAMED]) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
    lost = f"; in float32, as networks take them, neighbors differ by {coarsest:g}" if coarsest > _COARSE else ""
    return (
        f"{names}: numbers up to {largest:,.10g}, far beyond what a network learns from (about -10 to 10){lost}. Set "
        "normalize_observations: true in the options of the policy, or scale them in the game"
    )
