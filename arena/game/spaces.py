"""Spaces as columns: every sample of a space is a fixed list of arrays.

A *leaf* is one array of a sample: `Dict(a=Box(3), b=Discrete(5))` has the leaves `a` (float32, (3,)) and `b`
(int64, ()). Processes exchange leaves: no pickle, no allocation, and the space determines the layout of a message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.errors import ConfigError

Array = NDArray[Any]


class Leaf(NamedTuple):
    """One array of a sample: its path in the sample, and its type and shape without batch axes."""

    path: tuple[str | int, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


_ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def leaves_of(space: Space[Any]) -> tuple[Leaf, ...]:
    """The leaves of a space, in the space's own order.

    Raises:
        ConfigError: the space, or a part of it, has no fixed layout (Text, Sequence, Graph, OneOf).
    """
    if isinstance(space, _ARRAY_SPACES):
        return (Leaf((), np.dtype(space.dtype), tuple(space.shape or ())),)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return tuple(
            Leaf((key, *leaf.path), leaf.dtype, leaf.shape) for key, part in _parts(space) for leaf in leaves_of(part)
        )
    raise ConfigError(
        f"the space {space} has no fixed layout; seats can hold Box, Discrete, MultiDiscrete, MultiBinary, "
        "and Dict and Tuple of these"
    )


def _parts(space: spaces.Dict | spaces.Tuple[Any]) -> list[tuple[str | int, Space[Any]]]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces))


def flatten(space: Space[Any], sample: Any) -> list[Array]:
    """The arrays of a sample, in the order of `leaves_of`; any leading batch axes are kept."""
    if type(sample) is np.ndarray:  # no container: an isinstance check of the space would take longer than the rest
        return [sample]
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return [array for key, part in _parts(space) for array in flatten(part, sample[key])]
    # NumPy would make a Python int an int64, which does not fit into a space of unsigned integers.
    return [np.asarray(sample, space.dtype if type(sample) is int else None)]


def unflatten(space: Space[Any], arrays: Sequence[Array]) -> Any:
    """The sample that holds these arrays: the inverse of `flatten`, without a copy."""
    return _unflatten(space, iter(arrays))


def _unflatten(space: Space[Any], remaining: Iterator[Array]) -> Any:
    # Not a nested function: a recursive closure keeps the arrays alive until the garbage collector runs.
    if isinstance(space, spaces.Dict):
        return {key: _unflatten(inner, remaining) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_unflatten(inner, remaining) for inner in space.spaces)
    return next(remaining)


def is_finite(array: Array) -> bool:
    """Whether all numbers are; whole numbers are. The squares' sum is finite then, or overflows: only so it is slow."""
    return array.dtype.kind != "f" or math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def copy_rows(space: Space[Any], source: Any, target: Any, rows: Any) -> None:
    """Copies rows of one batched sample into the same rows of another.

    Raises:
        TypeError: the space's dtype cannot hold an array's values (floats for integer actions).
        ValueError: an array does not have the space's shape; NumPy would broadcast it silently.
    """
    if source is None:
        raise TypeError(f"None is no batch of {space}; a sample is needed for each row")
    for array, into in zip(flatten(space, source), flatten(space, target), strict=True):
        _check_dtype(space, array, into)
        if array.shape != into.shape:
            raise ValueError(f"a batch of {space} has the shape {into.shape}, got {array.shape}")
        into[rows] = array[rows]


def write_sample(space: Space[Any], sample: Any, target: Any, rows: Any) -> None:
    """Writes one sample into one or several rows of a batch.

    Raises:
        TypeError: as `copy_rows`.
        ValueError: an array does not have the space's shape.
    """
    for array, into in zip(flatten(space, sample), flatten(space, target), strict=True):
        _check_dtype(space, array, into)
        if array.shape != into.shape[1:]:
            raise ValueError(f"a sample of {space} has the shape {into.shape[1:]}, got {array.shape}")
        into[rows] = array


def _check_dtype(space: Space[Any], array: Array, into: Array) -> None:
    if array.dtype != into.dtype and not keeps_values(array, into.dtype):
        raise TypeError(f"{array.dtype} values for {space}, which holds {into.dtype}")


