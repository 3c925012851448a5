"""The error of all conformance checks."""

from __future__ import annotations

from typing import Any

from arena.errors import ArenaError


class ContractBroken(ArenaError, AssertionError):
    """A game, or a connection to external games, breaks its contract; the message names what, where, and the rule."""


def must(holds: Any, found: str, expected: str) -> None:
    """Raises `ContractBroken` unless a rule holds."""
    if not holds:
        raise ContractBroken(f"{found}; {expected}")
