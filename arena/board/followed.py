"""Pages that follow files: made once for all who have them open, and again when the files have changed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable
from pathlib import Path

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from arena.board.board import Board, board_of, folder_of
from arena.errors import ConfigError

_LOOK_S = 1.0  # between two looks at the files
_SHARE = 0.02  # of a core, which looking and making pages take at most
_MOST = 8  # pages that are kept
_RETRY_S = 3  # after which a browser asks again for a page that could not be made
_SIGN_S = 15.0  # after which a stream without news sends a comment


class FollowedPage:
    """The newest page of a folder.

    Args:
        stamp: equal as long as no file has changed; called from threads, one at a time.
        make: makes the page from its version, likewise.
    """

    def __init__(self, stamp: Callable[[], Hashable], make: Callable[[str], str]) -> None:
        self._stamp, self._make = stamp, make
        self._lock = threading.Lock()
        self._seen: Hashable = None
        self._until, self._text, self._version = 0.0, "", ""

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the files."""
        return time.monotonic() >= self._until

    def newest(self) -> tuple[str, str]:
        """The version of the page, which is new if a file has changed, and the page.

        Raises:
            ConfigError: a file is damaged.
            OSError: the folder is gone.
        """
        with self._lock:
            if self.is_due:
                began = time.thread_time()
                try:
                    found = self._stamp()
                    if found != self._seen or not self._version:
                        version = str(time.time_ns())
                        self._text = self._make(version)
                        self._seen, self._version = found, version
                finally:
                    self._until = time.monotonic() + max(_LOOK_S, (time.thread_time() - began) / _SHARE)
            return self._version, self._text


def followed(request: Request, kind: str, make: Callable[[Board, Path], FollowedPage]) -> FollowedPage:
    """The page of this kind of the folder that an address names; made if nobody has it open."""
    board, folder, state = board_of(request), folder_of(request), request.app.state
    pages: dict[tuple[str, Path], FollowedPage] = getattr(state, "followed", {})
    state.followed = pages
    found = pages.pop((kind, folder), None) or make(board, folder)
    pages[kind, folder] = found  # the last one that is forgotten
    while len(pages) > _MOST:
        pages.pop(next(iter(pages)))
    return found


def html(request: Request, kind: str, make: Callable[[Board, Path], FollowedPage]) -> Response:
    """The newest page as an answer; what is wrong with a folder that cannot be read, until it can be."""
    board = board_of(request)
    try:
        return HTMLResponse(followed(request, kind, make).newest()[1], headers={"Cache-Control": "no-store"})
    except (ConfigError, OSError) as error:  # it may be being written for the first time
        answer = board.page("message.html", status=422, text=str(error))
        answer.headers["Refresh"] = f"{_RETRY_S}"
        return answer


def events(request: Request, found: FollowedPage) -> Response:
    """Server-sent events: the version of a page when it changes, and what is wrong with its folder."""

    async def versions() -> AsyncIterator[bytes]:
        last, sent = b"", time.monotonic()
        while True:
            if found.is_due or not last:
                try:
                    news = {"version": (await run_in_threadpool(found.newest))[0], "error": ""}
                except (ConfigError, OSError) as error:  # it may be mended
                    news = {"version": "", "error": str(error)}
                if (event := b"data: %s\n\n" % msgspec.json.encode(news)) != last:
                    last, sent = event, time.monotonic()
                    yield event
            if time.monotonic() - sent > _SIGN_S:
                sent = time.monotonic()
                yield b": still here\n\n"
            await asyncio.sleep(_LOOK_S)

    return board_of(request).stream(versions())
