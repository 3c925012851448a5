"""The engines between which `arena export` chooses: functions from arrays of all inputs to arrays of all outputs.

    eager  the module itself, by torch: the reference
    onnx   an ONNX file by ONNX Runtime

Both run on one thread of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from arena import registry
from arena.records.formats import ModelFile
from arena.serving.onnx_model import METADATA, differences, metadata_text, onnx_packages, session_of

Array = NDArray[Any]
Run = Callable[[Sequence[Array]], Sequence[Array]]

EAGER, ONNX = "eager", "onnx"


class Engine(NamedTuple):
    """A way to run a model."""

    run: Run
    content: bytes | None = None  # of its file


def eager(exported: Any) -> Engine:
    """The reference."""
    return Engine(registry.load_object("policies.exporting.engines:eager")(exported))


def onnx_engine(exported: Any, file: ModelFile) -> Engine:
    """The engine of ONNX Runtime.

    Raises:
        ValueError: the file has other inputs or outputs than it should.
        Exception: whatever torch, onnx and the runtime find wrong with the model.
    """
    onnx, _ = onnx_packages()
    content = registry.load_object("policies.exporting.engines:onnx_bytes")(exported)
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
