"""Engines: ways to run an exported module on arrays, on one thread of the CPU.

An engine is a function from arrays [N, ...] of all inputs to arrays of all outputs.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
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
    torch.set_num_threads(1)

    @torch.inference_mode()
    def run(arrays: Sequence[Array]) -> list[Array]:
        return [output.numpy() for output in exported.module(*map(torch.from_numpy, arrays))]

    return run


def onnx_bytes(exported: Exported) -> bytes:
    """The module as an ONNX file whose batch axis is free; inputs and outputs have the names that `exported` says.

    It is traced while autograd records: otherwise a perceptron writes into storage that all batches share.

    Raises:
        Exception: whatever torch finds wrong with the module.
    """
    rows = tuple(
        torch.from_numpy(np.zeros((_TRACED_ROWS, *given["shape"]), given["dtype"])) for given in exported.inputs
    )
    axes = (tuple({0: torch.export.Dim("batch")} for _ in rows),)
    logger = logging.getLogger("torch.onnx")  # torch tells of missing packages and deprecated names of its own
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
                input_names=[given["name"] for given in exported.inputs],
                output_names=[given["name"] for given in exported.outputs],
                verbose=False,
            )
    finally:
        logger.setLevel(before)
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()  # with the weights inside
    return content
