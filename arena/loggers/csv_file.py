"""The logger `csv`: `progress.csv`, the results as a table (RFC 4180) with one header."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from arena.callbacks import StartedRun
from arena.records.atomic import private, replacing, writing
from arena.records.folder import RunFolder
from arena.records.result_file import flat, read_results


class Csv:
    """Writes a row per result; a value that is not finite is an empty field.

    Columns are in the order in which results have shown them. A result with a new key gets a column at the end, for
    which the whole file is written again.
    """

    def __init__(self) -> None:
        self._columns: dict[str, None] = {}  # in their order

    def on_start(self, run: StartedRun) -> None:
        """Writes the rows of the results that are on record: those of an earlier part of the run."""
        folder = RunFolder(run.folder)
        self._path = folder.progress
        results = read_results(folder.path)
        self._columns = {name: None for result in results for name, _ in flat(result)}
        if results:
            self._write([self._row(dict(flat(result))) for result in results])
        else:
            self._path.unlink(missing_ok=True)

    def on_result(self, result: Mapping[str, Any]) -> None:
        """Appends a row."""
        values = dict(flat(result))
        new = [name for name in values if name not in self._columns]
        if new:
            before: list[list[str]] = []
            if self._columns:
                with open(self._path, newline="", opener=private) as file:
                    before = list(csv.reader(file))[1:]
            self._columns.update(dict.fromkeys(new))
            self._write([*(row + [""] * len(new) for row in before), self._row(values)])
            return
        with writing(self._path), open(self._path, "a", newline="", opener=private) as file:
            csv.writer(file).writerow(self._row(values))

    def _row(self, values: Mapping[str, Any]) -> list[str]:
        found = (values.get(name) for name in self._columns)
        return ["" if one is None or (isinstance(one, float) and not math.isfinite(one)) else str(one) for one in found]

    def _write(self, rows: Iterable[Sequence[str]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([list(self._columns), *rows])
        with replacing(self._path) as file:
            file.write(text.getvalue().encode())
