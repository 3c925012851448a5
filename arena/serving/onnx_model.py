"""Exported networks that ONNX Runtime runs: `model.onnx` beside its `model.json`.

    model = load_model("runs/duel/models/blue/4000")
    actions, memory = model.act(observations, None, np.zeros((1, model.memory_size), np.float32), None)

onnx and onnxruntime are imported when they are needed; torch never is.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from arena.diagnostics.start_folder import anchored, check_path
from arena.errors import ConfigError
from arena.game.arrays import described, lost_value
from arena.records.formats import ModelFile, read_document
from arena.serving.decoding import Decoder, Random

Array = NDArray[Any]

MODEL, DESCRIPTION, REPORT = "model.onnx", "model.json", "report.json"
"""The files of an exported model."""
METADATA = "arena"
"""The key of the metadata in `model.onnx`."""
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_DTYPES = ("float16", "float32", "float64", "bool", *_INTEGERS)
_NUMPY = {"tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16", "tensor(bool)": "bool"}


class OnnxModel:
    """A policy as an ONNX Runtime session and its description.

    Attributes:
        file: the description.
        memory_size: numbers that a row remembers; 0: none.
    """

    def __init__(self, file: ModelFile, session: Any) -> None:
        self.file, self.memory_size = file, file.memory.size
        self._session, self._decoder = session, Decoder(file.decoding)
        self._names = [output.name for output in file.outputs]

    def __repr__(self) -> str:
        return f"<model of {self.file.policy!r}, {self.file.algorithm}, ticks={self.file.tick}>"

    def act(
        self,
        observations: Any,
        masks: Array | None,
        memory: NDArray[np.float32],
        random: Random | None,
        entities: NDArray[np.int64] | None = None,
    ) -> tuple[Array, NDArray[np.float32]]:
        """Actions [K, ...] and the rows' memory after them [K, memory_size]; a pure function of its arguments.

        Args:
            observations: a batched sample [K, ...] of the observation space.
            masks: [K, n] which choices are allowed; None: all.
            memory: [K, memory_size]; zeros at the beginning of an episode.
            random: a generator per row, from which actions are sampled; None: the best actions.
            entities: [K] the places of the rows' entities in their team, where the model has the input `entity`.

        Raises:
            ValueError: an input is missing, or has another shape, or numbers that its dtype does not hold.
        """
        if entities is None and any(part.n is not None for part in self.file.inputs):
            raise ValueError("the model has the input 'entity': give the place of each row's entity in its team")
        more: dict[str, Any] = {"memory": memory, "entity": entities}
        feed: dict[str, Array] = {}
        for part in self.file.inputs:
            leaf, place = (more[part.name], part.name) if part.path is None else (observations, "observations")
            for key in part.path or ():
                try:
                    leaf, place = leaf[key], f"{place}[{key!r}]"
                except (KeyError, IndexError, TypeError) as error:
                    raise ValueError(f"{place} is {described(leaf)} without {key!r}") from error
            found, rows = np.asarray(leaf), len(next(iter(feed.values()))) if feed else "K"
            if found.shape[1:] != tuple(part.shape) or found.ndim == 0 or (feed and len(found) != rows):
                expected = f"[{', '.join(map(str, (rows, *part.shape)))}], a row for each entity that acts"
                raise ValueError(f"{place} has the shape {[*found.shape]}; expected {expected}")
            if (lost := lost_value(found, np.dtype(part.dtype))) is not None:
                raise ValueError(f"{place} has the value {lost}, which {part.dtype} does not hold")
            feed[part.name] = found.astype(part.dtype, copy=False)
        outputs = self._session.run(self._names, feed)
        return self._decoder(outputs, masks, random), outputs[-1] if self.memory_size else memory


def load_model(folder: Path | str) -> OnnxModel:
    """The model of a folder that `arena export` has written.

    Raises:
        ConfigError: a file is missing, damaged, or does not belong to the others.
    """
    check_path(folder, "the path of a folder that `arena export` has written")
    folder = anchored(folder)
    if not (folder / DESCRIPTION).is_file():
        text = f"not the folder of a model: {DESCRIPTION} is missing; `arena export RUN:POLICY` writes one"
        raise ConfigError(text, source=str(folder))
    file = read_description(folder)
    if file.onnx_sha256 is None:
        raise ConfigError(f"there is no {MODEL}: the engine {file.engine!r} was chosen", source=str(folder))
    content = read_onnx(folder)
    if sha256(content) != file.onnx_sha256:
        raise ConfigError(f"is damaged: its sha256 is not that of {DESCRIPTION}", source=str(folder / MODEL))
    session = session_of(content, str(folder / MODEL))
    if problems := differences(session, file):
        raise ConfigError(problems[0], source=str(folder / MODEL))
    return OnnxModel(file, session)


def read_description(folder: Path) -> ModelFile:
    """The description of a folder's model; a `ConfigError` if it is missing or damaged, or contradicts itself."""
    try:
        return checked(read_document(folder / DESCRIPTION, ModelFile))
    except ValueError as error:
        raise ConfigError(f"is damaged: {error}", source=str(folder / DESCRIPTION)) from error


