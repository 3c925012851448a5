"""The page of a tournament: the order with intervals, what undecided pairs still need, and the crosstable, live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from arena.board import live
from arena.board.board import Board, Tab
from arena.board.run import RunPage
from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.report.read_run import RunFiles

tab = Tab("Tournament", "/tournament/", lambda folder: RunFolder(folder).tournament.is_file())


class TournamentPage(RunPage):
    """The page of a tournament, whose ratings change when a batch is over."""

    template, contents = "tournaments.html", {"summary": "Tournament", "standings": "Order", "crosstable": "Crosstable"}
    is_whole = False

    def __init__(self, board: Board, folder: Path) -> None:
        if not tab.shown(folder):
            raise ConfigError("not a tournament: tournament.json is missing", source=str(folder))
        super().__init__(board, folder)

    def values(self, files: RunFiles) -> dict[str, Any]:
        """Whose games count: how many batches of them, and the games of the batch that is played now."""
        episodes, last = files.episodes, files.rated_until
        newer = np.zeros(0) if last is None else (episodes.round > last) & ~episodes.cut
        return {
            "run": f"/run/{self.board.path(self.folder)}",
            "batches": None if last is None else last + 1,
            "unfinished": int(np.count_nonzero(newer)),
        }


routes = live.routes(tab, TournamentPage)
