"""The README as data: its code blocks, its commands, its tables."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\S+\.(?:py|yaml))\n")
_COMMAND = re.compile(r"\barena (?:train|plan|check|evaluate|tournament|exploit|slurm|doctor|list)\b[^#\n]*")


def blocks(language: str) -> list[str]:
    """The code blocks of a language."""
    return [body for kind, body in _FENCE.findall(TEXT) if kind == language]


def files() -> dict[str, str]:
    """The code blocks whose first line is a comment with a file's name, by that name."""
    bodies = [*blocks("python"), *blocks("yaml")]
    return {named[1]: body for body in bodies if (named := _NAMED.match(body)) is not None}


def commands() -> list[str]:
    """Every `arena ...` of shell blocks and code spans."""
    spans = re.findall(r"`([^`]*)`", _FENCE.sub("", TEXT))
    return [found.strip() for part in (*blocks("sh"), *spans) for found in _COMMAND.findall(part)]


def section(heading: str) -> str:
    """The text below a heading, code blocks left out, up to the next heading of any level.

    Raises:
        KeyError: there is no such heading.
    """
    parts = re.split(r"^#+ (.+)$", _FENCE.sub("", TEXT), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def table(heading: str) -> dict[str, list[str]]:
    """The rows of a section's tables: the first cell without its back quotes, and the other cells."""
    rows = [line.strip("|").split(" | ") for line in section(heading).splitlines() if line.startswith("| `")]
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows}
