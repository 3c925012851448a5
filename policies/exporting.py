"""The network of a policy as a plain module of tensors, for `arena export`; run as it is, and as an ONNX file.

    leaves [N, ...] --dtypes, normalization--> network --> outputs [N, ...]

Masks, sampling and bounds are not in the module: `decoding` describes how actions follow from its outputs, see
`arena.serving.decoding`.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor, nn

from arena.errors import ConfigError
from arena.game.spaces import flatten, leaves_of, no_op
from arena.game.units import UnitActions
from policies.common.columns import kept_leaves, storage_dtype
from policies.common.normalization import ObservationNormalizer
from policies.networks.reparameterized import SquashedGaussian

Array = NDArray[Any]
Engine = Callable[[Sequence[Array]], list[Array]]
"""A way to run an exported module, on one thread of the CPU: from all inputs [N, ...] to all outputs [N, ...]."""
Outputs = Callable[[Any, list[Tensor]], Tensor | tuple[Tensor, ...]]
"""From a network and its inputs to the actor's outputs, followed by others, such as the memory after a tick."""

_NAMES: dict[str, tuple[str, ...]] = {
    "categorical": ("logits",),
    "multi_categorical": ("logits",),
    "bernoulli": ("logits",),
    "values": ("values",),
    "gaussian": ("mean",),
    "squashed_gaussian": ("mean", "log_std"),
    "deterministic": ("action",),
}
"""The outputs that each kind of `decoding` reads."""


class Exported(NamedTuple):
    """What `exported()` of an algorithm returns.

    The descriptions of inputs and outputs have `name`, `dtype` and `shape` without the batch axis. An input that is a
    leaf of the observation also has its `path`; an input that is a number below `n`, as `entity`, also has `n`.
    """

    module: nn.Module  # on the CPU; called with the inputs [N, ...] in this order, returns a tuple of the outputs
    inputs: Sequence[Mapping[str, Any]]
    outputs: Sequence[Mapping[str, Any]]
    decoding: Mapping[str, Any]  # of JSON's types


def exported(
    network: nn.Module,
    space: Space[Any],
    decoding: Mapping[str, Any],
    *,
    outputs: Outputs = lambda network, inputs: network(inputs),
    normalization: ObservationNormalizer | None = None,
    memory_size: int = 0,
    entities: int = 0,
) -> Exported:
    """A copy of a policy's network with all that comes before it.

    Args:
        network: what was learned.
        space: one entity's observation space.
        decoding: of `decoding_of`.
        outputs: how the network is called with its inputs: the leaves, then memory and entity where it has them.
        normalization: of the observations, if any.
        memory_size: numbers that a row remembers: the input `memory` and the output `next_memory`.
        entities: of the team whose actors these are; above 0 the input `entity` is the row's place in the team.
    """
    layout = leaves_of(space)
    inputs: list[dict[str, Any]] = [
        {"name": f"observation_{number}", "dtype": str(leaf.dtype), "shape": leaf.shape, "path": leaf.path}
        for number, leaf in enumerate(layout)
    ]
    names = _NAMES[decoding["kind"]]
    if memory_size:
        inputs.append({"name": "memory", "dtype": "float32", "shape": (memory_size,)})
        names = (*names, "next_memory")
    if entities:
        inputs.append({"name": "entity", "dtype": "int64", "shape": (), "n": entities})
    double = normalization is not None and normalization.enabled
    dtypes = [storage_dtype(leaf.dtype) for leaf in kept_leaves(space, double=double)]
    module = ExportedNetwork(network, outputs, dtypes, normalization, decoding["kind"]).eval()
    leaves = iter(flatten(space, no_op(space)))  # zeros need not be allowed
    rows = [next(leaves) if "path" in one else np.zeros(one["shape"], one["dtype"]) for one in inputs]
    with torch.no_grad():
        found = module(
            *(torch.from_numpy(np.array(row, one["dtype"])[None]) for row, one in zip(rows, inputs, strict=True))
        )
    described = [
        {"name": name, "dtype": str(output.dtype).removeprefix("torch."), "shape": tuple(output.shape[1:])}
        for name, output in zip(names, found, strict=True)
    ]
    return Exported(module, inputs, described, decoding)


