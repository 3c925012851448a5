"""Checks of the numbers in an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_finite(array: NDArray[Any]) -> bool:
    """Whether all numbers are finite; integers are. Slow only if the sum of squares is not finite."""
    return array.dtype.kind != "f" or math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def keeps_values(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether an array may be cast to this dtype: floats may lose precision, integers must all fit."""
    if np.can_cast(array.dtype, dtype, casting="same_kind"):
        return True
    return array.dtype.kind in "iu" and dtype.kind in "iu" and np.array_equal(array.astype(dtype), array)
