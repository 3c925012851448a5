"""Small phrases that messages, tables and summaries share."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 match`, `2 matches`; without `many` the plural has an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"
