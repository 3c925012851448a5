"""The recorded episodes of a run: found by the columns of all episodes, then read as lines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from arena.errors import ConfigError
from arena.records.figures import in_parts, results_of
from arena.records.folder import MANIFEST, RunFolder, match_path
from arena.records.journal import FollowedJournal, JournalReader, file_stamp
from arena.records.metrics import EpisodeRecord
from arena.records.scoreboard import Total
from arena.report.episodes import OUTCOMES, EpisodeTable, Ints
from arena.report.numbers import NOTHING, decimal, percent

_MOST_SIDES = 50  # folders of games beside a run that are shown
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


class SideFolder(msgspec.Struct, frozen=True):
    """Games beside a run, in a folder of its `evaluations`: of `arena evaluate`, or of people."""

    name: str
    episodes: int  # that were read
    result: str  # of the game, or by policy the share of games won, or the mean return; or why they cannot be read
    recorded: bool  # whether there are replays


class SideGames(msgspec.Struct, frozen=True):
    """The newest folders, the newest first, and how many older ones are left out."""

    shown: list[SideFolder]
    left_out: int


class SideReader:
    """Reads the games beside a run; those of its own evaluations, which `evaluations.jsonl` has, are left out."""

    def __init__(self, folder: RunFolder) -> None:
        self._home = folder.path / "evaluations"
        self._known: dict[tuple[Path, Any], _FollowedGames] = {}  # by journal and the version of its configuration

    def look(self) -> SideGames:
        """What there is now; of journals that are known only what is new is read."""
        found: dict[Path, Any] = {}
        for path in self._home.glob("*/episodes.jsonl"):
            if is_shown(path.parent.name) and not path.parent.name.startswith("tick-") and (stamp := file_stamp(path)):
                found[path] = stamp
        newest = sorted(found, key=lambda path: -found[path][1])[:_MOST_SIDES]
        known, self._known = self._known, {}
        for path in newest:
            key = path, file_stamp(RunFolder(path.parent).config)
            games = known.get(key)
            if path.exists():  # else it has vanished meanwhile
                self._known[key] = _FollowedGames(path) if games is None or games.journal.was_cut else games
        return SideGames([games.look() for games in self._known.values()], len(found) - len(newest))


class _FollowedGames:
    """A folder beside a run, by its journal of episodes."""

    def __init__(self, path: Path) -> None:
        self.journal, self._count, self._first = FollowedJournal(path), 0, ""
        self._totals: dict[str, tuple[Total, Total]] = {}  # by policy: returns, and shares of games won

    def look(self) -> SideFolder:
        try:
            for lines, _ in self.journal.fresh(lambda journal: journal.batches(EpisodeRecord)):
                self._count, self._first = self._count + len(lines), self._first or result_text(lines[0])
                for part in in_parts(lines):
                    for policy, found in results_of(part).items():
                        returns, won = self._totals.setdefault(policy, (Total(), Total()))
                        returns.add([value for value in found.returns if not math.isnan(value)])
                        won.add(found.won)
            result = self._first
            if self._count != 1:
                result = ", ".join(
                    f"{name} {NOTHING if returns.mean is None else decimal(returns.mean)}"
                    if won.mean is None
                    else f"{name} won {percent(won.mean)}"
                    for name, (returns, won) in self._totals.items()
                )
        except (ConfigError, OSError) as error:
            result = f"damaged: {error}"
        folder = self.journal.path.parent
        return SideFolder(folder.name, self._count, result, (folder / "replays").is_dir())


def is_shown(name: str) -> bool:
    """Whether folders of this name are looked at: hidden ones are not, and what is no text has no address."""
    return not name.startswith(".") and name.encode(errors="ignore").decode() == name


def result_text(record: EpisodeRecord, names: Sequence[str] = ()) -> str:
    """The result: outcomes where there are any, else returns; `names` of who sits in each seat, else its policy."""
    parts = []
    for seat, name in zip(record.seats, names or [seat.policy for seat in record.seats], strict=True):
        earned = NOTHING if seat.return_ is None else decimal(seat.return_)
        parts.append(f"{name} {_RESULTS.get(seat.outcome or '', earned)}")
    return ", ".join(dict.fromkeys(parts))
