"""Plays a configuration in this process, for tests: the whole arena in threads."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from arena.config import parse_config
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.scoreboard import Scoreboard
from arena.roles.run import Run
from arena.roles.state import Display, RunState
from arena.run.evaluation import is_due
from arena.run.loop import in_one_process, run_single_process
from arena.run.prepare import prepare
from arena.terminal.display import PlainDisplay, silent_display

NOTES: list[Any] = []
"""What the players of the test that runs now have written down; `play` empties it."""


def one_match(
    env: Any, policies: Mapping[str, Any], *, ticks: int, seats: Sequence[Any] = (), match: Any = None, **more: Any
) -> dict[str, Any]:
    """A configuration of one match of the environment `game`, whose seats are the policies if no others are given."""
    return {
        "ticks": ticks,
        "envs": {"game": env},
        "policies": {**policies},
        "matches": [{"env": "game", "seats": [*(seats or policies)], **(match or {})}],
        **more,
    }


class Played:
    """The records of a run."""

    def __init__(self, run: Run, scoreboard: Scoreboard, shown: str = "") -> None:
        self.run = run
        self.scoreboard = scoreboard
        self.shown = shown
        self.folder = run.folder
        self.notes = list(NOTES)

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """The lines of episodes.jsonl, by match, lane and episode."""
        return sorted(JournalReader(self.folder.episodes), key=lambda e: (e["match"], e["lane"], e["episode"]))

    @property
    def updates(self) -> list[dict[str, Any]]:
        return list(JournalReader(self.folder.metrics))


def play(data: Mapping[str, Any], path: Path, *, resume: bool = False, given: bool = False, **changes: Any) -> Played:
    """Runs a configuration, given as the YAML would give it, below `path`; `changes` are fields of the `Run`."""
    NOTES.clear()
    config = parse_config({"name": "test", **data}, source="test")
    run = prepare(config, ranks=1, run_dir=str(path / "run") if resume or given else str(_next(path)), resume=resume)
    shown = io.StringIO()
    if run.concluded and not is_due(run):  # only the last result is missing; the command writes it
        return Played(run, Scoreboard(), "")
    state = RunState()
    try:
        in_one_process(replace(run, **changes), PlainDisplay(shown, total_ticks=1), state)
    finally:
        state.disconnect("over")
    return Played(run, state.scoreboard or Scoreboard(), shown.getvalue())


def train(
    data: Mapping[str, Any],
    path: Path,
    *,
    resume: bool = False,
    ranks: int = 1,
    code: int = 0,
    display: Display | None = None,
    **changes: Any,
) -> RunFolder:
    """Plays all rounds in the folder `path`, laid out for `ranks`, as `arena train` does, to the exit status `code`."""
    NOTES.clear()
    config = parse_config({"name": "test", **data}, source="test")
    run = replace(prepare(config, ranks=ranks, run_dir=str(path), resume=resume), **changes)
    assert run_single_process(run, lambda *_: None, display or silent_display()) == code
    return run.folder


def _next(path: Path) -> Path:
    number = len(list(path.glob("run*")))
    return path / ("run" if number == 0 else f"run-{number}")
