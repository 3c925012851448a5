"""Newer models for a server: for ONNX Runtime, exported in another process, and of newer checkpoints of a run."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.records import checkpoint
from arena.records.folder import RunFolder
from arena.serving.models import Masks, Memory, Model, Numbers, Random
from arena.serving.onnx_model import DESCRIPTION, OnnxModel, load_model, sha256

_LOOK_S = 1.0


class ExportFailed(Exception):
    """An exported model differs from its checkpoint; the message says where."""


class ExportedModel(Model):
    """A model that ONNX Runtime computes.

    Args:
        entities: of the policy in each game; a row is one of them.
    """

    engine = "onnx"

    def __init__(self, model: OnnxModel, entities: int) -> None:
        self._model, self._entities = model, entities
        self.version, self.memory_size = model.file.tick, model.memory_size

    def act(self, rows: Numbers, observations: Any, masks: Masks, memory: Memory, random: Random) -> tuple[Any, Memory]:
        """See `Model`."""
        places = (rows % self._entities).astype(np.int64)
        return self._model.act(observations, masks, memory, random, places)


class Exporter:
    """The exported models of a run."""

    def __init__(self, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._processes: set[subprocess.Popen[str]] = set()
        self._exporting: set[str] = set()  # policies, in threads
        self._closed = False

    def model(self, policy: str, tick: int, entities: int) -> ExportedModel:
        """The model of a checkpoint, which is exported and verified in another process unless that was done before.

        Raises:
            ExportFailed: it differs from the checkpoint.
            ConfigError: it cannot be exported, torch was chosen as it is faster, or its files are damaged or of another
                checkpoint.
        """
        place = self._folder.models / policy / str(tick)
        if not (place / DESCRIPTION).is_file():
            process = subprocess.Popen(
                [sys.executable, "-m", "arena", "export", f"{self._folder.path}:{policy}@{tick}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=anchored("."),
            )
            self._processes.add(process)
            if self._closed:
                process.terminate()
            output, errors = process.communicate()
            self._processes.discard(process)
            if process.returncode:
                last = (errors.strip() or output.strip() or "it was ended").splitlines()[-1]
                reason = last.removeprefix("arena: error: ").removeprefix("arena: failed: ")
                raise ConfigError(reason) if process.returncode == 2 else ExportFailed(reason)
        model = load_model(place)
        weights = sha256(checkpoint.path_of(self._folder.checkpoints_path(policy), tick).read_bytes())
        if model.file.weights_sha256 != weights:
            raise ConfigError("is of another checkpoint: its weights_sha256 differs", source=str(place / DESCRIPTION))
        return ExportedModel(model, entities)

    def begin(self, policy: str, tick: int, entities: int, swap: Callable[[Model], None]) -> None:
        """Makes the model in a thread, and calls `swap` with it; if that fails, torch stays, with a line."""

        if policy in self._exporting:  # a checkpoint that comes during an export is not exported
            return
        self._exporting.add(policy)

        def run() -> None:
            try:
                model = self.model(policy, tick, entities)
            except (ExportFailed, ConfigError, OSError) as error:
                gone = isinstance(error, FileNotFoundError)  # the run keeps its newest checkpoints
                why = "its checkpoint is not there any more" if gone else error
                if not self._closed:
                    self._say(f"{policy} at tick {tick} stays with torch: {why}")
            else:
                swap(model)
            finally:
                self._exporting.discard(policy)

        threading.Thread(target=run, name=f"export of {policy}", daemon=True).start()

    def close(self) -> None:
        """Ends the processes that export."""
        self._closed = True
        for process in list(self._processes):
            process.terminate()
            process.wait()


class Follower:
    """Looks at the checkpoints of one policy every second, in a thread."""

    def __init__(
        self,
        folder: Path,
        load: Callable[[int], Model],
        swap: Callable[[Model], None],
        say: Callable[[str], None],
        newest: int,
    ) -> None:
        self._folder, self._load, self._swap, self._say, self._newest = folder, load, swap, say, newest
        self._damaged: set[int] = set()
        self._ends = threading.Event()

        def follow() -> None:
            while not self._ends.wait(_LOOK_S):
                self.look()

        self._thread = threading.Thread(target=follow, name=f"checkpoints of {folder.name}", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, if it has begun."""
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> None:
        """Takes the newest checkpoint, if it is newer and whole."""
        ticks = [checkpoint.ticks_of(path) for path in checkpoint.list_checkpoints(self._folder)]
        for tick in sorted(ticks, reverse=True):
            if tick <= self._newest:
                return
            if tick in self._damaged:
                continue
            try:
                model = self._load(tick)
            except (ConfigError, ExportFailed, OSError) as error:  # OSError: removed as there are newer ones
                self._damaged.add(tick)
                self._say(f"the checkpoint of tick {tick} is passed over: {error}")
                continue
            self._newest = tick
            self._swap(model)
            return
