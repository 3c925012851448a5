"""The page of a run, which grows while the run goes on."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arena.board.board import Tab, board_of, folder_of, is_run

tab = Tab("Run", "/run/", is_run)


def _page(request: Request) -> Response:
    folder = folder_of(request)
    return board_of(request).page("run.html", folder=folder)


routes = [Route("/run/{path:path}", _page)]
