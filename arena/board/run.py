"""The page of a run: that of the report, which grows while the run goes on.

Only the first reading of a long run goes on at once, part by part, so that its page fills from the beginning. Ratings
take longest, and as much of a core as everything else: they may be older than the rest of the page.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from arena.board import live
from arena.board.live import SHARE, Page, State
from arena.report.colors import Colors
from arena.report.learning import thinned
from arena.report.page import CONTENTS, shown, template_values
from arena.report.read_run import RunFiles
from arena.report.sections import Rated, page_data, rated

_PART = 2_000_000  # bytes of episodes that are read at once
_READING = 8  # times what the last page has cost, of processor time, before another one is made of what was read
_CLOCK_POINTS = 200
_NOT_RATED = 0.99  # of the first page of a short run: it comes before the ratings
_RATING = '<header><h2>Standings</h2></header><p class="none">The players are being rated.</p>'
_DRAWN = ("summary", "policies", "learning", "results", "logged", "lengths", "evaluations", "exploitability", "time")
_OF_RATINGS = ("tournament", "standings", "payoff", "crosstable", "meta-game")


class RunPage(Page):
    """The page of a run."""

    contents = {name: title for name, title in CONTENTS.items() if name != "replays"}

    def begin(self) -> None:
        self._seen: Any = None
        self._rated: Any = None
        self._ratings = Rated()
        self._rate_at = self._page_at = 0.0

    def look(self) -> State:
        with self.board.reader(self.folder) as reader:
            files = reader.look(most=_PART)
            self.share = reader.share if self._page_at else min(reader.share, _NOT_RATED)
            self.aside, began = 0.0, time.thread_time()
            sizes = files.journals.sizes
            documents = files.terms, files.profile, files.exploitability
            stamp: Any = sizes, files.journals.going, files.boundary, documents, files.side_games
            games = stamp if files.terms is None else (files.rated_until, sizes.get(files.folder.human_games))
            rates = self.share == 1 and games != self._rated and time.monotonic() >= self._rate_at
            if self.share < 1 and began < self._page_at:
                return {"share": round(self.share, 2)}
            if self.share == 1 and stamp == self._seen and not rates:
                return {}
            self._seen = stamp if self.share == 1 else None
            if rates:
                self._ratings, is_first, self._rated = rated(files), self._rated is None, games
                self.aside = time.thread_time() - began
                self._rate_at = time.monotonic() + (0.0 if is_first else self.aside / SHARE)
            data, colors = page_data(files, None, ratings=self._ratings), Colors(files.config)
            values = template_values(files, data, colors) | {"contents": RunPage.contents}
            values["beside"] = f"{self.board.path(self.folder)}/evaluations/"
            sections = self.sections("report.html", **shown(data), **values)
            if self._rated is None:  # nothing is rated before all is read
                sections = {name: html for name, html in sections.items() if name not in _OF_RATINGS}
                sections["standings"] = _RATING
            self._page_at = time.thread_time() + _READING * (time.thread_time() - began)
            drawn = {name: getattr(data, name) for name in _DRAWN}
            if data.standings is not None:
                drawn["standings"] = {"curves": data.standings.curves, "meta": data.standings.meta}
            drawn["lineage"] = {name: getattr(data.lineage, name) for name in ("snapshots", "forks", "resets", "gates")}
            drawn = msgspec.to_builtins(drawn)
            return {"sections": sections, "data": drawn, "clocks": _clocks(files), "share": self.share}


def _clocks(files: RunFiles) -> dict[str, dict[str, list[float]]]:
    """By policy, at some ticks, the samples and seconds of its updates; by "" the seconds of results."""
    found = {}
    for policy, rows in files.updates.clocks.items():
        ends = thinned(range(len(rows)), _CLOCK_POINTS)
        found[policy] = dict(zip(("ticks", "samples", "seconds"), rows[ends].T.tolist(), strict=True))
    if timed := thinned([line for line in files.results if line.time_total_s is not None], _CLOCK_POINTS):
        found[""] = {"ticks": [line.ticks for line in timed], "seconds": [line.time_total_s or 0.0 for line in timed]}
    return found


routes = live.routes("Run", RunPage)
