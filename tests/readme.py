"""The README as data: its named code blocks, its commands, its tables."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\S+\.(?:py|yaml))\n")
_COMMAND = re.compile(r"\barena (?:train|plan|check|evaluate|list)\b[^`#\n]*")


def files() -> dict[str, str]:
    """The code blocks whose first line is a comment with a file's name, by that name."""
    return {
        named[1]: body for _, body in _FENCE.findall(TEXT) if (named := _NAMED.match(body)) is not None
    }


def commands() -> list[str]:
    """Every `arena ...` of shell blocks and code spans."""
    blocks = [body for language, body in _FENCE.findall(TEXT) if language == "sh"]
    prose = _FENCE.sub("", TEXT)
    spans = re.findall(r"`([^`]*)`", prose, re.DOTALL)
    return [found.strip() for part in (*blocks, *spans) for found in _COMMAND.findall(part)]


def section(heading: str) -> str:
    """The text below a heading, up to the next one of any level.

    Raises:
        KeyError: there is no such heading.
    """
    prose = re.sub(r"^#(?!#* )", " ", TEXT, flags=re.MULTILINE)
    parts = re.split(r"^#+ (.+)$", _FENCE.sub("", prose), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


def table(heading: str) -> dict[str, list[str]]:
    """The rows of a section's tables: the first cell without its back quotes, and the other cells."""
    rows = [line.strip("|").split(" | ") for line in section(heading).splitlines() if line.startswith("| `")]
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows}
