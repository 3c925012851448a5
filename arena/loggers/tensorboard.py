"""The logger `tensorboard`: the finite numbers of each result in `tensorboard/_results/`, at the step `ticks`.

The recorder writes the curves of the policies beside it, if this logger is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arena.callbacks import StartedRun
from arena.records.atomic import make_folder
from arena.records.folder import RunFolder
from arena.records.result_file import numbers, read_results
from arena.records.tensorboard import ScalarFile


class TensorBoard:
    """Writes a point per result and number; no file is open between two results."""

    def __init__(self) -> None:
        self._file: ScalarFile | None = None

    def on_start(self, run: StartedRun) -> None:
        """Notes where the points go; TensorBoard forgets those that a resumed run plays again."""
        self._folder = RunFolder(run.folder)
        results = read_results(run.folder) if run.resumed else []
        self._first_step = (results[-1]["ticks"] + 1 if results else 0) if run.resumed else None

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Appends the points."""
        if self._file is None:
            make_folder(self._folder.tensorboard)
            self._file = ScalarFile(self._folder.tensorboard / "_results", first_step=self._first_step)
        else:
            self._file.reopen()
        self._file.add(result["ticks"], numbers(result))
        self._file.close()
