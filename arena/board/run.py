"""The page of a run, which grows while the run goes on."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arena.board.board import Tab, board_of, folder_of, is_run
from arena.board.live import SECTIONS, LiveRuns
from arena.records.folder import not_a_run

tab = Tab("Run", "/run/", is_run)


def _page(request: Request) -> Response:
    folder = folder_of(request)
    if not is_run(folder):
        raise not_a_run(folder)
    return board_of(request).report("run.html", {}, folder=folder, sections=SECTIONS)


async def _events(request: Request) -> Response:
    """What the page shows, as server-sent events."""
    board = board_of(request)
    runs = request.app.state.live_runs = getattr(request.app.state, "live_runs", None) or LiveRuns(board)
    known = request.headers.get("last-event-id", "")
    return board.stream(runs.follow(folder_of(request), known))


routes = [Route("/run/{path:path}", _page), Route("/run-events/{path:path}", _events)]
