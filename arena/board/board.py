"""What all rooms share: the folder that is shown, its templates and addresses, and what a page posts."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, quote

from jinja2 import ChoiceLoader, Environment, PackageLoader
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from arena.board.games import Games
from arena.diagnostics.start_folder import anchored
from arena.errors import ConfigError
from arena.experiment.folder import is_experiment
from arena.report.page import environment
from arena.report.read_run import RunReader

_LONGEST = 100_000  # bytes of a form
_MOST_EPISODES = 1_500_000  # episodes of all runs that are read, some 45 bytes each


@dataclass
class Board:
    """What all rooms share: `request.app.state.board`.

    Attributes:
        root: all folders that are shown are in it, or are it.
        key: who has it may ask.
        cookie: the name of the cookie that holds it; ports of one machine share their cookies.
        ending: set when the server is to end, so that streams end.
        readers: of the runs whose pages were shown, by folder; `lock` is of this list.
        games: the processes of games that are open.
        tables: matches with people, by number, see `arena.board.play`.
        pages: those that are kept up, see `arena.board.live`; `thread` reads for them.
        trusts: folders and configurations whose code a person allows to be run, until the server ends: watching and
            playing import the games and algorithms that they name.
    """

    root: Path
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    cookie: str = "arena-board"
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    readers: dict[Path, RunReader] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    games: Games = field(default_factory=Games)
    tables: dict[str, Any] = field(default_factory=dict)
    pages: dict[tuple[type[Any], Path], Any] = field(default_factory=dict)
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "reader", initializer=_be_nice))
    trusts: set[Path] = field(default_factory=set)

    def trusted(self, home: Path) -> bool:
        """Whether the code of this folder, of one above it, or of this configuration may be run."""
        return any(place in self.trusts for place in (home, *home.parents))

    async def end(self) -> None:
        """Ends all games, and the reading."""
        for page in self.pages.values():
            page.task.cancel()
        self.thread.shutdown(wait=False, cancel_futures=True)
        await self.games.close()

    @contextmanager
    def reader(self, folder: Path) -> Iterator[RunReader]:
        """What all pages of a run read it with, one after the other.

        Those used last are forgotten last; those of pages that are kept up stay, or they would be read again and again.
        """
        with self.lock:
            found = self.readers.pop(folder, None) or RunReader(folder)
            self.readers[folder] = found
        with found.lock:
            yield found
        with self.lock:
            kept = {folder, *(place for _, place in [*self.pages])}
            others = [place for place in self.readers if place not in kept]
            while others and sum(one.episodes for one in self.readers.values()) > _MOST_EPISODES:
                del self.readers[others.pop(0)]

    @cached_property
    def templates(self) -> Environment:
        """Those of this package and of the report."""
        return environment(ChoiceLoader([PackageLoader("arena.board"), PackageLoader("arena.report")]))

    def folder(self, path: str) -> Path:
        """The folder of a path in an address.

        Raises:
            HTTPException: 404, there is none, or it is not below the root.
        """
        parts = [part for part in path.split("/") if part]
        found = self.root.joinpath(*parts)
        if ".." in parts or not os.path.isdir(found) or not found.resolve().is_relative_to(self.root):
            raise HTTPException(404, f"There is no folder {'/'.join(parts) or '.'} here. It may have been removed.")
        return found

    def path(self, folder: Path) -> str:
        """The path of a folder as an address has it; empty for the root."""
        return quote("/".join(folder.relative_to(self.root).parts))

    def name(self, folder: Path) -> str:
        """The path of a folder as a reader sees it."""
        return "/".join(folder.relative_to(self.root).parts) or self.root.name

    def page(self, template: str, *, folder: Path | None = None, status: int = 200, **content: Any) -> Response:
        """The page of a template; `folder`: whose pages its line at the top names; `data`: of its charts."""
        return HTMLResponse(self.html(template, folder=folder, **content), status)

    def html(self, template: str, *, folder: Path | None = None, **content: Any) -> str:
        """The text of a page. Styles that elements have of their own are set by `board.js`, as no page may have any."""
        content |= {
            "run_path": self.path(folder.parents[1]) if folder is not None and is_evaluation(folder) else None,
            "folder": None if folder is None else self.name(folder),
            "path": None if folder is None else self.path(folder),
            "kind": "" if folder is None else kind_of(folder),
            "root": self.root,
            "shell": content.get("shell", "base.html"),
        }
        text = self.templates.get_template(template).render(content)
        return text.replace(' style="', ' data-css="')  # no text has it: templates escape quotes

    def stream(self, events: AsyncIterator[bytes], *, kind: str = "text/event-stream") -> Response:
        """Server-sent events, or messages of another kind, until the page is closed or the server ends."""

        async def until_the_end() -> AsyncIterator[bytes]:
            ending = asyncio.ensure_future(self.ending.wait())
            try:
                while True:
                    following = asyncio.ensure_future(anext(events, None))
                    await asyncio.wait((following, ending), return_when=asyncio.FIRST_COMPLETED)
                    if not following.done() or (event := following.result()) is None:
                        break
                    yield event
            finally:
                ending.cancel()
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
                await events.aclose()  # type: ignore[attr-defined]

        return StreamingResponse(until_the_end(), media_type=kind)


def _be_nice() -> None:
    """Lets a run that needs all cores go first; Linux alone has a priority for each thread."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.nice(5)


def board_of(request: Request) -> Board:
    """What all rooms share."""
    found: Board = request.app.state.board
    return found


def folder_of(request: Request) -> Path:
    """The folder that the address of a page names, as `/run/{path:path}`; HTTPException 404: there is none."""
    return board_of(request).folder(request.path_params["path"])


def address_of(request: Request) -> str:
    """The address of a page, with what is asked for."""
    return str(request.url.path) + (f"?{request.url.query}" if request.url.query else "")


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
        text = body.decode()
        if "%00" in text or "\0" in text:  # no argument of a process may have it
            raise ValueError
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=bool(body), max_num_fields=100))
    except ValueError as error:
        raise HTTPException(400, "This is no form.") from error


def is_run(folder: Path) -> bool:
    """Whether a run has begun there."""
    return (folder / "config.yaml").is_file()


def is_evaluation(folder: Path) -> bool:
    """Whether it has the records of an evaluation, or of a game of people, in the folder of a run."""
    return folder.parent.name == "evaluations" and is_run(folder.parents[1])


def board_at(path: Path | str) -> Board:
    """The board of a folder; ConfigError: there is none."""
    root = anchored(path)
    if not root.is_dir():
        found = "this is a file" if root.exists() else "there is no such folder; the first `arena train` makes runs/"
        raise ConfigError(f"{found}; name the folder of your runs", source=str(path))
    return Board(root.resolve())


def kind_of(folder: Path) -> str:
    """`run`, `experiment`, or empty for any other folder."""
    return "run" if is_run(folder) else "experiment" if is_experiment(folder) else ""
