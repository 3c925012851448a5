"""Folders whose code may be run: watching and playing import the games and algorithms that a configuration names.

A person is asked once per folder, or per configuration of the folder of the start, and the answer is kept until the
server ends.
"""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from arena.board.board import board_of, folder_of, posted
from arena.diagnostics.start_folder import anchored

_MOST_CONFIGS = 200
_TRUSTED: set[Path] = set()


def trusted(home: Path) -> bool:
    """Whether the code of this folder, of one above it, or of this configuration may be run."""
    return any(place in _TRUSTED for place in (home, *home.parents))


def configs() -> dict[str, Path]:
    """The configurations of the folder of the start and its `configs`, by their names."""
    home = anchored(".")
    found = sorted({*home.glob("*.yaml"), *(home / "configs").glob("**/*.yaml")})
    return {str(path.relative_to(home)): path for path in found[:_MOST_CONFIGS]}


def config_of(name: str) -> Path:
    """The configuration of this name; HTTPException 404: there is none."""
    if (path := configs().get(name)) is None:
        raise HTTPException(404, f"There is no configuration {name!r:.200} where the board was started.")
    return path


async def _trust(request: Request) -> Response:
    """Trusts a folder, or the configuration `config`, then shows the page that has asked: `back`, of this server."""
    folder, fields = folder_of(request), await posted(request)
    back, config = fields.get("back", ""), fields.get("config")
    _TRUSTED.add(folder if config is None else config_of(config))
    own = back.startswith("/") and not back.startswith(("//", "/\\"))
    return RedirectResponse(back if own else f"/run/{board_of(request).path(folder)}", 303)


routes = [Route("/trust/{path:path}", _trust, methods=["POST"])]
