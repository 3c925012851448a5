"""The first page: all runs and experiments below the folder."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arena.board.board import board_of, kind_of


def _page(request: Request) -> Response:
    board = board_of(request)
    found = [folder for folder in [board.root, *sorted(board.root.iterdir())] if folder.is_dir() and kind_of(folder)]
    rows = [(board.path(folder), board.name(folder), kind_of(folder)) for folder in found]
    return board.page("runs.html", rows=rows)


routes = [Route("/", _page)]
