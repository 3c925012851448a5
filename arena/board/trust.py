"""Folders whose code may be run: watching and playing import the games and algorithms that a configuration names.

A person is asked once per folder, and the answer is kept until the server ends.
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from arena.board.board import board_of, folder_of, posted

_TRUSTED: set[Path] = set()


def trusted(folder: Path) -> bool:
    """Whether the code of this folder, or of one above it, may be run."""
    return any(place in _TRUSTED for place in (folder, *folder.parents))


def trust(folder: Path) -> None:
    """Trusts a folder until the server ends."""
    _TRUSTED.add(folder)


async def _trust(request: Request) -> Response:
    """Trusts a folder, then shows the page that has asked: `back`, an address of this server."""
    folder, back = folder_of(request), (await posted(request)).get("back", "")
    trust(folder)
    own = back.startswith("/") and not back.startswith(("//", "/\\"))
    return RedirectResponse(back if own else f"/run/{board_of(request).path(folder)}", 303)


routes = [Route("/trust/{path:path}", _trust, methods=["POST"])]
