"""The application: who may ask, how pages are made, and the rooms.

Each page is a room: a module of this package with `routes`, and with a `tab` where a folder has it. To add one, name it
in `rooms`.

Only who has the key gets an answer: it is in the address that is printed, and then in a cookie. Nothing of a folder is
trusted: templates escape every name, and the Content-Security-Policy allows only files of this application.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import arena.report
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.experiment.folder import is_experiment
from arena.external.access import is_allowed_host

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LONGEST = 100_000  # bytes of a form
_HERE = Path(__file__).parent
_REPORT = Path(arena.report.__file__).parent
_STATIC = (_HERE / "static", _REPORT / "static", _REPORT / "templates")


class Tab(NamedTuple):
    """A page of a folder, as the line at the top of its pages names it."""

    title: str
    prefix: str  # of its address, which ends with the folder's path
    shown: Callable[[Path], bool]  # whether this folder has this page


@dataclass
class Board:
    """What all rooms share: `request.app.state.board`.

    Attributes:
        root: all folders that are shown are in it, or are it.
        key: who has it may ask.
        cookie: the name of the cookie that holds it; ports of one machine share their cookies.
        at_end: called when the server ends.
    """

    root: Path
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    cookie: str = "arena-board"
    at_end: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    tabs: list[Tab] = field(default_factory=list)

    @cached_property
    def templates(self) -> Environment:
        """Those of this package and of the report."""
        loader = ChoiceLoader([PackageLoader("arena.board"), PackageLoader("arena.report")])
        return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)

    def folder(self, path: str) -> Path:
        """The folder of a path in an address.

        Raises:
            HTTPException: 404, there is none, or it is not below the root.
        """
        parts = [part for part in path.split("/") if part]
        found = self.root.joinpath(*parts)
        if ".." in parts or "\0" in path or not found.is_dir() or not found.resolve().is_relative_to(self.root):
            raise HTTPException(404, f"There is no folder {'/'.join(parts) or '.'} here. It may have been removed.")
        return found

    def path(self, folder: Path) -> str:
        """The path of a folder as an address has it; empty for the root."""
        return quote("/".join(folder.relative_to(self.root).parts))

    def name(self, folder: Path) -> str:
        """The path of a folder as a reader sees it."""
        return "/".join(folder.relative_to(self.root).parts) or self.root.name

    def page(self, template: str, *, folder: Path | None = None, status: int = 200, **content: Any) -> Response:
        """The page of a template that extends `base.html`; `folder` is the one whose pages its line at the top names."""
        content |= {
            "folder": None if folder is None else self.name(folder),
            "path": None if folder is None else self.path(folder),
            "tabs": [] if folder is None else [tab for tab in self.tabs if tab.shown(folder)],
            "root": self.root,
        }
        text = self.templates.get_template(template).render(content)
        return HTMLResponse(text, status, headers={"Cache-Control": "no-store"})


def board_of(request: Request) -> Board:
    """What all rooms share."""
    found: Board = request.app.state.board
    return found


def folder_of(request: Request) -> Path:
    """The folder that the address of a page names, as `/run/{path:path}`; HTTPException 404: there is none."""
    return board_of(request).folder(request.path_params["path"])


async def posted(request: Request) -> dict[str, str]:
    """The fields of a form, each once.

    Raises:
        HTTPException: 413, it is too long; 400, it is none.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST:
            raise HTTPException(413, "This is too long.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=100))
    except ValueError as error:
        raise HTTPException(400, "This is no form.") from error


def is_run(folder: Path) -> bool:
    """Whether a run has begun there."""
    return (folder / "config.yaml").is_file()


def application(board: Board) -> Starlette:
    """The application of a folder."""
    from arena.board import run, runs, trust

    rooms: Sequence[Any] = (runs, run, trust)
    board.tabs = [room.tab for room in rooms if hasattr(room, "tab")]
    routes: list[BaseRoute] = [Route("/static/{name}", _static)]
    for room in rooms:
        routes += room.routes

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for end in board.at_end:
            await end()

    made = Starlette(
        routes=routes,
        middleware=[Middleware(_Guard, board=board)],
        exception_handlers={ConfigError: _refused, HTTPException: _refused},
        lifespan=lifespan,
    )
    made.state.board = board
    return made


def board_at(path: Path | str) -> Board:
    """The board of a folder; ConfigError: there is none."""
    root = anchored(path)
    if not root.is_dir():
        found = "it is a file" if root.exists() else "it does not exist"
        raise ConfigError(f"no folder of runs: {found}; name one, as runs/", source=str(path))
    return Board(root.resolve())


def kind_of(folder: Path) -> str:
    """`run`, `experiment`, or empty for any other folder."""
    return "run" if is_run(folder) else "experiment" if is_experiment(folder) else ""


def _static(request: Request) -> Response:
    """A file of this package, or of the report."""
    name = request.path_params["name"]
    if name == "plotly.js":
        return _plotly()
    for home in _STATIC:
        if name.rpartition(".")[2] in ("js", "css", "svg") and (home / name).is_file():
            return FileResponse(home / name, headers={"Cache-Control": "no-cache"})
    raise HTTPException(404, "There is no such file.")


def _plotly() -> Response:
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return Response(get_plotlyjs(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


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
            found.set_cookie(board.cookie, board.key, httponly=True, samesite="strict")
            return found
        if not self._has_key(Request(scope).cookies.get(board.cookie, "")):
            return PlainTextResponse("This address needs its key: open the address that `arena board` has printed.", 403)
        return None

    def _has_key(self, sent: str) -> bool:
        return hmac.compare_digest(sent.encode(), self._board.key.encode())
