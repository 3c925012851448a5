"""Pages that follow a folder: each is read once, however many browsers show it, and only changes travel.

One thread of low priority reads all of them. Reading a folder takes at most `SHARE` of a core in the long run: after a
look that has cost a second of it, the next one waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from arena.board.board import Board, Tab, board_of, folder_of
from arena.errors import ConfigError
from arena.league.ratings.intervals import half_of_mean

SHARE = 0.01  # of a core
_EVERY_S, _RETRY_S, _KEPT_S, _SIGN_S = 1.0, 5.0, 60.0, 15.0
_SECTION = re.compile(r'<section id="([\w-]+)">(.*?)</section>', re.DOTALL)
_log = logging.getLogger(__name__)

State: TypeAlias = dict[str, Any]
"""What a page shows: `sections` as HTML, `figures`, `error`; of a run also `clocks` and the `share` that was read."""


class Page(ABC):
    """Works out what the page of a folder shows. Of the thread that reads, as its constructor is.

    Attributes:
        contents: the ids of its sections and their titles.
        share: of the folder that was read; while it is less than 1, the next look follows at once.
        aside: seconds of processor time of the last look that do not count.
    """

    contents: Mapping[str, str]
    share, aside = 1.0, 0.0

    def __init__(self, board: Board, folder: Path) -> None:
        self.board, self.folder = board, folder

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


def routes(tab: Tab, make: type[Page]) -> list[BaseRoute]:
    """The page of a folder, which asks for what it shows, and the answer: server-sent events."""
    address = f"{tab.prefix.rstrip('/')}-events/"

    def page(request: Request) -> Response:
        board, folder = board_of(request), folder_of(request)
        content = {"here": tab.title, "contents": make.contents, "events": address + board.path(folder)}
        return board.report("live.html", {}, folder=folder, **content)

    async def events(request: Request) -> Response:
        board, key = board_of(request), (make, folder_of(request))
        return board.stream(board.one(_Live).followed(board, *key).events())

    return [Route(tab.prefix + "{path:path}", page), Route(address + "{path:path}", events)]


async def prepare(board: Board) -> None:
    """Begins to load what the first page of a run needs, which takes longer than its first part."""

    def load() -> None:
        board.templates.get_template("report.html")
        half_of_mean(2, 1.0)  # imports a part of scipy

    board.one(_Live).reader.submit(load)


class _Live(dict[tuple[type[Page], Path], "_Followed"]):
    """The pages that are shown, by what makes them and by folder."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.reader = ThreadPoolExecutor(1, "reader of folders", initializer=_be_nice)
        board.at_end.append(self._end)

    def followed(self, board: Board, make: type[Page], folder: Path) -> _Followed:
        """The page of a folder, which is kept up from now on."""
        key = make, folder
        shown = self.get(key)
        if shown is None or shown.task.done():  # a task that is done removes its page one turn of the loop later
            shown = self[key] = _Followed(board, make, folder)
            shown.task = asyncio.create_task(shown.keep_up(self.reader))
            shown.task.add_done_callback(lambda task: self.pop(key) if self[key].task is task else None)
        shown.shown_at = time.monotonic()
        return shown

    async def _end(self) -> None:
        for page in self.values():
            page.task.cancel()
        self.reader.shutdown(wait=False, cancel_futures=True)


class _Followed:
    """The page of one folder: what browsers show of it, and how it came about. `shown_at`: when one did."""

    task: asyncio.Task[None]
    shown_at = 0.0

    def __init__(self, board: Board, make: type[Page], folder: Path) -> None:
        self._browsers = self._number = 0  # how many show the page, and which state of it
        self._state: State = {}
        self._change = b""
        self._news = asyncio.Event()
        # Of the thread that reads.
        self._make, self._board, self._folder = make, board, folder
        self._page: Page | None = None
        self._rest = 0.0  # seconds to wait before the next look
        self._made: State = {}
        self._spent = 0.0  # seconds of processor time, since the last whole look
        self._counts = False  # whether looks count: the first whole one takes longer than others

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
                if number == self._number:
                    try:
                        await asyncio.wait_for(news.wait(), _SIGN_S)
                    except asyncio.TimeoutError:
                        yield b": still here\n\n"
        finally:
            self._browsers -= 1

    async def keep_up(self, reader: Executor) -> None:
        """Looks at the folder until no browser has shown it for a while."""
        while time.monotonic() - self.shown_at <= _KEPT_S:
            if self._browsers:
                self.shown_at = time.monotonic()
                if news := await asyncio.get_running_loop().run_in_executor(reader, self._look):
                    self._state, self._change = news
                    self._number += 1
                    self._news.set()
                    self._news = asyncio.Event()
            await asyncio.sleep(self._rest if self._browsers else _EVERY_S)

    def _look(self) -> tuple[State, bytes] | None:
        """The new state and the change that leads to it; None: nothing has changed. Called by the thread that reads."""
        began, error, least, page = time.thread_time(), "", _EVERY_S, self._page
        found: State = {}
        try:
            self._page = page = page or self._make(self._board, self._folder)
            found = page.look()
        except (ConfigError, OSError) as trouble:  # it may be mended
            gone = not self._folder.is_dir()
            error, least = "This folder has been removed." if gone else str(trouble), _RETRY_S
        except Exception:
            _log.exception("the page of %s cannot be made", self._folder)
            error, least = "This page cannot be made; see what the server says.", 60.0
        state, news = {**self._made, **found, "error": error}, None
        if state != self._made:
            news = state, msgspec.json.encode({"change": difference(self._made, state)})
            self._made = state
        cost = self._counts * (time.thread_time() - began)
        self._spent += cost
        if page is not None and page.share < 1 and not error:
            self._rest = 0.0
        else:  # after an error, all of the folder is read again
            aside = 0.0 if page is None else page.aside
            self._rest = max(least, (self._spent if error else cost - aside) / SHARE)
            self._spent, self._counts = 0.0, True
        if error:
            self._page = None
        return news


def difference(old: Any, new: Any) -> Any:
    """What makes `new` of `old`, as `live.js` understands it; None: they are equal.

    {"=": new}; of a list [{"~": [first, last, items]}: all but the first and last so many are replaced; of a list of
    objects {"#": {place: difference}}; of an object {"&": {key: difference}, "-": [keys that are gone]}.
    """
    if old == new:
        return None
    if isinstance(old, dict) and isinstance(new, dict):
        changed = {key: {"=": value} if key not in old else difference(old[key], value) for key, value in new.items()}
        changed = {key: value for key, value in changed.items() if value is not None}
        return {"&": changed, "-": [key for key in old if key not in new]}
    if isinstance(old, list) and isinstance(new, list) and old:
        if len(old) == len(new) and all(isinstance(one, dict) for one in (*old, *new)):
            pairs = enumerate(zip(old, new, strict=True))
            return {"#": {place: change for place, (a, b) in pairs if (change := difference(a, b)) is not None}}
        least = min(len(old), len(new))
        first = next((place for place in range(least) if old[place] != new[place]), least)
        last = next((place for place in range(least - first) if old[-1 - place] != new[-1 - place]), least - first)
        return {"~": [first, last, new[first : len(new) - last]]}
    return {"=": new}


def _be_nice() -> None:
    """Lets a run that needs all cores go first; Linux alone has a priority for each thread."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.nice(5)
