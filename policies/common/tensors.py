"""From tensors to arrays and back: nested state that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arena.errors import ConfigError
from policies.common.shape_errors import Shape, ShapeMismatch, difference

_AS_LEARNED = (
    "they were learned with other spaces of the environment, or other options of the network, such as "
    "options.hidden_sizes: take those of the configuration that they were learned with"
)


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
        remedy = f"they were learned with {found.option}" if found.option else _AS_LEARNED
        raise ConfigError(f"the stored weights do not fit this network: {found.words}; {remedy}")
    module.load_state_dict(tensors)


def misfit(module: nn.Module, weights: Mapping[str, Any]) -> ShapeMismatch | None:
    """In which way stored weights do not fit a module; None if they do."""
    return difference(_shapes(weights), _shapes(module.state_dict()))


def _shapes(weights: Mapping[str, Any]) -> dict[str, Shape]:
    """Shapes by name; None, which fits nothing, for what is no tensor."""
    return {name: tuple(one.shape) if isinstance(one, Tensor) else None for name, one in weights.items()}
