"""What the root needs of a display."""

from __future__ import annotations

from typing import Protocol

from arena.records.scoreboard import Scoreboard


class Display(Protocol):
    """What the root knows of a display."""

    def start(self) -> None:
        """Begins to show; the time until the end is counted from here."""

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None:
        """Takes the state of the run: ticks played by all matches together, and how the policies fare."""

    def message(self, text: str) -> None:
        """Shows a line that stays."""

    def stop(self) -> None:
        """Shows the last state and gives the stream back; a second call does nothing."""