def keeps_values(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an array may be cast to this dtype: floats may lose precision, integers must all fit."""
    if np.can_cast(array.dtype, dtype, casting="same_kind"):
        return True
    return array.dtype.kind in "iu" and dtype.kind in "iu" and np.array_equal(array.astype(dtype), array)


def check_choices(space: Space[Any], sample: Any, rows: NDArray[np.bool_] | None = None) -> None:
    """Checks the values of Discrete, MultiDiscrete and MultiBinary spaces in a sample or a batch.

    Boxes are not checked: whether values out of bounds are clipped or refused is up to the game.

    Args:
        space: of one sample.
        sample: one, or a batch.
        rows: bool [B], the rows of a batch to check; None: all.

    Raises:
        TypeError: the sample is None.
        ValueError: a value of a Discrete, MultiDiscrete or MultiBinary space is out of its range.
    """
    if sample is None:
        raise TypeError(f"None is no action of {space}; an action is needed on every tick")
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, part in _parts(space):
            check_choices(part, sample[key], rows)
        return
    if isinstance(space, spaces.Box):
        return
    low, high = _choices(space)
    values = np.asarray(sample)
    wrong = (values < low) | (values > high)
    if np.count_nonzero(wrong) and (rows is None or wrong[rows].any()):
        raise ValueError(f"{values} is no action of {space}: choices go from {low} to {high}")


class BatchWriter:
    """`copy_rows` of whole batches with `check_choices`, prepared for one space and one target.

    Args:
        space: of one sample.
        target: the batch to write, [B, ...].
    """

    def __init__(self, space: Space[Any], target: Any) -> None:
        self._space, self._target = space, target
        self._free = isinstance(space, spaces.Box)  # values are not checked
        self._array: Array = target if isinstance(target, np.ndarray) else np.zeros(0)  # not for Dict and Tuple
        self._count, self._offsets = 0, self._array
        if (
            isinstance(space, spaces.Discrete) and int(space.start) == 0
        ):  # viewed as unsigned integers, negative values are large
            self._count, self._offsets = int(space.n), self._array.view(self._array.dtype.str.replace("i", "u"))

    def write(self, batch: Any, rows: Callable[[], NDArray[np.bool_]]) -> None:
        """Copies a batch; if a value is out of range, `rows` gives the rows in which that is an error.

        Raises:
            TypeError, ValueError: as `copy_rows` and `check_choices`.
        """
        array = self._array
        if type(batch) is not np.ndarray or batch.dtype != array.dtype or batch.shape != array.shape:
            copy_rows(self._space, batch, self._target, slice(None))
            check_choices(
                self._space, batch, rows()
            )  # before the cast: in a narrower type a wrong value may look right
            return
        array[...] = batch
        if self._free or (self._count and not np.count_nonzero(self._offsets >= self._count)):
            return
        check_choices(self._space, batch, rows())


def _choices(space: Space[Any]) -> tuple[Any, Any]:
    """The smallest and largest value of a space of integers."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def as_action(space: Space[Any], written: Any) -> Any:
    """Converts an action written in a configuration (numbers, lists, mappings) to the types of the space.

    Raises:
        ValueError: it is no action of the space, such as 1.5 for a Discrete, or true for a number.
    """
    try:
        action = _typed(space, written)
    except (TypeError, ValueError, KeyError, OverflowError):
        action = None
    if action is None or not space.contains(action):
        raise ValueError(f"{written!r} is no action of {space}")
    return action


def _typed(space: Space[Any], written: Any) -> Any:
    if isinstance(space, spaces.Dict):
        if set(written) != set(space.spaces):
            raise KeyError(written)
        return {key: _typed(part, written[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_typed(part, item) for part, item in zip(space.spaces, written, strict=True))
    given = np.asarray(written)
    typed = given.astype(space.dtype)
    if given.dtype.kind == "b" and not isinstance(space, spaces.MultiBinary):
        raise ValueError(written)
    if typed.dtype.kind in "iu" and not np.array_equal(typed, given):
        raise ValueError(written)
    return typed[()] if isinstance(space, spaces.Discrete) else typed


def row(space: Space[Any], batched: Any, index: Any) -> Any:
    """One sample out of a batched one, a copy: arrays, and a numpy scalar for a Discrete space."""
    if type(batched) is not np.ndarray:  # as in `flatten`
        if isinstance(space, spaces.Dict):
            return {key: row(part, batched[key], index) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(row(part, value, index) for part, value in zip(space.spaces, batched, strict=True))
    value = batched[index]
    return (
        value if isinstance(space, spaces.Discrete) else np.array(value)
    )  # samples of a Box are arrays, also of shape ()


def rows_of(space: Space[Any], leaves: Sequence[Array], count: int) -> list[Any]:
    """The first `count` samples of a batch, given as its leaves [B, ...]; copies, as of `row`."""
    if isinstance(space, spaces.Box) and space.shape:
        return list(leaves[0].copy())
    batched = unflatten(space, leaves)
    return [row(space, batched, index) for index in range(count)]


def empty_batch(space: Space[Any], *axes: int) -> Any:
    """A batched sample of zeros with the given leading axes."""
    return unflatten(space, [np.zeros((*axes, *leaf.shape), leaf.dtype) for leaf in leaves_of(space)])


def no_op(space: Space[Any], mask: NDArray[np.int8] | None = None) -> Any:
    """The action of an idle entity: zeros, or `start`, clipped to the space's bounds.

    With a mask (see `mask_size`), the first allowed action; a mask of all zeros is ignored.
    """
    if isinstance(space, spaces.Dict):
        return {key: no_op(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(no_op(part) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return np.dtype(space.dtype).type(space.start + _first_allowed(mask))
    if isinstance(space, spaces.Box):
        return np.asarray(np.clip(np.zeros(space.shape, space.dtype), space.low, space.high))
    if isinstance(space, spaces.MultiDiscrete):
        choices = space.nvec.ravel()
        masks = [None] * choices.size if mask is None else np.split(mask, np.cumsum(choices)[:-1])
        offsets = np.array([_first_allowed(part) for part in masks], space.dtype)
        return np.asarray(space.start + offsets.reshape(space.nvec.shape))
    return np.zeros(space.shape, space.dtype)


def _first_allowed(mask: NDArray[np.int8] | None) -> int:
    return 0 if mask is None else int(np.argmax(mask != 0))


def mask_size(space: Space[Any]) -> int:
    """The length of an action mask for this space: one item per action (MultiDiscrete: all of its choices in a row)."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return 0
