"""README and the pages of docs/ as data: their code blocks, commands, tables and links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# (\S+\.(?:py|yaml))\n")
_NAMES = (
    "train|plan|check|evaluate|tournament|standings|exploit|replay|play|export|fake|serve|report|watch|experiment|slurm|"
    "doctor|inspect|list|new|example|board"
)
_COMMAND = re.compile(rf"\barena (?:{_NAMES})\b[^#>\n]*")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Step(NamedTuple):
    """A command of a console block, and the lines that are shown below it."""

    command: str
    shown: list[str]


class Page:
    """One Markdown file.

    Args:
        path: relative to the repository.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.text = (ROOT / path).read_text(encoding="utf-8")
        self.prose = _FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> list[str]:
        """The code blocks of some languages, in their order."""
        return [body for kind, body in _FENCE.findall(self.text) if kind in languages]

    def files(self) -> dict[str, str]:
        """The code blocks whose first line is a comment with a file's name, by that name."""
        return {named[1]: body for body in self.blocks("python", "yaml") if (named := _NAMED.match(body)) is not None}

    def steps(self) -> Iterator[Step]:
        """The commands of the console blocks."""
        for body in self.blocks("console"):
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                yield Step(command, shown)

    def commands(self) -> list[str]:
        """Every `arena ...` of shell and console blocks and code spans."""
        spans = re.findall(r"`([^`]*)`", self.prose)
        typed = [step.command for step in self.steps()]
        return [found.strip() for part in (*self.blocks("sh"), *typed, *spans) for found in _COMMAND.findall(part)]

    def section(self, heading: str) -> str:
        """The text below a heading, code blocks left out, up to the next heading of any level.

        Raises:
            KeyError: there is no such heading.
        """
        parts = _HEADING.split(self.prose)
        return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]

    def table(self, heading: str) -> dict[str, list[str]]:
        """The rows of a section's tables: the first cell without its back quotes, and the other cells."""
        rows = [line.strip("|").split(" | ") for line in self.section(heading).splitlines() if line.startswith("| `")]
        return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows}

    def sentences(self) -> Iterator[str]:
        """The sentences of the text, without headings and tables; an item of a list begins one, as does a colon.

        A code span is one word, a link its text.
        """
        paragraph: list[str] = []
        for line in [*self.prose.splitlines(), ""]:
            text = line.strip()
            item = re.match(r"(?:[-*]|\d+\.) ", text)
            if paragraph and (item or not text or text[0] in "|#"):
                plain = re.sub(r"`[^`]*`", "code", " ".join(paragraph))
                plain = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", plain)
                yield from re.split(r"(?<=[.!?:])[\"')*]*\s+", re.sub(r"\b(al|etc|vs)\.(?= [a-z(\d])", r"\1", plain))
                paragraph = []
            if text and text[0] not in "|#":
                paragraph.append(text[item.end() :] if item else text)

    def links(self) -> list[str]:
        """The targets of links and pictures, without those on other sites."""
        return [link for link in re.findall(r"\]\(([^)\s]+)\)", self.prose) if "://" not in link]

    def anchors(self) -> set[str]:
        """The link targets after `#`: the headings, as GitHub and the site spell them."""
        plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", heading).lower() for heading in _HEADING.findall(self.prose)]
        return {re.sub(r"[^\w -]", "", heading).strip().replace(" ", "-") for heading in plain}


def without_numbers(line: str) -> str:
    """A line in which one number is like any other, and one width of a column too."""
    return " ".join(re.sub(r"[+-]?\d+(?:[.,]\d+)*(?:e-?\d+)?", "#", line).split())


def missing(shown: Sequence[str], printed: str) -> list[str]:
    """The shown lines that were not printed, in any order; each printed line stands for one, `...` for any text."""
    left = [without_numbers(line) for line in printed.splitlines()]
    found = []
    for line in shown:
        if line.strip() in ("", "..."):
            continue
        form = ".*".join(map(re.escape, without_numbers(line).split("...")))
        alike = next((number for number, other in enumerate(left) if re.fullmatch(form, other)), None)
        if alike is None:
            found.append(line)
        else:
            del left[alike]
    return found


README = Page("README.md")
DOCS = [Page(path.relative_to(ROOT).as_posix()) for path in sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {page.path: page for page in (README, *DOCS)}
