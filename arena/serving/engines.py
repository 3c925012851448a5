"""The engines among which `arena export` chooses: functions from arrays of all inputs to arrays of all outputs.

    eager      the module itself, by torch: the reference
    onnx       an ONNX file by ONNX Runtime
    onnx-int8  the same with weights and activations of 8 bits: static quantization, calibrated on some of the rows
    compile    `torch.compile`

All run on one thread of the CPU. The torch ones are in `policies.exporting`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arena import registry
from arena.records.formats import ModelFile
from arena.serving.onnx_model import METADATA, differences, metadata_text, onnx_packages, session_of

Array = NDArray[Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]

EAGER, ONNX, INT8, COMPILE = "eager", "onnx", "onnx-int8", "compile"
CANDIDATES = (ONNX, INT8, COMPILE)

_CALIBRATED = 256  # rows


class Engine(NamedTuple):
    """A way to run a model."""

    run: Run
    content: bytes | None = None  # of its file


def eager(exported: Any) -> Engine:
    """The reference."""
    return Engine(registry.load_object("policies.exporting.engines:eager")(exported))


def compiled(exported: Any, rows: Sequence[Array]) -> Engine:
    """The engine of `torch.compile`, which needs rows of all inputs."""
    return Engine(registry.load_object("policies.exporting.engines:compiled")(exported, rows))


def onnx_engine(exported: Any, file: ModelFile) -> Engine:
    """The engine of ONNX Runtime.

    Args:
        exported: what the algorithm returned.
        file: goes into the metadata; names the engine.

    Raises:
        ValueError: the file has other inputs or outputs than it should.
        Exception: whatever torch, onnx and the runtime find wrong with the model.
    """
    content = registry.load_object("policies.exporting.engines:onnx_bytes")(exported)
    return _engine_of(content, file)


def int8_engine(content: bytes, file: ModelFile, rows: Sequence[Array]) -> Engine:
    """The engine of ONNX Runtime in 8 bits.

    Args:
        content: the ONNX file in float32.
        file: goes into the metadata; names the engine.
        rows: [N, ...] of all inputs, of which some calibrate the activations.

    Raises:
        ValueError: the file has other inputs or outputs than it should.
        Exception: whatever onnx and the runtime find wrong with the model.
    """
    onnx, _ = onnx_packages()
    from onnxruntime import quantization

    model = onnx.load_model_from_string(content)
    del model.graph.value_info[:]  # ONNX Runtime's own inference of shapes fails on the names that torch gives
    chosen = np.linspace(0, len(rows[0]) - 1, min(_CALIBRATED, len(rows[0]))).astype(int)
    names = [tensor.name for tensor in file.inputs]
    feeds = iter([dict(zip(names, (array[[row]] for array in rows), strict=True)) for row in chosen])

    class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Mapping[str, Array] | None:
            return next(feeds, None)

    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)  # it advises to preprocess the model, on the root's logger
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            quantization.quantize_static(
                model,
                path,
                _Reader(),
                quant_format=quantization.QuantFormat.QDQ,
                calibrate_method=quantization.CalibrationMethod.MinMax,
                per_channel=True,
                # Products of signed weights saturate on processors without VNNI: differences of 26 to 43 % of the
                # outputs instead of 2 %.
                weight_type=quantization.QuantType.QUInt8,
                activation_type=quantization.QuantType.QUInt8,
            )
            return _engine_of(path.read_bytes(), file)
    finally:
        logger.setLevel(before)


def _engine_of(content: bytes, file: ModelFile) -> Engine:
    """An engine of an ONNX file, into whose metadata its description is written."""
    onnx, _ = onnx_packages()
    model = onnx.load_model_from_string(content)
    onnx.checker.check_model(model)
    onnx.helper.set_model_props(model, {METADATA: metadata_text(file)})
    content = model.SerializeToString(deterministic=True)
    session = session_of(content, "the exported file")
    if problems := differences(session, file):
        raise ValueError(problems[0])
    return Engine(runner(session, file), content)


def runner(session: Any, file: ModelFile) -> Run:
    """A session as a function of the arrays of all inputs, in the order of the description, to all outputs."""
    inputs, outputs = [tensor.name for tensor in file.inputs], [node.name for node in session.get_outputs()]
    return lambda arrays: session.run(outputs, dict(zip(inputs, arrays, strict=True)))
