"""Checks and copies of the numbers in arrays."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = float(np.finfo(np.float32).max)
"""The largest reward of a tick: algorithms learn in float32, where a larger one is infinite."""


def is_finite(array: NDArray[Any]) -> bool:
    """Whether all numbers are finite; integers are. Slow only if the sum of squares is not finite."""
    return array.dtype.kind != "f" or math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def lost_value(array: NDArray[Any], dtype: np.dtype[Any]) -> str | None:
    """The first value that a conversion to this dtype would change, and its own dtype; None if there is none.

    Integers must stay the same number. Floats may be rounded to the precision of a narrower float, but must not become
    infinite; as integers they are refused, even if they are whole. A bool is 0 or 1.
    """
    before = array.dtype
    if before == dtype or not array.size:
        return None
    kinds = before.kind + dtype.kind
    if kinds in ("bi", "bu", "bf") or (kinds == "ff" and before.itemsize <= dtype.itemsize):
        return None
    if kinds not in _LIMITED:
        wrong = np.ones(1, np.bool_)
    else:
        low, high = _limits(dtype, integers=kinds != "ff")
        if low <= array.min() and array.max() <= high:  # false for NaN
            return None
        # As Python's numbers: NumPy would compare int64 and uint64 as floats.
        if dtype.kind in "iu":
            wrong = np.array([not low <= one <= high for one in array.ravel().tolist()])
        else:
            with np.errstate(over="ignore"):
                typed = array.astype(dtype).ravel()
            if kinds == "ff":
                wrong = np.isinf(typed) & np.isfinite(array.ravel())
            else:
                wrong = np.array([new != old for new, old in zip(typed.tolist(), array.ravel().tolist(), strict=True)])
        if not wrong.any():
            return None
    remedy = "; use integers" if kinds in ("fi", "fu") else ""
    return f"{array.reshape(-1)[int(np.argmax(wrong))]!s:.40} ({before}{remedy})"


_LIMITED = {"ii", "iu", "ui", "uu", "if", "uf", "ff"}


def described(found: Any) -> str:
    """What a message says of a wrong value: dtype and shape of an array, the class of anything else."""
    return f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else f"a {type(found).__name__}"


@cache
def _limits(dtype: np.dtype[Any], *, integers: bool) -> tuple[float, float]:
    """Between these numbers every one survives a conversion, of integers or of floats."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    exact = 2 ** (np.finfo(dtype).nmant + 1)
    highest = exact if integers else float(np.finfo(dtype).max)
    return -highest, highest


def copied(value: Any) -> Any:
    """A copy of a sample or an info: its owner may change arrays, lists and mappings in place.

    Immutable values and objects of other classes, also of subclasses of lists, are the same ones.
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if isinstance(value, tuple) and hasattr(value, "_make"):  # a named tuple
        return value._make(map(copied, value))
    return value
