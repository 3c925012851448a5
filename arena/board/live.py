"""Runs that open pages show: each is read once, however many pages show it, and only changes travel.

One thread of low priority reads all of them, and makes their pages as `arena report` does. Reading takes at most
`SHARE` of a core in the long run: after a look that has cost a second of it, the next one waits. Only the first reading
of a long run goes on at once, part by part, so that its page fills from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from arena.board.board import Board
from arena.errors import ConfigError
from arena.report.charts import figures
from arena.report.colors import Colors
from arena.report.learning import stride
from arena.report.page import CONTENTS, shown, template_values
from arena.report.read_run import RunFiles, RunReader
from arena.report.sections import Rated, page_data, rated

SHARE = 0.02  # of a core; half of it for the ratings, which take longest
SECTIONS = {name: title for name, title in CONTENTS.items() if name != "replays"}  # which the page Watch shows
_EVERY_S, _RETRY_S, _KEPT_S, _SIGN_S = 1.0, 5.0, 60.0, 15.0
_PART = 2_000_000  # bytes of episodes that are read at once
_READING = 8  # times what the last page has cost, of processor time, before another one is made
_CLOCK_POINTS = 200
_OF_RATINGS = ("standings", "payoff", "meta-game")
_SECTION = re.compile(r'<section id="([\w-]+)">(.*?)</section>', re.DOTALL)
_log = logging.getLogger(__name__)

State = dict[str, Any]
"""What a page shows: `sections` as HTML, `figures`, `clocks`, `share` that was read, `error`, `state` of the run."""


class LiveRuns:
    """The runs that are shown, by folder."""

    def __init__(self, board: Board) -> None:
        self._board, self._runs = board, dict[Path, _LiveRun]()
        self._reader = ThreadPoolExecutor(1, "reader of runs", initializer=_be_nice)
        board.at_end.append(self._end)

    def follow(self, folder: Path, known: str) -> AsyncIterator[bytes]:
        """The events of a run for one page, whose newest one was `known`; empty: it has had none."""
        if folder not in self._runs:
            self._runs[folder] = run = _LiveRun(self._board, folder)
            run.task = asyncio.create_task(self._keep_up(run))
        return self._runs[folder].events(known)

    async def _keep_up(self, run: _LiveRun) -> None:
        """Looks at a run until no page has shown it for a while."""
        shown_at = time.monotonic()
        while True:
            if run.pages:
                shown_at = time.monotonic()
                news = await asyncio.get_running_loop().run_in_executor(self._reader, run.look)
                if news is not None:
                    run.publish(*news)
                await asyncio.sleep(run.rest)
            elif time.monotonic() - shown_at > _KEPT_S:
                break
            else:
                await asyncio.sleep(_EVERY_S)
        del self._runs[run.folder]

    async def _end(self) -> None:
        for run in self._runs.values():
            run.task.cancel()
        self._reader.shutdown(wait=False, cancel_futures=True)


class _LiveRun:
    """One run: what its pages show, and how it came about.

    Attributes:
        pages: how many show it.
        rest: seconds to wait before the next look.
    """

    task: asyncio.Task[None]

    def __init__(self, board: Board, folder: Path) -> None:
        self.folder, self.pages, self.rest = folder, 0, 0.0
        self._board, self._name, self._number = board, secrets.token_hex(4), 0
        self._state: State = {}
        self._change = b""
        self._news = asyncio.Event()
        # Of the thread that reads.
        self._reader: RunReader | None = None
        self._made: State = {}
        self._stamp: Any = None
        self._table: Rated | None = None
        self._table_stamp: Any = None
        self._table_at = self._page_at = 0.0
        self._warm = False

    async def events(self, known: str) -> AsyncIterator[bytes]:
        """Server-sent events: first the whole state, then what has changed of it."""
        self.pages += 1
        try:
            while True:
                number, news = self._number, self._news
                if self._state and known != (now := f"{self._name}.{number}"):
                    follows = known == f"{self._name}.{number - 1}"
                    data = self._change if follows else msgspec.json.encode({"all": self._state})
                    known = now
                    yield b"id: %s\ndata: %s\n\n" % (now.encode(), data)
                if number == self._number:
                    try:
                        await asyncio.wait_for(news.wait(), _SIGN_S)
                    except asyncio.TimeoutError:
                        yield b": still here\n\n"
        finally:
            self.pages -= 1

    def publish(self, state: State, change: bytes) -> None:
        """Tells all pages."""
        self._state, self._change = state, change
        self._number += 1
        self._news.set()
        self._news = asyncio.Event()

    def look(self) -> tuple[State, bytes] | None:
        """The new state and the change that leads to it; None: nothing has changed. Called by the thread that reads."""
        began, aside = time.thread_time(), 0.0
        try:
            self._reader = self._reader or RunReader(self.folder)
            files = self._reader.look(most=_PART)
            self.rest = _EVERY_S if self._reader.share == 1 else 0.0
            state, aside = self._state_of(files, self._reader.share)
        except (ConfigError, OSError) as error:  # it may be mended
            self._reader = self._table = self._stamp = None
            gone = not self.folder.is_dir()
            text = "The folder of this run has been removed." if gone else str(error)
            state, self.rest = {**self._made, "error": text}, _RETRY_S
        except Exception:
            _log.exception("the page of %s cannot be made", self.folder)
            state, self.rest = {**self._made, "error": "This page cannot be made; see what the server says."}, 60.0
        if state is None or state == self._made:
            return None
        change = msgspec.json.encode({"change": difference(self._made, state)})
        whole = state.get("figures") is not self._made.get("figures")
        self._made = state
        cost = time.thread_time() - began - aside
        if whole and not state["error"]:
            if state["share"] == 1 and self._warm:  # the first page of a process costs more than others
                self.rest = max(self.rest, cost / (SHARE / 2))
            self._warm |= state["share"] == 1
            self._page_at = time.thread_time() + _READING * cost
        return state, change

    def _state_of(self, files: RunFiles, share: float) -> tuple[State | None, float]:
        """The state, None if it would be the same; and the seconds that ratings have cost."""
        journals, now = files.journals, time.monotonic()
        stamp = journals.sizes, journals.going, files.boundary, [*files.sources]
        aged = self._table_stamp != stamp
        if share < 1 and time.thread_time() < self._page_at:
            return {**self._made, "share": round(share, 2)}, 0.0
        if share == 1 and stamp == self._stamp and not (aged and now >= self._table_at):
            return None, 0.0
        self._stamp = stamp if share == 1 else None
        rating = 0.0
        if share == 1 and aged and now >= self._table_at:
            began = time.thread_time()
            self._table, self._table_stamp = rated(files), stamp
            rating = time.thread_time() - began
            self._table_at = time.monotonic() + (rating / (SHARE / 2) if self._warm else _EVERY_S)
        data, colors = page_data(files, None, table=self._table or Rated(None, ())), Colors(files.config)
        content, drawn = shown(data, figures(data, colors))
        values = template_values(files, data, colors) | {"contents": SECTIONS}
        text = self._board.html("report.html", shell="sections.html", **content, **values)
        sections = dict(_SECTION.findall(text))
        if self._table is None:  # nothing is rated before all is read
            sections = {name: html for name, html in sections.items() if name not in _OF_RATINGS}
        state = {"sections": sections, "figures": drawn, "clocks": _clocks(files), "share": share, "error": ""}
        return state, rating


def _clocks(files: RunFiles) -> dict[str, dict[str, list[float]]]:
    """By policy, at some ticks, the samples and seconds of its updates; by "" the seconds of results."""
    found = {}
    for policy, rows in files.updates.clocks.items():
        ends = [*range((step := stride(len(rows), _CLOCK_POINTS)) - 1, len(rows) - 1, step), len(rows) - 1]
        found[policy] = dict(zip(("ticks", "samples", "seconds"), rows[ends].T.tolist(), strict=True))
    timed = [line for line in files.results if line.time_total_s is not None]
    step = stride(len(timed), _CLOCK_POINTS)
    if timed := [*timed[step - 1 : -1 : step], *timed[-1:]]:
        found[""] = {"ticks": [line.ticks for line in timed], "seconds": [line.time_total_s or 0.0 for line in timed]}
    return found


def difference(old: Any, new: Any) -> Any:
    """What makes `new` of `old`, as `run.js` understands it; None: they are equal.

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
