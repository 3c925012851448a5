"""The recorded episodes of a run: found by the columns of all episodes, then read as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from arena.records.folder import MANIFEST, RunFolder, match_path
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.report.episodes import OUTCOMES, EpisodeTable, Ints
from arena.report.numbers import NOTHING, decimal

_RESULTS = {"win": "won", "loss": "lost", "draw": "drew"}


def recorded(
    folder: RunFolder,
    table: EpisodeTable,
    wanted: Mapping[str, Any] = {},
    *,
    known: set[tuple[int, int]] | None = None,
) -> Ints:
    """The rows of the episodes that have replays and fit, the newest first, after all others those that were cut.

    `wanted`: `round` and `match`; `shortest` and `longest` ticks; `policy`, which has played, and of a seat of it the
    `outcome`, and the `least` and `most` return. `known`: round and match of those that had replays when it was asked
    before, to which new ones are added.
    """
    known = set() if known is None else known
    each, many = np.unique(series := table.series), int(table.match.max(initial=0)) + 1
    places = [divmod(one, many) for one in each.tolist()]
    for place in places:
        if place not in known and (match_path(folder.replays, place[1], round=place[0]) / MANIFEST).is_file():
            known.add(place)
    fits = np.array([place in known for place in places], np.bool_)[np.searchsorted(each, series)]
    of_seats = np.ones(len(table.policy), np.bool_)
    for key, kept, column, compared in (
        ("round", fits, table.round, np.equal),
        ("match", fits, table.match, np.equal),
        ("shortest", fits, table.length, np.greater_equal),
        ("longest", fits, table.length, np.less_equal),
        ("policy", of_seats, table.policy, np.equal),
        ("outcome", of_seats, table.outcome, np.equal),
        ("least", of_seats, table.returns, np.greater_equal),
        ("most", of_seats, table.returns, np.less_equal),
    ):
        if key in wanted:
            bound = wanted[key]
            if key == "policy":
                bound = table.policies.index(bound) if bound in table.policies else -1
            kept &= compared(column, OUTCOMES[bound] if key == "outcome" else bound)
    if not of_seats.all():
        fits &= np.bincount(table.episode[of_seats], minlength=len(fits)) > 0
    return np.concatenate([np.flatnonzero(fits & ~table.cut)[::-1], np.flatnonzero(fits & table.cut)[::-1]])


def records(folder: RunFolder, table: EpisodeTable, rows: Iterable[int]) -> Iterator[EpisodeRecord]:
    """The lines of these rows."""
    ends = np.cumsum(table.size, dtype=np.int64)
    for row in rows:
        journal = JournalReader(folder.episodes, start=int(ends[row] - table.size[row]), stop=int(ends[row]))
        yield from journal.lines(EpisodeRecord)


def result_text(record: EpisodeRecord) -> str:
    """The result: outcomes where there are any, else returns."""
    parts = []
    for seat in record.seats:
        earned = NOTHING if seat.return_ is None else decimal(seat.return_)
        parts.append(f"{seat.policy} {_RESULTS.get(seat.outcome or '', earned)}")
    return ", ".join(dict.fromkeys(parts))
