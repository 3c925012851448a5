"""The display of a run, as the root uses it."""

from __future__ import annotations

from typing import Protocol

from arena.records.scoreboard import Scoreboard


class Display(Protocol):
    """Shows the progress of a run."""

    def start(self) -> None:
        """Begins to show; elapsed time is counted from here."""

    def update(self, ticks_done: int, scoreboard: Scoreboard) -> None:
        """Takes the state of the run: ticks played by all matches together, and the results of the policies."""

    def message(self, text: str) -> None:
        """Shows a line that stays."""

    def stop(self) -> None:
        """Shows the last state and releases the stream; a second call does nothing."""
