"""The recorded episodes of a run: found by the columns of all episodes, then read as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from arena.records.figures import results_of
from arena.records.folder import MANIFEST, RunFolder, match_path
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord
from arena.report.episodes import OUTCOMES, EpisodeTable, Ints
from arena.report.numbers import NOTHING, decimal, percent

_MOST_KEPT = 50  # folders of games beside a run that are shown
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


class EvaluationGames(msgspec.Struct, frozen=True):
    """Games beside a run, in a folder of its `evaluations`: of `arena evaluate`, or of people."""

    name: str  # of the folder
    episodes: int
    result: str  # of the game, or by policy the share of games won, or the mean return
    recorded: bool  # whether there are replays


def evaluation_games(folder: RunFolder, known: dict[Path, tuple[int, EvaluationGames]]) -> list[EvaluationGames]:
    """The newest of them, the newest first; `known` are those that were read before, with the sizes of their files.

    Those of the run's own evaluations, which `evaluations.jsonl` has, are left out.
    """
    places = (folder.path / "evaluations").glob("*/episodes.jsonl")
    journals = {path: path.stat() for path in places if not path.parent.name.startswith("tick-")}
    found = sorted(journals, key=lambda path: -journals[path].st_mtime)[:_MOST_KEPT]
    for path in found:
        if path not in known or known[path][0] != journals[path].st_size:
            known[path] = journals[path].st_size, _kept(path)
    return [known[path][1] for path in found]


def _kept(path: Path) -> EvaluationGames:
    lines = [*JournalReader(path).lines(EpisodeRecord)]
    results = [
        f"{name} won {percent(fmean(one.won))}" if one.games else f"{name} {decimal(fmean(one.returns))}"
        for name, one in results_of(lines).items()
    ]
    text = result_text(lines[0]) if len(lines) == 1 else ", ".join(results)
    return EvaluationGames(path.parent.name, len(lines), text, (path.parent / "replays").is_dir())


def result_text(record: EpisodeRecord) -> str:
    """The result: outcomes where there are any, else returns."""
    parts = []
    for seat in record.seats:
        earned = NOTHING if seat.return_ is None else decimal(seat.return_)
        parts.append(f"{seat.policy} {_RESULTS.get(seat.outcome or '', earned)}")
    return ", ".join(dict.fromkeys(parts))