class ExportedNetwork(nn.Module):
    """The module, with a copy of the network on the CPU; see `exported` for its arguments.

    `dtypes`: in which the network takes the leaves; `kind`: of the decoding.
    """

    def __init__(
        self,
        network: nn.Module,
        outputs: Outputs,
        dtypes: Sequence[torch.dtype],
        normalization: ObservationNormalizer | None,
        kind: str,
    ) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().requires_grad_(False)
        self._outputs, self._dtypes, self._kind = outputs, dtypes, kind
        self._normalization = copy.deepcopy(normalization)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The outputs [N, ...] of inputs [N, ...]."""
        count = len(self._dtypes)
        leaves = [leaf.to(dtype) for leaf, dtype in zip(inputs[:count], self._dtypes, strict=True)]
        if self._normalization is not None:
            leaves = self._normalization(leaves)
        found = self._outputs(self.network, [*leaves, *inputs[count:]])
        first, *others = (found,) if isinstance(found, Tensor) else found
        if self._kind == "squashed_gaussian":
            policy = SquashedGaussian(first)
            return policy.mean, policy.log_std, *others
        return first.tanh() if self._kind == "deterministic" else first, *others


def decoding_of(
    space: Space[Any], *, choice: str = "categorical", box: str = "gaussian", **more: Any
) -> dict[str, Any]:
    """How the actions of a space follow from the outputs, in JSON's types.

    `choice` is the kind where the space is Discrete, `box` where it is a Box; `more`: `log_std` or `epsilon`.
    """
    common = {"shape": list(space.shape or ()), "dtype": str(space.dtype), **more}
    if isinstance(space, spaces.Discrete):
        return {"kind": choice, "n": int(space.n), "start": int(space.start), **common}
    if isinstance(space, spaces.MultiDiscrete):
        sizes, starts = space.nvec.ravel().tolist(), space.start.ravel().tolist()
        return {"kind": "multi_categorical", "nvec": sizes, "start": starts, **common}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "bernoulli", **common}
    if isinstance(space, spaces.Box):
        return {"kind": box, "low": numbers(space.low.ravel()), "high": numbers(space.high.ravel()), **common}
    if isinstance(space, UnitActions):
        raise ConfigError(
            "a policy of units cannot be exported: the inputs of a model file have fixed shapes; load it with "
            "arena.serving.load_policy"
        )
    raise ConfigError(f"actions of the space {space} cannot be described in a model file")


def numbers(values: Iterable[Any]) -> list[float | str]:
    """Numbers as JSON has them; one that is not finite is a word, `inf` or `-inf`."""
    return [number if math.isfinite(number := float(value)) else str(number) for value in values]


def eager(exported: Exported) -> Engine:
    """The module as it is: the reference."""
    torch.set_num_threads(1)

    @torch.inference_mode()
    def run(arrays: Sequence[Array]) -> list[Array]:
        return [output.numpy() for output in exported.module(*map(torch.from_numpy, arrays))]

    return run


def onnx_bytes(exported: Exported) -> bytes:
    """The module as an ONNX file whose batch axis is free; inputs and outputs have the names that `exported` says.

    It is traced while autograd records: otherwise a perceptron writes into storage that all batches share.
    """
    # Two rows: torch would make a constant of 1.
    rows = tuple(torch.from_numpy(np.zeros((2, *one["shape"]), one["dtype"])) for one in exported.inputs)
    axes: tuple[Any, ...] = tuple({0: torch.export.Dim("batch")} for _ in rows)
    if any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(exported.module.forward).parameters.values()):
        axes = (axes,)  # a module of another algorithm may name its inputs
    logger = logging.getLogger("torch.onnx")  # reports missing packages and deprecated names of torch itself
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traced = torch.export.export(exported.module, rows, dynamic_shapes=axes)
            program = torch.onnx.export(
                traced,
                dynamo=True,
                dynamic_shapes=axes,
                input_names=[one["name"] for one in exported.inputs],
                output_names=[one["name"] for one in exported.outputs],
                verbose=False,
            )
    finally:
        logger.setLevel(before)
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()  # with the weights inside
    return content