def describe(exported: Any, *, policy: str, algorithm: str, tick: int, run: str, engine: str) -> ModelFile:
    """The description of what `exported()` of an algorithm has returned, without the two sha256.

    Raises:
        ValueError: what the algorithm describes is not of this form, or contradicts itself.
    """
    memory = next((output["shape"][0] for output in exported.outputs if output["name"] == "next_memory"), 0)
    written = {
        **{"policy": policy, "algorithm": algorithm, "tick": tick, "engine": engine, "run": run},
        **{"inputs": list(exported.inputs), "outputs": list(exported.outputs), "memory": {"size": memory}},
        "decoding": exported.decoding,
    }
    return checked(msgspec.convert(written, ModelFile))


def checked(file: ModelFile) -> ModelFile:
    """A description whose parts fit each other; else a `ValueError`."""
    for tensor in (*file.inputs, *file.outputs):
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"{tensor.name!r} has the unknown dtype {tensor.dtype!r}")
    shapes, expected = [output.shape for output in file.outputs], list(Decoder(file.decoding).outputs)
    if file.memory.size:
        expected.append((file.memory.size,))
    if shapes != expected:
        raise ValueError(f"the outputs have the shapes {shapes}, the decoding reads {expected}")
    return file


def read_onnx(folder: Path) -> bytes:
    """The bytes of a folder's `model.onnx`; a `ConfigError` if it cannot be read."""
    try:
        return (folder / MODEL).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(folder / MODEL)) from error


def sha256(content: bytes) -> str:
    """The SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def session_of(content: bytes, source: str) -> Any:
    """A session of ONNX Runtime for the bytes of an ONNX file, on one thread of the CPU.

    Raises:
        ConfigError: they are no ONNX file, refer to other files, or use what the runtime does not have.
    """
    onnx, onnxruntime = onnx_packages()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    try:
        model = onnx.load_model_from_string(content)
        if any(onnx.external_data_helper.uses_external_data(tensor) for tensor in model.graph.initializer):
            raise ValueError("its weights lie in other files")
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # protobuf and the runtime have no common class of errors
        raise ConfigError(f"is damaged, or no ONNX file: {first_line(error)}", source=source) from error


def differences(session: Any, file: ModelFile) -> list[str]:
    """In which ways a session is not that of a description; empty if it is."""
    found = []
    written = session.get_modelmeta().custom_metadata_map.get(METADATA)
    if written is None:
        found.append(f"has no metadata {METADATA!r}: `arena export` has not written it")
    elif written != metadata_text(file):
        found.append(f"its metadata {METADATA!r} differs from {DESCRIPTION}")
    for kind, nodes, expected in (
        ("input", session.get_inputs(), file.inputs),
        ("output", session.get_outputs(), file.outputs),
    ):
        tensors = [(node.name, _NUMPY.get(node.type, node.type[7:-1]), [*node.shape[1:]]) for node in nodes]
        described = [(tensor.name, tensor.dtype, [*tensor.shape]) for tensor in expected]
        if tensors != described:
            shown = [
                ", ".join(f"{name!r} ({dtype} {shape})" for name, dtype, shape in one) for one in (tensors, described)
            ]
            found.append(f"its {kind}s are {shown[0]}; expected {shown[1]}")
    return found


def metadata_text(file: ModelFile) -> str:
    """What `model.onnx` holds about itself."""
    return json.dumps(msgspec.to_builtins(file.metadata))


def onnx_packages(*, export: bool = False) -> tuple[Any, Any]:
    """The modules onnx and onnxruntime; a `ConfigError` if the extra is not installed."""
    try:
        import onnx
        import onnxruntime

        if export:
            import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"ONNX files need {error.name}; the extra 'onnx' brings it: pip install \"mpi-policy-arena[onnx]\""
        ) from error
    return onnx, onnxruntime


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
