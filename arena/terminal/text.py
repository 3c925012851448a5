"""Small phrases that messages, tables and summaries share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arena.errors import pluralize

if TYPE_CHECKING:
    pass


def elo_words(value: float) -> str:
    """`+23`, `-7`; a value that is rounded to 0 is `+0`."""
    return f"{round(value):+d}"


def processes_words(processes: int, roles: int) -> str:
    """`6 processes`, or where they host several roles each, `151 roles on 3 processes`."""
    words = pluralize(processes, "process", "processes")
    return words if processes >= roles else f"{roles} roles on {words}"
