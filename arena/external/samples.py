"""Lists, numbers and mappings, as in JSON, as samples of a space, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray

from arena.external.errors import Code, ExternalError
from arena.game.arrays import LARGEST, lost_value
from arena.game.spaces import mask_fault

_EXACT = 2**53  # up to here a float64 holds every whole number


def fitted(space: Space[Any], written: Any, what: str, code: Code) -> Any:
    """A sample of the space from arrays, numbers, lists or mappings of these; always a copy.

    Raises:
        ExternalError: a part is missing or unknown, has another shape, would be rounded, or is not finite; the message
            names it.
    """
    if isinstance(space, spaces.Dict):
        keys = ", ".join(space.spaces)
        if not isinstance(written, dict):
            raise ExternalError(code, f"{what}: {type(written).__name__}; expected a mapping with {keys}")
        for key in (*space.spaces, *written):
            if key not in written or key not in space.spaces:
                fault = "is unknown" if key in written else "is missing"
                raise ExternalError(code, f"{what}[{key!r}] {fault}; expected {keys}")
        return {key: fitted(part, written[key], f"{what}[{key!r}]", code) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if not isinstance(written, (list, tuple)) or len(written) != len(space.spaces):
            raise ExternalError(code, f"{what}: {type(written).__name__}; expected {len(space.spaces)} items")
        return tuple(fitted(part, written[i], f"{what}[{i}]", code) for i, part in enumerate(space.spaces))
    try:
        array = np.asarray(written)
    except ValueError:  # lists of different lengths
        raise ExternalError(code, f"{what}: lists of different lengths; expected {space.dtype} {space.shape}") from None
    dtype = space.dtype
    assert dtype is not None, "the space has a fixed layout"
    kind, target = array.dtype.kind, dtype.kind
    if kind not in "biuf":
        found = f"{type(written).__name__} {written!r:.40}"
        if written is None:
            found = "nothing"
        elif isinstance(written, Mapping):
            found = f"a mapping with {', '.join(map(repr, written))}"
        elif None in array.ravel().tolist():
            found = "null among the numbers (JavaScript writes NaN and Infinity so)"
        raise ExternalError(code, f"{what}: {found}; expected numbers: {dtype} {space.shape} of {space}")
    if array.shape != space.shape:
        raise ExternalError(code, f"{what}: shape {array.shape}; expected {space.shape} of {space}")
    # Whole numbers may become integers, any numbers floats, and bools only flags.
    if array.dtype == dtype or (target == "f" and kind in "bf"):
        keeps = kind != "b"
    elif kind == "b":
        keeps = target == "b" or dtype == np.int8  # flags of a MultiBinary
    elif kind == "f":
        whole = (array == np.trunc(array)) & (np.abs(array) <= _EXACT)
        keeps = bool(whole.all()) and lost_value(array.astype(np.int64), dtype) is None
    else:
        keeps = lost_value(array, dtype) is None
    if not keeps:
        raise ExternalError(code, f"{what}: {array.dtype} would not keep its values; expected {dtype} of {space}")
    with np.errstate(over="ignore", invalid="ignore"):  # a number beyond the dtype becomes infinite
        typed = np.array(array, dtype)
    if typed.dtype.kind == "f" and not np.isfinite(typed).all():
        raise ExternalError(code, f"{what}: numbers that are not finite, or too large for {dtype}")
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)) and not space.contains(typed[()]):
        raise ExternalError(code, f"{what}: {written!r} is not in {space}")
    return typed[()] if isinstance(space, spaces.Discrete) else typed


def fitted_mask(space: Space[Any], size: int, mask: Any, entity: str, *axes: int) -> NDArray[np.int8] | None:
    """The masks of an entity's actions as int8 [*axes, size], None: all are allowed; with `size` 0 it has none.

    Raises:
        ExternalError: `bad_mask`.
    """
    if mask is None:
        return None
    try:
        array = np.asarray(mask)
    except (OverflowError, TypeError, ValueError) as error:
        raise ExternalError("bad_mask", f"mask of {entity!r}: {error}") from None
    if not size:
        says = "it has some with `masks: true` in `entities`, or `mask_sizes` in a class"
        raise ExternalError("bad_mask", f"{entity!r} has no action masks; {says}")
    if (fault := mask_fault(space, array, *axes)) is not None:
        raise ExternalError("bad_mask", f"the mask of {entity!r} has {fault}")
    return array.astype(np.int8)


def checked_reward(reward: Any, entity: str) -> float:
    """The reward of an entity as a finite number that float32 holds; else `bad_reward`."""
    try:
        value = math.nan if isinstance(reward, (str, bytes)) else float(reward)
    except (OverflowError, TypeError, ValueError):
        raise ExternalError("bad_reward", f"the reward {reward!r} of {entity!r} is no number") from None
    if not abs(value) <= LARGEST:  # false for NaN
        found = "not finite" if not math.isfinite(value) else "more than float32 holds"
        raise ExternalError("bad_reward", f"the reward {reward!r} of {entity!r} is {found}")
    return value


def as_json(space: Space[Any], sample: Any) -> Any:
    """A sample as numbers, lists and mappings."""
    if isinstance(space, spaces.Dict):
        return {key: as_json(part, sample[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [as_json(part, item) for part, item in zip(space.spaces, sample, strict=True)]
    return np.asarray(sample).tolist()
