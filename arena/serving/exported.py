"""Models for ONNX Runtime, as `arena export` writes them: exported in another process if they are not there yet."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arena.errors import ConfigError
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.serving.models import Model, Random
from arena.serving.onnx_model import DESCRIPTION, OnnxModel, load_model, sha256


class ExportFailed(Exception):
    """A policy cannot be exported, or its model differs from the checkpoint; the message says why."""


class ExportedModel:
    """A model that ONNX Runtime computes; see `arena.serving.models.Model`."""

    engine = "onnx"

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self.version, self.memory_size = model.file.tick, model.memory_size

    def begin(self, row: int) -> None:
        """Nothing: the server keeps the memory."""

    def act(
        self,
        rows: NDArray[np.intp],
        observations: Any,
        masks: NDArray[np.int8] | None,
        memory: NDArray[np.float32],
        random: Random,
    ) -> tuple[Any, NDArray[np.float32]]:
        """See `Model`."""
        return self._model.act(observations, masks, memory, random)


def exported_model(folder: RunFolder, policy: str, tick: int) -> ExportedModel:
    """The model of a checkpoint, which is exported and verified in another process unless that was done before.

    Raises:
        ExportFailed: it cannot be exported, differs from the checkpoint, or is not faster than torch.
        ConfigError: its files are damaged, or of another checkpoint.
    """
    home = folder.models / policy / str(tick)
    if not (home / DESCRIPTION).is_file():
        command = [sys.executable, "-m", "arena", "export", str(folder.path), "--policy", policy]
        done = subprocess.run([*command, "--checkpoint", str(tick)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ExportFailed(_last_line(done.stderr) or _last_line(done.stdout))
    model = load_model(home)
    weights = sha256(checkpoint.path_of(folder.checkpoints_path(policy), tick).read_bytes())
    if model.file.weights_sha256 != weights:
        raise ConfigError("is of another checkpoint: its weights_sha256 differs", source=str(home / DESCRIPTION))
    return ExportedModel(model)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


class Upgrade:
    """Replaces the models of a policy by exported ones, beside the server, in a thread.

    Args:
        folder: of the run.
        policy: its name.
        swap: takes the new model.
        say: takes a line for the user.
    """

    def __init__(
        self, folder: RunFolder, policy: str, swap: Callable[[Model], None], say: Callable[[str], None]
    ) -> None:
        self._folder, self._policy, self._swap, self._say = folder, policy, swap, say

    def begin(self, tick: int) -> None:
        """Exports the checkpoint of this tick; a model that cannot be had leaves torch, with a line."""
        threading.Thread(target=self._run, args=(tick,), name=f"export of {self._policy}", daemon=True).start()

    def _run(self, tick: int) -> None:
        try:
            model = exported_model(self._folder, self._policy, tick)
        except (ExportFailed, ConfigError) as error:
            self._say(f"{self._policy} at tick {tick} stays with torch: {error}")
        else:
            self._swap(model)


def can_export(algorithm: Any) -> bool:
    """Whether an algorithm can be exported, with the packages that are installed."""
    from importlib.util import find_spec

    installed = all(find_spec(package) is not None for package in ("onnx", "onnxruntime", "onnxscript"))
    return installed and getattr(algorithm, "exported", None) is not None


def folder_of(folder: RunFolder, policy: str, tick: int) -> Path:
    """Where the model of a checkpoint lies."""
    return folder.models / policy / str(tick)
