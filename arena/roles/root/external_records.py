"""Records where external games connect (`external.json`) and how many there were (`games.jsonl`)."""

from __future__ import annotations

import msgspec

from arena.preflight.external import FROM_OUTSIDE
from arena.records import checksums
from arena.records.folder import RunFolder
from arena.records.formats import ExternalPlace, GamesLine
from arena.records.journal import Journal


def record_place(folder: RunFolder, place: ExternalPlace) -> list[str]:
    """Writes the match's entry of `external.json`, in place of an earlier one.

    Returns:
        lines for the user.
    """
    known: dict[int, ExternalPlace] = {}
    if folder.external.exists():
        known = {
            each.match: each for each in msgspec.json.decode(folder.external.read_bytes(), type=list[ExternalPlace])
        }
    places = {**known, place.match: place}
    content = msgspec.json.encode([places[match] for match in sorted(places)])
    checksums.replace(folder.external, msgspec.json.format(content) + b"\n")
    lines = [] if place.match in known else [f"games of match {place.match} {FROM_OUTSIDE}"]
    if place.address:
        what = "simulators" if place.kind == "shared_memory" else f"listening {place.kind}"
        lines.append(f"match {place.match}: {what} {place.address}")
        if place.kind == "http":
            lines.append(f"match {place.match}: waits for games")
    return lines


def append_games(folder: RunFolder, line: GamesLine) -> None:
    """Appends a line to `games.jsonl`."""
    journal = Journal(folder.games)
    journal.extend([line])
    journal.close()
