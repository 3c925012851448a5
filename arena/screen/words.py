"""Small phrases that messages, tables and summaries share."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 match`, `2 matches`; without `many` the plural has an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def processes_words(processes: int, roles: int) -> str:
    """`6 processes`, or where they host several roles each, `151 roles on 3 processes`."""
    words = counted(processes, "process", "processes")
    return words if processes >= roles else f"{roles} roles on {words}"
