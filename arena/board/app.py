"""The application: who may ask, how pages are made, and the rooms.

Each page is a room: a module of this package with `routes`, named in `_ROOMS`; `base.html` has the links to those of a
folder.

Only who has the key gets an answer: it is in the address that is printed, and then in a cookie. Nothing of a folder is
trusted: templates escape every name, and the Content-Security-Policy allows only files of this application.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from arena.board import experiments, play, run, runs, watch
from arena.board.board import Board, board_of
from arena.errors import ConfigError
from arena.external.access import is_allowed_host

_ROOMS: Sequence[Any] = (runs, run, watch, play, experiments)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATIC: list[str | tuple[str, str]] = [
    ("arena.board", "static"),
    ("arena.report", "static"),
    ("arena.report", "templates"),
]


def application(board: Board) -> Starlette:
    """The application of a folder."""
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(packages=_STATIC))]
    for room in _ROOMS:
        routes += room.routes

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await board.end()

    made = Starlette(
        routes=routes,
        middleware=[Middleware(_Guard, board=board)],
        exception_handlers={ConfigError: _refused, HTTPException: _refused},
        lifespan=lifespan,
    )
    made.state.board = board
    return made


async def _refused(request: Request, error: Exception) -> Response:
    """The page that says what is wrong; a program that asks gets it as text."""
    status, text = (error.status_code, error.detail) if isinstance(error, HTTPException) else (422, str(error))
    if "text/html" in request.headers.get("accept", ""):
        return board_of(request).page("message.html", status=status, text=text)
    return PlainTextResponse(text, status)


class _Guard:
    """Refuses who has no key, another name of this machine, and what foreign pages post; adds the headers."""

    def __init__(self, app: ASGIApp, board: Board) -> None:
        self._app, self._board = app, board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, answer)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that goes no further; None: it may."""
        headers, board = Headers(scope=scope), self._board
        hosts = [value.encode("latin-1") for value in headers.getlist("host")]
        if not is_allowed_host(hosts, ()):
            return PlainTextResponse("This server is asked under a name that is not its own.", 403)
        if scope["method"] not in ("GET", "HEAD") and headers.getlist("origin") != [f"http://{headers['host']}"]:
            return PlainTextResponse("This was not sent by a page of this server.", 403)
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if self._has_key(query.pop("key", [""])[0]) and scope["method"] == "GET":
            rest = urlencode(query, doseq=True)
            found = RedirectResponse(quote(scope["path"]) + (f"?{rest}" if rest else ""), 303)
            # "strict" would keep it from who follows the link of a terminal that is a page itself
            found.set_cookie(board.cookie, board.key, httponly=True, samesite="lax")
            return found
        if not self._has_key(Request(scope).cookies.get(board.cookie, "")):
            return PlainTextResponse("Open the address that `arena board` has printed: it has a key.", 403)
        return None

    def _has_key(self, sent: str) -> bool:
        return hmac.compare_digest(sent.encode(), self._board.key.encode())
