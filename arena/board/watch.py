"""Recorded episodes of a run: a table of them, and any of them played again, tick by tick.

The game is played in a process of its own (`arena.cli.board_games.watched`), which lives as long as the page's stream:

POST /watch-stream/RUN      begins one: messages as in `arena.board.games`; the first one says its number
POST /watch-wish/NUMBER     the ticks that it is to send
GET  /watch-rows/RUN        a page of the table
"""

from __future__ import annotations

import re
import secrets
from array import array
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from threading import Lock

import msgspec
import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from arena.board.board import Tab, board_of, folder_of, is_run, posted
from arena.board.games import KIND, Games, message
from arena.board.trust import trusted
from arena.config import load_config
from arena.records.folder import MANIFEST, RunFolder, match_path
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord

_PROGRAM = "arena.cli.board_games.watched"
_ROWS = 50  # of a page of the table
_MOST_GAMES = 20  # of people, of which the page has links
_KEPT = 1_500_000  # episodes in the indexes of all runs, some 60 bytes each
_OUTCOMES = ("win", "draw", "loss", "none")

tab = Tab("Watch", "/watch/", is_run)


class EpisodeIndex:
    """Where the episodes of a run are in its journal, and by what they are found; it grows with the file. E episodes.

    It takes half the memory of the report's `EpisodeTable`, which has no places.

    Attributes:
        policies: names, in the order in which they were first seen.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._lock = folder, Lock()
        self._clear(None)

    def _clear(self, version: tuple[int, int] | None) -> None:
        self._version, self._end = version, 0
        self.policies: dict[str, int] = {}
        self._places = array("q")  # [E] bytes of the journal before the line
        self._rows = array("i")  # [E, 3] round, match and length
        self._seats = array("i")  # [S, 3] episode, policy and outcome
        self._returns = array("d")  # [S]
        self._recorded: dict[int, bool] = {}  # by round and match

    def __len__(self) -> int:
        return len(self._places)

    def grow(self) -> None:
        """Reads what has come to the journal; ConfigError: it is damaged."""
        with self._lock:
            config, path = self._folder.config.stat(), self._folder.episodes
            version = config.st_ino, config.st_mtime_ns  # another one if the run was resumed, or is another run
            if version != self._version or not path.exists() or path.stat().st_size < self._end:
                self._clear(version)
            journal = JournalReader(path, start=self._end)
            for line in journal.lines(EpisodeRecord, missing_ok=True):
                for seat in line.seats:
                    policy = self.policies.setdefault(seat.policy, len(self.policies))
                    self._seats.extend((len(self._places), policy, _OUTCOMES.index(seat.outcome or "none")))
                    self._returns.append(np.nan if seat.return_ is None else seat.return_)
                self._rows.extend((line.round, line.match, line.length))
                self._places.append(self._end)
                self._end = journal.position

    def found(self, wanted: Mapping[str, str]) -> NDArray[np.int64]:
        """The numbers of the episodes that have replays and fit, the newest first.

        `wanted`: `round` and `match`; `shortest` and `longest` ticks; `policy`, which has played, and of a seat of it
        the `outcome`, and the `least` and `most` return. Raises HTTPException 400 if one is no number.
        """
        bounds = {key: _number(wanted, key) for key in ("round", "match", "shortest", "longest", "least", "most")}
        with self._lock:  # the arrays cannot grow while they are looked at
            rows = np.frombuffer(self._rows, np.int32).reshape(-1, 3)
            seats, returns = np.frombuffer(self._seats, np.int32).reshape(-1, 3), np.frombuffer(self._returns)
            matches, match = np.unique(rows[:, 0].astype(np.int64) << 32 | rows[:, 1], return_inverse=True)
            fits = np.array([self._has_replays(one) for one in matches.tolist()], np.bool_)[match]
            of_seats = np.ones(len(seats), np.bool_)
            for key, kept, numbers, compared in (
                ("round", fits, rows[:, 0], np.equal),
                ("match", fits, rows[:, 1], np.equal),
                ("shortest", fits, rows[:, 2], np.greater_equal),
                ("longest", fits, rows[:, 2], np.less_equal),
                ("least", of_seats, returns, np.greater_equal),
                ("most", of_seats, returns, np.less_equal),
            ):
                if (bound := bounds[key]) is not None:
                    kept &= compared(numbers, bound)
            if policy := wanted.get("policy"):
                of_seats &= seats[:, 1] == self.policies.get(policy, -1)
            if (outcome := wanted.get("outcome")) in _OUTCOMES:
                of_seats &= seats[:, 2] == _OUTCOMES.index(outcome)
            if not of_seats.all():
                played = np.zeros(len(rows), np.bool_)
                played[seats[of_seats, 0]] = True
                fits &= played
            return np.flatnonzero(fits)[::-1]

    def records(self, numbers: NDArray[np.int64]) -> list[EpisodeRecord]:
        """The lines of some episodes."""
        journals = (JournalReader(self._folder.episodes, start=self._places[number]) for number in numbers)
        found = (next(journal.lines(EpisodeRecord), None) for journal in journals)
        return [record for record in found if record is not None]  # the run may have been resumed just now

    def _has_replays(self, where: int) -> bool:
        if not self._recorded.get(where):  # a match that has begun just now may have none yet
            home = match_path(self._folder.replays, where & 0xFFFFFFFF, round=where >> 32)
            self._recorded[where] = (home / MANIFEST).is_file()
        return self._recorded[where]


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
    if sum(map(len, [*indexes.values()])) > _KEPT:
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
    """A page of the table; nothing (204) if no episode has come since there were as many as the page has `known`."""
    folder, wanted = folder_of(request), request.query_params
    if not is_run(folder):
        raise HTTPException(404, "There is no run in this folder any more.")
    index = _index_of(request, folder)
    if wanted.get("known") == str(len(index)):
        return Response(status_code=204)
    found, known = index.found(wanted), len(index)
    begin = _ROWS * (int(wanted["page"][:9]) if re.fullmatch(r"\d+", wanted.get("page", ""), re.ASCII) else 0)
    rows = [msgspec.to_builtins(record) for record in index.records(found[begin : begin + _ROWS])]
    answer = {"count": len(found), "rows": rows, "size": _ROWS, "policies": list(index.policies), "known": known}
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


async def _stream(request: Request) -> Response:
    folder = folder_of(request)
    if not trusted(folder):
        raise HTTPException(403, "This plays the run's own game: the page asks first whether its code may be run.")
    place = (await posted(request)).get("episode", "").split("/")
    if len(place) != 4 or not all(re.fullmatch(r"-?\d{1,9}", part, re.ASCII) for part in place):
        raise HTTPException(400, "An episode is named by round/match/lane/episode.")
    number = secrets.token_urlsafe(12)

    async def messages() -> AsyncIterator[bytes]:
        yield message("opened", number=number)
        async with aclosing(Games.of(request).play(number, _PROGRAM, str(folder), *place)) as played:
            async for one in played:
                yield one

    return board_of(request).stream(messages(), kind=KIND)


async def _wish(request: Request) -> Response:
    form = await posted(request)
    try:
        wish = {key: int(form.get(key, "0")) for key in ("from", "to", "advice")}
    except ValueError as error:
        raise HTTPException(400, "Ticks are numbers.") from error
    Games.of(request).say(request.path_params["number"], wish)
    return Response(status_code=204)


routes = [
    Route("/watch/{path:path}", _page),
    Route("/watch-rows/{path:path}", _rows),
    Route("/watch-stream/{path:path}", _stream, methods=["POST"]),
    Route("/watch-wish/{number}", _wish, methods=["POST"]),
]
