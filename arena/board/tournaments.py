"""The page of a tournament: the order with intervals, what undecided pairs still need, and the crosstable, live."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from arena.board import followed
from arena.board.board import Board, Tab
from arena.board.followed import FollowedPage
from arena.errors import ConfigError
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.lock import is_locked
from arena.report.colors import Colors
from arena.report.page import script_json, shown, template_values
from arena.report.read_run import JournalView, RunFiles, RunReader
from arena.report.sections import Rated, page_data, rated

tab = Tab("Tournament", "/tournament/", lambda folder: RunFolder(folder).tournament.is_file())

_CONTENTS = {"summary": "Tournament", "standings": "Order", "crosstable": "Crosstable"}


def unfinished(files: RunFiles) -> int:
    """The games of the batch that is played now: they count when it is over."""
    if (rated := files.rated_until) is None:
        return 0
    return int(np.count_nonzero((files.episodes.round > rated) & ~files.episodes.cut))


def _stamp(folder: RunFolder) -> Hashable:
    going = is_locked(folder.path)
    sizes = JournalView.of(folder, datetime.now(timezone.utc), going=going).sizes
    return going, boundary.newest_tick(folder), folder.config.stat().st_mtime_ns, tuple(sizes.values())


def _followed(board: Board, path: Path) -> FollowedPage:
    reader = RunReader(path)
    if not reader.folder.tournament.is_file():
        raise ConfigError("not a tournament: tournament.json is missing", source=str(path))
    tables: dict[int | None, Rated] = {}  # the newest one, by the newest batch that counts

    def make(version: str) -> str:
        files = reader.look()
        if files.rated_until not in tables:  # another batch is over, or nothing has been rated yet
            tables.clear()
            tables[files.rated_until] = rated(files, meta=False)
        data, colors = page_data(files, None, table=tables[files.rated_until]), Colors(files.config)
        content, charts = shown(data, {})
        context = template_values(files, data, colors) | {
            "contents": _CONTENTS,
            "run": f"/run/{board.path(path)}",
            "batches": None if files.rated_until is None else files.rated_until + 1,
            "unfinished": unfinished(files),
            "events": f"/tournament-events/{board.path(path)}",
            "version": version,
            "shell": "base.html",
            "layout": "",
            "charts_json": script_json(charts),
        }
        return board.html("tournaments.html", folder=path, **content, **context)

    return FollowedPage(lambda: _stamp(reader.folder), make)


def _page(request: Request) -> Response:
    return followed.html(request, "tournament", _followed)


async def _events(request: Request) -> Response:
    return followed.events(request, followed.followed(request, "tournament", _followed))


routes = [Route("/tournament/{path:path}", _page), Route("/tournament-events/{path:path}", _events)]
