"""Checks of a game's options: the value, or a `ConfigError` that says what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arena.errors import ConfigError, nearest


def count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """Checks for a whole number between `least` and `most`; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"got {value!r}, expected a whole number of at least {least}", path=name)
    if most is not None and value > most:
        raise ConfigError(f"got {value}, expected at most {most}", path=name)
    return value


def number(name: str, value: Any, *, least: float) -> float:
    """Checks for a finite number of at least `least`; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < float("inf"):
        raise ConfigError(f"got {value!r}, expected a number of at least {least:g}", path=name)
    return float(value)


def switch(name: str, value: Any) -> bool:
    """Checks for a bool."""
    if not isinstance(value, bool):
        raise ConfigError(f"got {value!r}, expected true or false", path=name)
    return value


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Checks for one of the allowed words."""
    if value not in allowed:
        raise ConfigError(f"got {value!r}; {nearest(str(value), allowed)}", path=name)
    return str(value)
