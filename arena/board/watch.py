"""Recorded episodes of a run: a table of them, and any of them played again, tick by tick.

The game is played in a process of its own (`arena.cli.board_games.watched`), which lives as long as the page's stream:

POST /watch-stream/RUN      begins one: messages as in `arena.board.pipes`; the first one says its number
POST /watch-wish/NUMBER     the ticks that it is to send
GET  /watch-rows/RUN        a page of the table
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from arena.board.board import Tab, board_of, folder_of, is_run, posted
from arena.board.games import KIND, Games
from arena.board.trust import trusted
from arena.config import load_config
from arena.records.folder import MANIFEST, RunFolder, match_path
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord

_PROGRAM = "arena.cli.board_games.watched"
_ROWS = 50  # of a page of the table
_MOST_GAMES = 20  # of people, of which the page has links
_KEPT = 1_500_000  # episodes in the indexes of all runs, 50 bytes each
_OUTCOMES = ("win", "draw", "loss")

tab = Tab("Watch", "/watch/", is_run)


class _Seat(msgspec.Struct, gc=False):
    """What the index has of a `SeatRecord`."""

    policy: str
    outcome: str | None
    return_: float | None = msgspec.field(name="return")


class _Line(msgspec.Struct, gc=False):
    """What the index has of an `EpisodeRecord`."""

    round: int
    match: int
    length: int
    seats: tuple[_Seat, ...]


class EpisodeIndex:
    """Where the episodes of a run are in its journal, and by what they are found; it grows with the file. E episodes.

    Attributes:
        policies: names, in the order in which they were first seen.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._end, self._lock = folder, 0, Lock()
        self.policies: dict[str, int] = {}
        self._places = array("q")  # [E] bytes of the journal before the line
        self._rows = array("i")  # [E, 3] round, match and length
        self._seats = array("i")  # [S, 3] episode, policy and outcome: 0 to 2, or 3 for none
        self._returns = array("d")  # [S]
        self._recorded: dict[tuple[int, int], bool] = {}

    def __len__(self) -> int:
        return len(self._places)

    def grow(self) -> None:
        """Reads what has come to the journal; ConfigError: it is damaged."""
        with self._lock:
            path = self._folder.episodes
            if not path.exists() or path.stat().st_size < self._end:  # it is another run's now
                self.__init__(self._folder)  # type: ignore[misc]
            journal, before = JournalReader(path, start=self._end), self._end
            for line in journal.lines(_Line, missing_ok=True):
                number = len(self._places)
                self._places.append(before)
                before = self._end = journal.position
                self._rows.extend((line.round, line.match, line.length))
                for seat in line.seats:
                    policy = self.policies.setdefault(seat.policy, len(self.policies))
                    code = _OUTCOMES.index(seat.outcome) if seat.outcome in _OUTCOMES else len(_OUTCOMES)
                    self._seats.extend((number, policy, code))
                    self._returns.append(np.nan if seat.return_ is None else seat.return_)

    def found(self, wanted: Mapping[str, str]) -> NDArray[np.int64]:
        """The numbers of the episodes that have replays and fit, the newest first.

        `wanted`: `round` and `match`; `shortest` and `longest` ticks; `policy`, which has played, and of a seat of it
        the `outcome`, and the `least` and `most` return. Raises HTTPException 400 if one is no number.
        """
        rows = np.frombuffer(self._rows, np.int32).reshape(-1, 3)
        seats, returns = np.frombuffer(self._seats, np.int32).reshape(-1, 3), np.frombuffer(self._returns)
        fits = np.ones(len(rows), np.bool_)
        matches, match = np.unique(rows[:, 0].astype(np.int64) << 32 | rows[:, 1], return_inverse=True)
        fits &= np.array([self._has_replays(one >> 32, one & 0xFFFFFFFF) for one in matches.tolist()], np.bool_)[match]
        bounds = {"round": (0, "=="), "match": (1, "=="), "shortest": (2, ">="), "longest": (2, "<=")}
        for key, (column, how) in bounds.items():
            if (bound := _number(wanted, key)) is not None:
                fits &= _COMPARED[how](rows[:, column], bound)
        of_seats = np.ones(len(seats), np.bool_)
        if policy := wanted.get("policy"):
            of_seats &= seats[:, 1] == self.policies.get(policy, -1)
        if outcome := wanted.get("outcome"):
            of_seats &= seats[:, 2] == (_OUTCOMES.index(outcome) if outcome in _OUTCOMES else len(_OUTCOMES))
        for key, how in (("least", ">="), ("most", "<=")):
            if (bound := _number(wanted, key)) is not None:
                of_seats &= _COMPARED[how](returns, bound)
        if not of_seats.all():
            played = np.zeros(len(rows), np.bool_)
            played[seats[of_seats, 0]] = True
            fits &= played
        return np.flatnonzero(fits)[::-1]

    def records(self, numbers: NDArray[np.int64]) -> list[EpisodeRecord]:
        """The lines of some episodes."""
        found = []
        for place in np.frombuffer(self._places, np.int64)[numbers].tolist():
            journal = JournalReader(self._folder.episodes, start=place)
            found.append(next(journal.lines(EpisodeRecord)))
        return found

    def _has_replays(self, round_: int, match: int) -> bool:
        where = round_, match
        if not self._recorded.get(where):  # a match that has begun just now may have none yet
            self._recorded[where] = (match_path(self._folder.replays, match, round=round_) / MANIFEST).is_file()
        return self._recorded[where]


