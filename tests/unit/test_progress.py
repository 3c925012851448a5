"""Progress of a run: counting and recording reports, and scoring the episodes on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.records.folder import RunFolder
from arena.records.journal import JournalReader
from arena.records.metrics import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.protocol import Progress
from arena.roles.root.progress import RunProgress
from arena.roles.run import Leg, Run

DATA = {
    "name": "test",
    "ticks": 300,
    "rounds": 2,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "ppo"}, "red": {"algorithm": "ppo"}},
    "matches": [{"env": "game", "seats": ["blue", "red"], "lanes": 2}],
}
SEATS = (SeatRecord("blue", (0,), 1.0, "win"), SeatRecord("red", (1,), -1.0, "loss"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    folder = RunFolder.open(tmp_path / "run")
    return Run(make_plan(parse_config(DATA, source="test")), folder.path, leg=Leg(start=100))


def progress_of(run: Run) -> tuple[RunProgress, Recorder, Scoreboard]:
    recorder, scoreboard = Recorder(run.folder, run.first_ticks), Scoreboard(run.plan.players())
    return RunProgress(run, recorder, scoreboard), recorder, scoreboard


def row(lane: int, number: int, tick: int) -> EpisodeRecord:
    return EpisodeRecord(0, 0, "game", lane, number, tick, 5, True, False, SEATS)


def report(*rows: EpisodeRecord, tick: int) -> Progress:
    return Progress(0, tick, rows, last=True)


def on_record(run: Run) -> list[tuple[int, int]]:
    return [(line["lane"], line["episode"]) for line in JournalReader(run.folder.episodes)]


def update(number: int) -> UpdateRecord:
    return UpdateRecord("blue", number, 100 + number, 64, float(number), {"loss": 0.5})


def test_progress_counts_and_records_reports(run: Run) -> None:
    progress, recorder, scoreboard = progress_of(run)
    with recorder:
        progress.advance(report(row(1, 0, 120), row(1, 1, 125), tick=130))
        progress.update(update(3))
    assert progress.ticks == {0: 130}
    assert scoreboard.policies["blue"].episodes == 2
    assert (progress.updates, progress.seconds) == ({"blue": 3}, {"blue": 3.0})
    assert on_record(run) == [(1, 0), (1, 1)]


def test_progress_scores_the_episodes_on_record(run: Run) -> None:
    first, recorder, _ = progress_of(run)
    with recorder:
        first.advance(report(row(0, 4, 110), row(1, 7, 111), tick=120))
    progress, recorder, scoreboard = progress_of(run)
    with recorder:
        progress.load_scores()
    assert scoreboard.policies["blue"].episodes == 2
    assert progress.ticks == {0: 100}, "the leg begins at its boundary"
