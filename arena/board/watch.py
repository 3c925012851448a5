"""Recorded episodes of a run: a table of them, and any of them played again, tick by tick.

The game is played in a process of its own (`arena.cli.board_games.watched`), which lives as long as the page's stream:

POST /watch-stream/RUN      begins one: messages as in `arena.board.games`; the first one says its number
POST /watch-wish/NUMBER     the ticks that it is to send
GET  /watch-rows/RUN        a page of the table
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from arena.board.board import address_of, board_of, folder_of, is_run, posted
from arena.board.games import KIND, message
from arena.config import load_config
from arena.records.folder import RunFolder
from arena.report.read_run import RunFiles
from arena.report.recorded import recorded, records

_PROGRAM = "arena.cli.board_games.watched"
_PART = 2_000_000  # bytes of episodes that are read at once
_ROWS = 50  # of a page of the table
_OUTCOMES = {"win": "win", "draw": "draw", "loss": "loss", "none": None}


def _filters(query: Mapping[str, str]) -> dict[str, Any]:
    """What the address asks for, as `recorded` takes it."""
    wanted: dict[str, Any] = {"policy": query["policy"]} if query.get("policy") else {}
    if (outcome := query.get("outcome")) in _OUTCOMES:
        wanted["outcome"] = _OUTCOMES[outcome]
    for key in ("round", "match", "shortest", "longest", "least", "most"):
        if query.get(key):
            try:
                wanted[key] = float(query[key])
            except ValueError as error:
                raise HTTPException(400, f"{key} is to be a number, not {query[key]!r:.40}.") from error
    return wanted


def _page(request: Request) -> Response:
    folder, board = folder_of(request), board_of(request)
    return board.page(
        "watch.html",
        folder=folder,
        home=folder,
        trusted=board.trusted(folder),
        back=address_of(request),
        config=None,
        recorded=RunFolder(folder).replays.is_dir() or load_config(folder / "config.yaml").record == "replays",
    )


def _rows(request: Request) -> Response:
    """A page of the table; nothing (204) if no episode has come since there were as many as the page has `known`."""
    folder, wanted = folder_of(request), request.query_params
    if not is_run(folder):
        raise HTTPException(404, "There is no run in this folder any more.")
    with board_of(request).reader(folder) as reader:
        pass
    while True:
        with reader.lock:  # also if the board has forgotten the reader meanwhile
            files = reader.look(most=_PART)
            if reader.share == 1:
                return _answer(files, wanted)
        time.sleep(0.001)  # the thread of the live pages, if it waits for the reader, gets it


def _answer(files: RunFiles, wanted: Mapping[str, str]) -> Response:
    table, known = files.episodes, len(files.episodes.tick)
    if wanted.get("known") == str(known):
        return Response(status_code=204)
    found = recorded(files.folder, table, _filters(wanted), known=files.replays)
    begin = _ROWS * (int(wanted["page"][:9]) if re.fullmatch(r"\d+", wanted.get("page", ""), re.ASCII) else 0)
    rows = msgspec.to_builtins([*records(files.folder, table, found[begin : begin + _ROWS])])
    matches = np.unique(table.match[found])[:_ROWS].tolist()  # also those that have no row on this page
    answer = {"count": len(found), "rows": rows, "size": _ROWS, "policies": table.policies, "known": known}
    return JSONResponse({**answer, "matches": matches}, headers={"Cache-Control": "no-store"})


async def _stream(request: Request) -> Response:
    folder = folder_of(request)
    if not board_of(request).trusted(folder):
        raise HTTPException(403, "This plays the run's own game: the page asks first whether its code may be run.")
    place = (await posted(request)).get("episode", "").split("/")
    if len(place) != 4 or not all(re.fullmatch(r"\d{1,9}", part, re.ASCII) for part in place):
        raise HTTPException(400, "An episode is named by round/match/lane/episode.")
    number = secrets.token_urlsafe(12)

    async def messages() -> AsyncIterator[bytes]:
        yield message("opened", number=number)
        async with aclosing(board_of(request).games.play(number, _PROGRAM, str(folder), *place)) as played:
            async for one in played:
                yield one

    return board_of(request).stream(messages(), kind=KIND)


async def _wish(request: Request) -> Response:
    form = await posted(request)
    try:
        wish = {key: int(form.get(key, "0")) for key in ("from", "to", "advice")}
    except ValueError as error:
        raise HTTPException(400, "Ticks are numbers.") from error
    board_of(request).games.say(request.path_params["number"], wish)
    return Response(status_code=204)


routes = [
    Route("/watch/{path:path}", _page),
    Route("/watch-rows/{path:path}", _rows),
    Route("/watch-stream/{path:path}", _stream, methods=["POST"]),
    Route("/watch-wish/{number}", _wish, methods=["POST"]),
]
