"""From tensors to arrays and back: nested state that can be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from arena.errors import ConfigError

_FROM_INPUTS, _FROM_MEMORY = ".from_inputs", ".from_memory"  # see `policies.networks.recurrent`
_KINDS = {4: "lstm", 3: "gru"}  # by the gates of a layer


def misfit(module: nn.Module, weights: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first difference between stored weights, tensors by name, and those of a module; None if there is none.

    As a text such as `actor 4-32-5 stored, 4-64-64-5 here`, and the option of the algorithm as it was when the weights
    were learned; empty where no single option explains the difference. Linear layers in a row are a *chain*, as
    `actor 4-64-64-5`: inputs of the first, then outputs of each.
    """
    # None, which fits nothing, stands for what is no tensor.
    shapes = [
        {name: tuple(one.shape) if isinstance(one, Tensor) else None for name, one in each.items()}
        for each in (weights, module.state_dict())
    ]
    stored, here = shapes
    differ = [name for name in {**here, **stored} if here.get(name) is None or here.get(name) != stored.get(name)]
    if not differ:
        return None
    memories, chains = [], []
    for each in shapes:
        memory, found = None, dict[str, tuple[int, ...]]()
        for name, shape in each.items():
            inputs = each.get(name.removesuffix(_FROM_MEMORY) + _FROM_INPUTS)
            if name.endswith(_FROM_MEMORY) and shape and inputs and shape[-1] and memory is None:
                memory = _KINDS.get(inputs[-2] // shape[-1], "memory"), shape[-1]
            if name.endswith(".weight") and shape is not None and len(shape) == 2:
                path = name.removesuffix(".weight").split(".")
                chain = ".".join(path[:-1] if path[-1].isdigit() else path)
                found[chain] = (*found.get(chain, (shape[1],)), shape[0])
        memories.append(memory)
        chains.append(found)
    if memories[0] != memories[1]:
        then, now = ("no memory" if one is None else "a memory ({} of {})".format(*one) for one in memories)
        kind = memories[0]
        option = "options.recurrent: {}, options.hidden_size: {}".format(*kind) if kind else "no options.recurrent"
        return f"{then} stored, {now} here", option
    for name in {**chains[1], **chains[0]}:
        before, after = (each.get(name, ()) for each in chains)
        if before != after:
            then, now = ("-".join(map(str, chain)) or "none" for chain in (before, after))
            # Layers with the same inputs and outputs and other sizes in between: one option differs.
            alike = before and after and (before[0], before[-1]) == (after[0], after[-1])
            option = f"options.hidden_sizes: {list(before[1:-1])}" if alike else ""
            return f"{name} {then} stored, {now} here", option
    last = (each.get(differ[0]) for each in shapes)
    then, now = ("none" if shape is None else "x".join(map(str, shape)) or "one number" for shape in last)
    return f"{differ[0]} {then} stored, {now} here", ""


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
        text, option = found
        remedy = f"they were learned with {option}" if option else _AS_LEARNED
        raise ConfigError(f"the stored weights do not fit this network: {text}; {remedy}")
    module.load_state_dict(tensors)
