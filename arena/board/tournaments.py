"""The page of a tournament: the order, what undecided pairs still need, and the crosstable, of the page of the run."""

from __future__ import annotations

from pathlib import Path

from arena.board import live
from arena.board.board import Board, Tab
from arena.board.run import RunPage
from arena.errors import ConfigError
from arena.records.folder import RunFolder
from arena.report.page import CONTENTS

tab = Tab("Tournament", "/tournament/", lambda folder: RunFolder(folder).tournament.is_file())


class TournamentPage(RunPage):
    """The page of a tournament, whose ratings change when a batch is over."""

    contents = {name: CONTENTS[name] for name in ("tournament", "standings", "crosstable")}
    is_whole = False

    def __init__(self, board: Board, folder: Path) -> None:
        if not tab.shown(folder):
            raise ConfigError("not a tournament: tournament.json is missing", source=str(folder))
        super().__init__(board, folder)


routes = live.routes(tab, TournamentPage)
