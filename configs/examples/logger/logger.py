"""A logger: it is told each result, as read from `result.json`, and each evaluation."""

from __future__ import annotations

import sqlite3


class Database:
    """Results as rows of a SQLite file in the run folder: tick, name, number.

    Args:
        file: its name.
    """

    def __init__(self, file="results.db"):
        self.file = file

    def on_start(self, run):
        """The run begins, or goes on; what comes after the boundary from which it does is told again."""
        self.rows = sqlite3.connect(run.folder / self.file, check_same_thread=False)
        self.rows.execute("create table if not exists results (tick integer, name text, value real)")

    def on_result(self, result):
        """A result is on record; NaN stands for no value."""
        self.rows.execute("delete from results where tick >= ?", (result["ticks"],))
        self.rows.executemany("insert into results values (?, ?, ?)", numbers(result["ticks"], result))
        self.rows.commit()

    def on_end(self):
        """The run has ended."""
        self.rows.close()


def numbers(tick, result, path=""):
    """All numbers of a result, those inside mappings by their path."""
    for name, value in result.items():
        if isinstance(value, dict):
            yield from numbers(tick, value, f"{path}{name}/")
        elif isinstance(value, (int, float)):
            yield tick, f"{path}{name}", float(value)
