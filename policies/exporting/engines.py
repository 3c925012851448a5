"""Engines: ways to run an exported module on arrays, on one thread of the CPU.

An engine is a function from arrays [N, ...] of all inputs to arrays of all outputs.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from policies.exporting.network import Exported

Array = NDArray[Any]
Engine = Callable[[Sequence[Array]], list[Array]]

_TRACED_ROWS = 2  # torch would make a constant of 1


def eager(exported: Exported) -> Engine:
    """The module as it is: the reference."""
    return _on_arrays(exported.module)


def compiled(exported: Exported, arrays: Sequence[Array]) -> Engine:
    """The module by `torch.compile`, for batches of any size; it is compiled by calls with these inputs."""
    with _quiet():
        run = _on_arrays(torch.compile(exported.module, dynamic=True))
        for size in (_TRACED_ROWS, 1):  # a batch of 1 is compiled by itself
            run([array[:size] for array in arrays])
    return run


def _on_arrays(module: Callable[..., Any]) -> Engine:
    torch.set_num_threads(1)

    @torch.inference_mode()
    def run(arrays: Sequence[Array]) -> list[Array]:
        return [output.numpy() for output in module(*map(torch.from_numpy, arrays))]

    return run


def onnx_bytes(exported: Exported) -> bytes:
    """The module as an ONNX file whose batch axis is free; inputs and outputs have the names that `exported` says.

    It is traced while autograd records: otherwise `policies.networks.mlp` writes into storage that all batches share.

    Raises:
        Exception: whatever torch finds wrong with the module.
    """
    rows = tuple(
        torch.from_numpy(np.zeros((_TRACED_ROWS, *given["shape"]), given["dtype"])) for given in exported.inputs
    )
    axes = (tuple({0: torch.export.Dim("batch")} for _ in rows),)
    with torch.enable_grad(), _quiet():
        traced = torch.export.export(exported.module, rows, dynamic_shapes=axes)
        program = torch.onnx.export(
            traced,
            dynamo=True,
            dynamic_shapes=axes,
            input_names=[given["name"] for given in exported.inputs],
            output_names=[given["name"] for given in exported.outputs],
            verbose=False,
        )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()  # with the weights inside
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences torch's messages about itself: missing packages, deprecated names."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
