"""Records where external games connect (`external.json`) and how many there were (`games.jsonl`)."""

from __future__ import annotations

import msgspec

from arena.records.atomic import replacing
from arena.records.folder import RunFolder
from arena.records.formats import ExternalPlace, GamesLine
from arena.records.journal import Journal


def record_place(folder: RunFolder, place: ExternalPlace) -> str:
    """Writes the match's entry of `external.json`, in place of an earlier one.

    Returns:
        a line for the user; empty if the games need no address.
    """
    places = {}
    if folder.external.exists():
        known = msgspec.json.decode(folder.external.read_bytes(), type=list[ExternalPlace])
        places = {each.match: each for each in known}
    places[place.match] = place
    with replacing(folder.external) as file:
        file.write(msgspec.json.format(msgspec.json.encode([places[match] for match in sorted(places)])) + b"\n")
    return f"match {place.match}: listening {place.kind} {place.address}" if place.address else ""


def append_games(folder: RunFolder, line: GamesLine) -> None:
    """Appends a line to `games.jsonl`."""
    journal = Journal(folder.games)
    journal.extend([line])
    journal.close()
