"""The result of a check."""

from __future__ import annotations

import sys
from enum import Enum
from typing import NamedTuple


class Level(str, Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """What was checked, what was found, and the remedy."""

    level: Level
    subject: str
    found: str
    remedy: str = ""

    @property
    def line(self) -> str:
        """As the console shows it."""
        text = ": ".join((self.subject, " ".join(self.found.split())))
        return f"{self.level.value:<8} {text}" + (f"; {self.remedy}" if self.remedy else "")


def ok(subject: str, found: str) -> Finding:
    """It is as it should be."""
    return Finding(Level.OK, subject, found)


def warning(subject: str, found: str, remedy: str = "") -> Finding:
    """Runs work, but slower, or not all of them."""
    return Finding(Level.WARNING, subject, found, remedy)


def problem(subject: str, found: str, remedy: str = "") -> Finding:
    """Runs do not work."""
    return Finding(Level.PROBLEM, subject, found, remedy)


def python(program: str, *arguments: str) -> list[str]:
    """The command that runs a program in another Python of the same installation."""
    return [sys.executable, "-c", program, *arguments]
