"""Lines from the player and to the player: on a terminal with colors, through a pipe as plain text."""

from __future__ import annotations

import os
import select
import sys

from arena.terminal.output import say

_SECONDS = 0.2  # between two looks whether the process is ending

BOLD, DIM, YELLOW = "1", "2", "33"  # ECMA-48, select graphic rendition


class Console:
    """The player's terminal, or two pipes.

    Input is read from the descriptor: a thread that waits in `sys.stdin` keeps its lock, and Python cannot end then.

    Args:
        source: the descriptor that is read.
    """

    def __init__(self, source: int = 0) -> None:
        self._source = source
        self._terminal = sys.stdout.isatty()
        self._echo = not os.isatty(source)  # then the answers are seen nowhere else

    def say(self, text: str, style: str = "") -> None:
        """Writes a line; `style`, and styles in the text, count on a terminal alone."""
        say(self.styled(text, style), styles=True)

    def styled(self, text: str, style: str) -> str:
        """The text with a style, on a terminal."""
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._terminal else text

    def ask(self) -> str | None:
        """One line from the player, without the blanks around it; None at the end of the input."""
        if not self._echo:
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = self._line()
        if self._echo and line is not None:
            self.say(f"> {line}")
        return line

    def _line(self) -> str | None:
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self._source], [], [], _SECONDS)[0]:
                continue
            byte = os.read(self._source, 1)  # no more than this line: the rest may be for another seat
            if not byte:
                break
            line += byte
        return line.decode(errors="replace").strip() if line else None
