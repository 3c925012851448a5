"""`tournament.json`: the terms of a tournament (how it is played, when it is over), which are in no configuration."""

from __future__ import annotations

import msgspec

from arena.records import checksums
from arena.records.folder import RunFolder
from arena.records.formats import Terms, read_document


def write(folder: RunFolder, terms: Terms) -> None:
    """Writes the terms of a tournament, atomically."""
    checksums.replace(folder.tournament, msgspec.json.encode(terms) + b"\n")


def read(folder: RunFolder) -> Terms | None:
    """The terms; None if the run is no tournament, or an older arena has played its first batch only.

    Raises:
        ConfigError: the file is damaged, or of another version of the arena.
    """
    return read_document(folder.tournament, Terms) if folder.tournament.exists() else None
