"""Pages that follow a folder: each is read once, however many browsers show it, and only changes travel.

One thread of low priority reads all of them. Reading a folder takes at most `SHARE` of a core in the long run: after a
look that has cost a second of it, the next one waits.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from arena.board.board import Board, board_of, folder_of
from arena.errors import ConfigError
from arena.league.ratings.intervals import half_of_mean

SHARE = 0.01  # of a core
_EVERY_S, _RETRY_S, _KEPT_S = 1.0, 5.0, 60.0
_SECTION = re.compile(r'<section id="([\w-]+)">(.*?)</section>', re.DOTALL)
_log = logging.getLogger(__name__)

State: TypeAlias = dict[str, Any]
"""What a page shows: `sections` as HTML, the `data` of charts, `error`; of a run also `clocks` and the `share` read."""


class Page(ABC):
    """What browsers show of a folder, and how it came about. The thread that reads calls `begin` and `look`.

    Attributes:
        contents: the ids of its sections and their titles.
        share: of the folder that was read; while it is less than 1, the next look follows at once.
        aside: seconds of processor time of the last look that do not count.
        task: keeps it up.
        shown_at: when a browser showed it.
    """

    contents: Mapping[str, str]
    share, aside = 1.0, 0.0
    task: asyncio.Task[None]
    shown_at = 0.0

    def __init__(self, board: Board, folder: Path) -> None:
        self.board, self.folder = board, folder
        self._browsers = self._number = 0  # how many show the page, and which state of it
        self._state: State = {}
        self._change = b""
        self._news = asyncio.Event()
        self._begun = False
        self._rest = 0.0  # seconds to wait before the next look
        self._spent = 0.0  # seconds of processor time, since the last whole look
        self._counts = False  # whether looks count: the first whole one takes longer than others

    @abstractmethod
    def begin(self) -> None:
        """Forgets what was read, at first and after an error; it raises as `look`."""

    @abstractmethod
    def look(self) -> State:
        """The parts of the state that may have changed.

        Raises:
            ConfigError: a file is damaged.
            OSError: a file has vanished.
        """

    def sections(self, template: str, **content: Any) -> dict[str, str]:
        """The sections of a page of the report, by their ids."""
        found = dict(_SECTION.findall(self.board.html(template, shell="sections.html", **content)))
        return {name: html for name, html in found.items() if name in self.contents}

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events: first the whole state, then what has changed of it."""
        self._browsers, known = self._browsers + 1, 0
        try:
            while True:
                number, news = self._number, self._news
                if known != number:
                    data = self._change if known and known == number - 1 else msgspec.json.encode({"all": self._state})
                    known = number
                    yield b"data: %s\n\n" % data
                await news.wait()
        finally:
            self._browsers -= 1

    async def keep_up(self) -> None:
        """Looks at the folder until no browser has shown it for a while."""
        while time.monotonic() - self.shown_at <= _KEPT_S:
            if self._browsers:
                self.shown_at = time.monotonic()
                if news := await asyncio.get_running_loop().run_in_executor(self.board.thread, self._look):
                    self._state, self._change = news
                    self._number += 1
                    self._news.set()
                    self._news = asyncio.Event()
            await asyncio.sleep(self._rest if self._browsers else _EVERY_S)

    def _look(self) -> tuple[State, bytes] | None:
        """The new state and the change that leads to it; None: nothing has changed. Called by the thread that reads."""
        began, error, least = time.thread_time(), "", _EVERY_S
        found: State = {}
        try:
            if not self._begun:
                self.begin()
                self._begun = True
            found = self.look()
        except (ConfigError, OSError) as trouble:  # it may be mended
            gone = not self.folder.is_dir()
            error, least = "This folder has been removed." if gone else str(trouble), _RETRY_S
        except Exception:
            _log.exception("the page of %s cannot be made", self.folder)
            error, least = "This page cannot be made; see what the server says.", 60.0
        state, news = {**self._state, **found, "error": error}, None
        if state != self._state:
            news = state, msgspec.json.encode({"change": difference(self._state, state)})
        cost = self._counts * (time.thread_time() - began)
        self._spent += cost
        if self.share < 1 and not error:
            self._rest = 0.0
        else:  # after an error, all of the folder is read again
            self._rest = max(least, (self._spent if error else cost - self.aside) / SHARE)
            self._spent, self._counts = 0.0, True
        self._begun = self._begun and not error
        return news


def routes(title: str, make: type[Page]) -> list[BaseRoute]:
    """The page of a folder, which asks for what it shows, and the answer: server-sent events."""
    address = f"/{title.lower()}-events/"

    def page(request: Request) -> Response:
        board, folder = board_of(request), folder_of(request)
        content: State = {"here": title, "contents": make.contents, "events": address + board.path(folder)}
        return board.page("live.html", folder=folder, data={}, **content)

    async def events(request: Request) -> Response:
        board = board_of(request)
        return board.stream(followed(board, make, folder_of(request)).events())

    return [Route(f"/{title.lower()}/" + "{path:path}", page), Route(address + "{path:path}", events)]


async def prepare(board: Board) -> None:
    """Begins to load what the first page of a run needs, which takes longer than its first part."""

    def load() -> None:
        board.templates.get_template("report.html")
        half_of_mean(2, 1.0)  # imports a part of scipy

    board.thread.submit(load)


def followed(board: Board, make: type[Page], folder: Path) -> Page:
    """The page of a folder, which is kept up from now on."""
    key, pages = (make, folder), board.pages
    shown: Page | None = pages.get(key)
    if shown is None or shown.task.done():  # a task that is done removes its page one turn of the loop later
        shown = pages[key] = make(board, folder)
        shown.task = asyncio.create_task(shown.keep_up())
        shown.task.add_done_callback(lambda task: pages.pop(key) if pages[key].task is task else None)
    shown.shown_at = time.monotonic()
    return shown


def difference(old: Any, new: Any) -> Any:
    """What makes `new` of `old`, as `live.js` understands it; None: they are equal.

    {"=": new}; of a list {"~": [first, last, items]}: all but the first and last so many are replaced; of an object, or
    a list of as many objects, {"&": {key or place: difference}, "-": [keys that are gone]}.
    """
    if old == new:
        return None
    are_lists = isinstance(old, list) and isinstance(new, list)
    if are_lists and len(old) == len(new) and all(isinstance(one, dict) for one in (*old, *new)):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        changed = {key: {"=": value} if key not in old else difference(old[key], value) for key, value in new.items()}
        changed = {key: value for key, value in changed.items() if value is not None}
        return {"&": changed, "-": [key for key in old if key not in new]}
    if are_lists and old:
        least = min(len(old), len(new))
        first = next((place for place in range(least) if old[place] != new[place]), least)
        last = next((place for place in range(least - first) if old[-1 - place] != new[-1 - place]), least - first)
        return {"~": [first, last, new[first : len(new) - last]]}
    return {"=": new}