_COMPARED: Mapping[str, Any] = {"==": np.equal, ">=": np.greater_equal, "<=": np.less_equal}


def _number(wanted: Mapping[str, str], key: str) -> float | None:
    """A number of the address; None: it is not there."""
    try:
        return float(wanted[key]) if wanted.get(key) else None
    except ValueError as error:
        raise HTTPException(400, f"{key} is to be a number, not {wanted[key]!r:.40}.") from error


def _index_of(request: Request, folder: Path) -> EpisodeIndex:
    """The index of a run, up to date; others are forgotten where all together are too large."""
    state = request.app.state
    if not hasattr(state, "episode_indexes"):
        state.episode_indexes = {}
    indexes: dict[Path, EpisodeIndex] = state.episode_indexes
    index = indexes.setdefault(folder, EpisodeIndex(RunFolder(folder)))
    index.grow()
    if sum(map(len, indexes.values())) > _KEPT:
        state.episode_indexes = {folder: index}
    return index


def _page(request: Request) -> Response:
    folder, board = folder_of(request), board_of(request)
    people = sorted(path.parent.name for path in folder.glob("evaluations/human-*/replays"))[-_MOST_GAMES:]
    return board.page(
        "watch.html",
        folder=folder,
        home=folder,
        people=people[::-1],
        trusted=trusted(folder),
        back=str(request.url.path) + (f"?{request.url.query}" if request.url.query else ""),
        recorded=RunFolder(folder).replays.is_dir() or load_config(folder / "config.yaml").record == "replays",
    )


def _rows(request: Request) -> Response:
    """A page of the table; nothing (204) if no episode has come since there were as many as the page has `known`.

    `seconds` is how long it took, by which a page decides when to ask again.
    """
    began = time.monotonic()
    index = _index_of(request, folder_of(request))
    if request.query_params.get("known") == str(len(index)):
        return Response(status_code=204)
    found = index.found(request.query_params)
    at = max(0, int(_number(request.query_params, "page") or 0)) * _ROWS
    rows = [msgspec.to_builtins(record) for record in index.records(found[at : at + _ROWS])]
    answer = {"count": len(found), "rows": rows, "size": _ROWS, "policies": list(index.policies), "known": len(index)}
    return JSONResponse({**answer, "seconds": time.monotonic() - began}, headers={"Cache-Control": "no-store"})


async def _stream(request: Request) -> Response:
    folder = folder_of(request)
    if not trusted(folder):
        raise HTTPException(403, "This plays the run's own game: the page asks first whether its code may be run.")
    place = (await posted(request)).get("episode", "").split("/")
    if len(place) != 4 or not all(part.isascii() and part.removeprefix("-").isdigit() for part in place):
        raise HTTPException(400, "An episode is named by round/match/lane/episode.")
    games = Games.of(request)
    number = await games.start(_PROGRAM, str(folder), *place)
    return board_of(request).stream(games.messages(number), kind=KIND)


async def _wish(request: Request) -> Response:
    process = Games.of(request).get(request.path_params["number"])
    try:
        wish = {key: int(value) for key, value in (await posted(request)).items() if key in ("from", "to", "advice")}
    except ValueError as error:
        raise HTTPException(400, "Ticks are numbers.") from error
    process.say({"from": 0, "to": 0, "advice": 0, **wish})
    return Response(status_code=204)


routes = [
    Route("/watch/{path:path}", _page),
    Route("/watch-rows/{path:path}", _rows),
    Route("/watch-stream/{path:path}", _stream, methods=["POST"]),
    Route("/watch-wish/{number}", _wish, methods=["POST"]),
]
