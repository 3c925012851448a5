"""The first page: all runs and experiments below the folder, from a few small files of each and ends of journals."""

from __future__ import annotations

import csv
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from arena.board.board import Board, board_of, kind_of
from arena.board.live import prepare
from arena.errors import ConfigError
from arena.experiment.folder import ExperimentFolder
from arena.experiment.scheduler import State
from arena.plan.plan import UNBOUNDED_TICKS
from arena.records import boundary
from arena.records.folder import RunFolder
from arena.records.lock import has_failed, is_left, is_locked
from arena.report.comparison import compared
from arena.report.page import shown
from arena.report.read_run import RewardLine, read_run
from arena.report.recorded import is_shown

_DEEPEST, _MOST = 4, 20_000  # folders below the root, and how many are looked at
_TAIL = 65_536  # bytes; a result of a league of a hundred players has 10,000
_AGAIN_S, _SHARE = 3.0, 0.01  # an open list asks again after so long, or the list takes this share of a core
_MOST_COMPARED = 30
_NUMBER = {name: re.compile(rf"^{name}: (\d+)$".encode(), re.MULTILINE) for name in ("ticks", "rounds")}


class _Row(msgspec.Struct):
    """What the list says of a folder; None: not known."""

    path: str  # in addresses
    name: str
    kind: str  # run or experiment
    state: str
    done: int | None = None  # ticks, or trials of an experiment
    planned: int | None = None
    rate: float | None = None  # ticks per second
    best: str = ""  # the best policy, or trial
    value: float | None = None
    measure: str = ""  # what `value` is
    policies: list[str] = []
    began: float | None = None  # seconds since 1970


class _Result(RewardLine, frozen=True):
    """What the list takes of a result."""

    done: bool = False
    ratings: dict[str, float | None] = {}


_decode = msgspec.json.Decoder(_Result).decode


def rows_of(board: Board) -> list[_Row]:
    """A row for each run and each experiment below the root, but for the trials of experiments."""
    return [row for folder, kind in _folders(board.root) if (row := _row(board, folder, kind)) is not None]


def _folders(root: Path) -> Iterator[tuple[Path, str]]:
    waiting, seen = [(root, 0)], 0
    while waiting and seen < _MOST:
        here, depth = waiting.pop()
        seen += 1
        if kind := kind_of(here):
            yield here, kind
        elif depth <= _DEEPEST:
            with suppress(OSError), os.scandir(here) as entries:  # it was removed, or may not be read
                inside = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
                waiting += [(here / name, depth + 1) for name in sorted(inside, reverse=True) if is_shown(name)]


def _row(board: Board, folder: Path, kind: str) -> _Row | None:
    """None: the folder has vanished."""
    row = _Row(board.path(folder), board.name(folder), kind, "damaged")
    try:
        _of_run(row, RunFolder(folder)) if kind == "run" else _of_experiment(row, ExperimentFolder(folder))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, RecursionError, csv.Error):  # the page of the folder says what is wrong
        pass
    return row


def _of_run(row: _Row, folder: RunFolder) -> None:
    text, row.began = folder.config.read_bytes(), folder.config.stat().st_mtime
    numbers = {name: int(found[1]) for name, pattern in _NUMBER.items() if (found := pattern.search(text))}
    if numbers.get("ticks", UNBOUNDED_TICKS) < UNBOUNDED_TICKS:
        row.planned = numbers["ticks"] * numbers.get("rounds", 1)
    results = [_decode(line) for line in _ends(folder.results)]
    row.done = max([boundary.newest_tick(folder) or 0, *(one.ticks for one in results)])
    over = bool(results and results[-1].done) or row.planned is None or row.done >= row.planned
    ended = "finished" if over else "killed" if is_left(folder.path) else "ended early"
    row.state = "under way" if is_locked(folder.path) else "failed" if has_failed(folder.path) else ended
    if results:
        first, last = results[0], results[-1]
        if last.time_total_s and first.time_total_s is not None:
            ticks, seconds = last.ticks - first.ticks, last.time_total_s - first.time_total_s
            row.rate = ticks / seconds if ticks > 0 and seconds > 0 else last.ticks / last.time_total_s
        ratings = next((one.ratings for one in reversed(results) if one.ratings), {})
        row.measure = "Elo" if ratings else "return"
        row.policies = sorted({name.partition("@")[0] for name in (*last.policy_reward_mean, *ratings)})
        for name, value in (ratings or last.policy_reward_mean).items():
            if value is not None and (row.value is None or value > row.value):
                row.best, row.value = name, value


def _of_experiment(row: _Row, folder: ExperimentFolder) -> None:
    row.began = folder.config.stat().st_mtime
    going = is_locked(folder.path)
    row.planned = sum(name.endswith(".jsonl") for name in os.listdir(folder.states))
    if folder.table.exists():
        with folder.table.open(encoding="utf-8", newline="") as file:
            row.done = sum(State(line["state"]).is_over for line in csv.DictReader(file))
    row.state = "under way" if going else "finished" if row.done == row.planned else "ended early"
    if folder.best.exists():
        best = msgspec.json.decode(folder.best.read_bytes(), type=dict[str, Any])
        row.best, row.value, row.measure = f"trial {best['trial']}", best["value"], "value"


def _ends(path: Path) -> list[bytes]:
    """Whole lines at the end of a journal: the first, the newest with ratings, which not all have, and the last."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        before = file.seek(max(0, path.stat().st_size - _TAIL))
        lines = [line for line in file if line.endswith(b"\n")][before > 0 :]
    return [*lines[:1], *[line for line in lines if b'"ratings"' in line][-1:], *lines[-1:]]


def _found(board: Board) -> dict[str, Any]:
    """The rows, and after how many seconds to ask again."""
    began = time.thread_time()
    rows = rows_of(board)
    again = max(_AGAIN_S, (time.thread_time() - began) / _SHARE)
    return {"rows": rows, "now": time.time(), "again": again}


def _page(request: Request) -> Response:
    board = board_of(request)
    page = board.page("runs.html", found=_found(board))
    page.background = BackgroundTask(prepare, board)  # while a person reads the list
    return page


def _list(request: Request) -> Response:
    return Response(msgspec.json.encode(_found(board_of(request))), media_type="application/json")


def _sizes(request: Request) -> Response:
    """The bytes of folders, by path; those of one that has vanished are 0."""
    board, found = board_of(request), {}
    for path in request.query_params.getlist("run")[:_MOST]:
        found[path] = 0
        for home, _, names in os.walk(board.folder(path)):
            for name in names:
                with suppress(OSError):
                    found[path] += os.lstat(os.path.join(home, name)).st_size
    return JSONResponse(found)


def _compare(request: Request) -> Response:
    """The page of several runs."""
    board, paths = board_of(request), request.query_params.getlist("run")
    if not 1 < len(set(paths)) == len(paths) <= _MOST_COMPARED:
        raise ConfigError(f"choose from 2 to {_MOST_COMPARED} runs to compare")
    data = compared([read_run(board.folder(path)) for path in paths])
    return board.page("comparison.html", data=data, **shown(data))


routes = [
    Route("/", _page),
    Route("/runs/list", _list),
    Route("/runs/sizes", _sizes),
    Route("/compare", _compare),
]
