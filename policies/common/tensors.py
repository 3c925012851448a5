"""From arrays to tensors and back: observations as they are kept, and nested state that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from arena.errors import ConfigError
from policies.common.shape_errors import Shape, ShapeMismatch, difference

_AS_LEARNT = (
    "they were learned with other spaces of the environment, or other options of the network, such as "
    "options.hidden_sizes: take those of the configuration that they were learned with"
)


@cache
def storage_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """How a leaf of an observation is kept: flags and bytes as bytes, other integers int64, floats float32."""
    if dtype == np.bool_ or dtype == np.uint8:
        return torch.uint8
    return torch.int64 if np.issubdtype(dtype, np.integer) else torch.float32


def to_stored(array: NDArray[Any], dtype: np.dtype[Any]) -> Tensor:
    """A copy of a leaf of observations, whose space has this dtype, as it is kept; torch allocates and aligns it."""
    stored = torch.empty(array.shape, dtype=storage_dtype(dtype))
    held = stored.numpy()
    if array.dtype != held.dtype:  # torch says nothing of a number that is too large for the other type, numpy does
        return torch.tensor(array).to(stored.dtype)
    held[...] = array  # half as long as by torch
    return stored


def to_arrays(state: Any) -> Any:
    """A copy of a nested state in which every tensor is a numpy array; containers and plain values stay.

    A zero-dimensional tensor becomes a zero-dimensional array, so that `to_tensors` gives it back.
    """
    if isinstance(state, Tensor):
        return state.detach().cpu().numpy().copy()
    if isinstance(state, Mapping):
        return {key: to_arrays(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(to_arrays(value) for value in state)
    return state


def to_tensors(state: Any) -> Any:
    """The inverse of `to_arrays`: a copy of a nested state in which every numpy array is a tensor on the CPU."""
    if isinstance(state, np.ndarray):
        return torch.from_numpy(np.array(state))  # a copy: the array may be read-only, or a part of a file
    if isinstance(state, Mapping):
        return {key: to_tensors(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(to_tensors(value) for value in state)
    return state


def load_weights(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Loads weights, arrays or tensors, into a module of the same shape.

    Raises:
        ConfigError: names or shapes differ: the weights were learned with other spaces or other layer sizes.
    """
    tensors = to_tensors(weights)
    found = misfit(module, tensors)
    if found is not None:
        remedy = f"they were learned with {found.option}" if found.option else _AS_LEARNT
        raise ConfigError(f"the stored weights do not fit this network: {found.words}; {remedy}")
    module.load_state_dict(tensors)


def misfit(module: nn.Module, weights: Mapping[str, Any]) -> ShapeMismatch | None:
    """In which way stored weights do not fit a module; None if they do."""
    return difference(_shapes(weights), _shapes(module.state_dict()))


def _shapes(weights: Mapping[str, Any]) -> dict[str, Shape]:
    """By name; of what is no tensor None, which fits nothing."""
    return {name: tuple(one.shape) if isinstance(one, Tensor) else None for name, one in weights.items()}
