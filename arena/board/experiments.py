"""The page of an experiment: that of the report, live, with parallel coordinates, and trials that can be ended."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from arena.board import live
from arena.board.board import board_of, folder_of, posted
from arena.experiment.folder import REQUEST_KINDS, ExperimentFolder, RequestKind
from arena.experiment.page import CONTENTS, parts
from arena.experiment.tables import FollowedExperiment
from arena.records.atomic import replacing
from arena.records.journal import file_stamp
from arena.report.page import shown

_PLACE = [*CONTENTS].index("trials")
_DRAWN = ("combinations", "curves", "metric", "trials", "labels", "logarithmic")  # what charts are drawn of


class LiveExperiment(live.Page):
    """The page of an experiment."""

    contents = dict([*[*CONTENTS.items()][:_PLACE], ("parallel", "Values together"), *[*CONTENTS.items()][_PLACE:]])

    def begin(self) -> None:
        self._folder = ExperimentFolder.existing(self.folder)
        self._seen: Any = None
        self._written: Any = None

    def look(self) -> live.State:
        folder, path = self._folder, self.board.path(self.folder)
        if self._written != (written := file_stamp(folder.config)):  # at first, or resumed with another configuration
            self._written, self._trials = written, FollowedExperiment(folder, folder.read_config())
        rows, going, requests = self._trials.look(), folder.is_going_on, dict(folder.requested())
        if self._seen == (seen := (self._written, rows, going, requests)):
            return {}
        data, context = parts(folder, self._trials, rows)
        context |= {
            "contents": self.contents,
            "runs": f"/run/{path}/trials/",
            "asks": f"/experiment-trial/{path}" if going else "",
            "asked": requests,
        }
        sections = self.sections("experiments.html", **shown(data), **context)
        self._seen = seen
        drawn = {name: getattr(data, name) for name in _DRAWN}
        return {"sections": sections, "data": msgspec.to_builtins(drawn)}


async def _ask(request: Request) -> Response:
    """Asks the process that drives the experiment to stop or to prune a trial, then shows the page."""
    path, fields = folder_of(request), await posted(request)
    number, kind = fields.get("trial", ""), fields.get("kind", "")
    if kind not in REQUEST_KINDS or re.fullmatch("[0-9]{1,9}", number) is None:
        raise HTTPException(400, "A trial can be asked to stop, or to be pruned.")
    await run_in_threadpool(_request, ExperimentFolder.existing(path), int(number), kind)
    return RedirectResponse(f"/experiment/{board_of(request).path(path)}#trials", 303)


def _request(folder: ExperimentFolder, number: int, kind: RequestKind) -> None:
    record = next((record for record in folder.read() if record.number == number), None)
    if record is None:
        raise HTTPException(404, f"There is no trial {number}.")
    if record.state.is_over:
        raise HTTPException(409, f"Trial {number} is over: it is {record.state.value}.")
    if not folder.is_going_on:
        raise HTTPException(409, "No process is at work in this experiment, which could end a trial.")
    with replacing(folder.request_path(number, kind)):
        pass  # an empty file


routes = [
    *live.routes("Experiment", LiveExperiment),
    Route("/experiment-trial/{path:path}", _ask, methods=["POST"]),
]
