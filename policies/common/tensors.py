"""From tensors to arrays and back: nested state that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from arena.errors import ConfigError

Shape = tuple[int, ...] | None  # None: no tensor, which fits nothing
Shapes = Mapping[str, Shape]  # of weights by name

_FROM_INPUTS, _FROM_MEMORY = ".from_inputs", ".from_memory"  # see `policies.networks.recurrent`
_KINDS = {4: "lstm", 3: "gru"}  # by the gates of a layer


class Memory(NamedTuple):
    """The recurrent layer of a policy."""

    kind: str
    size: int


class ShapeMismatch(NamedTuple):
    """A difference between stored weights and a network, and the option that would fit."""

    words: str  # "actor 4-32-5 stored, 4-64-64-5 here"
    option: str  # of the algorithm, as it was when the weights were learned; empty where no single option explains it


def difference(stored: Shapes, held: Shapes) -> ShapeMismatch | None:
    """The first difference between stored weights and those of a network; None where there is none.

    Linear layers in a row are a *chain*, as `actor 4-64-64-5`: inputs of the first, then outputs of each.
    """
    differ = [name for name in {**held, **stored} if held.get(name) is None or held.get(name) != stored.get(name)]
    if not differ:
        return None
    memories = _memory(stored), _memory(held)
    if memories[0] != memories[1]:
        return ShapeMismatch(_memory_words(*memories), _memory_option(memories[0]))
    there, here = _chains(stored), _chains(held)
    for name in {**here, **there}:
        old, new = there.get(name, ()), here.get(name, ())
        if old != new:
            return ShapeMismatch(f"{name} {_sizes(old)} stored, {_sizes(new)} here", _sizes_option(old, new))
    shapes = (_shape(side, differ[0]) for side in (stored, held))
    return ShapeMismatch("{} {} stored, {} here".format(differ[0], *shapes), "")


def _chains(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Linear layers in a row, by the name of the module that holds them."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if name.endswith(".weight") and shape is not None and len(shape) == 2:
            path = name.removesuffix(".weight").split(".")
            chain = ".".join(path[:-1] if path[-1].isdigit() else path)
            found[chain] = (*found.get(chain, (shape[1],)), shape[0])
    return found


def _memory(shapes: Shapes) -> Memory | None:
    for name, shape in shapes.items():
        inputs = shapes.get(name.removesuffix(_FROM_MEMORY) + _FROM_INPUTS)
        if name.endswith(_FROM_MEMORY) and shape and inputs and shape[-1]:
            return Memory(_KINDS.get(inputs[-2] // shape[-1], "memory"), shape[-1])
    return None


def _memory_words(stored: Memory | None, held: Memory | None) -> str:
    there, here = (f"a memory ({one.kind} of {one.size})" if one else "no memory" for one in (stored, held))
    return f"{there} stored, {here} here"


def _memory_option(stored: Memory | None) -> str:
    return f"options.recurrent: {stored.kind}, options.hidden_size: {stored.size}" if stored else "no options.recurrent"


def _sizes(chain: tuple[int, ...]) -> str:
    return "-".join(map(str, chain)) or "none"


def _sizes_option(stored: tuple[int, ...], held: tuple[int, ...]) -> str:
    """The option that differs, for layers with the same inputs and outputs and other sizes in between."""
    alike = stored and held and (stored[0], stored[-1]) == (held[0], held[-1])
    return f"options.hidden_sizes: {list(stored[1:-1])}" if alike else ""


def _shape(shapes: Shapes, name: str) -> str:
    shape = shapes.get(name)
    return "none" if shape is None else "x".join(map(str, shape)) or "one number"


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
