"""The root's ledger: how far all have come, from what is on record, what a repair has found, and what is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arena.config import parse_config
from arena.leg import Leg
from arena.memory import Standing
from arena.messages import Progress
from arena.plan import make_plan
from arena.records import boundary
from arena.records.boundary import Boundary
from arena.records.folder import RunFolder
from arena.records.journal import Journal, JournalReader
from arena.records.lines import EpisodeRecord, SeatRecord, UpdateRecord
from arena.records.recorder import Recorder
from arena.records.scoreboard import Scoreboard
from arena.roles.ledger import Ledger, updates_on_record
from arena.run import Run

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


def ledger_of(run: Run, **more: Any) -> tuple[Ledger, Recorder]:
    recorder = Recorder(run.folder, run.first_ticks)
    return Ledger(run, recorder, Scoreboard(run.plan.players()), counting=True, **more), recorder


def row(lane: int, number: int, tick: int, *, round: int = 0) -> EpisodeRecord:
    return EpisodeRecord(round, 0, "game", lane, number, tick, 5, True, False, SEATS)


def told(*rows: EpisodeRecord, tick: int) -> Progress:
    return Progress(0, tick, rows, last=True)


def on_record(run: Run) -> list[tuple[int, int]]:
    return [(line["lane"], line["episode"]) for line in JournalReader(run.folder.episodes)]


def update(number: int) -> UpdateRecord:
    return UpdateRecord("blue", number, 100 + number, 64, float(number), {"loss": 0.5})


def test_what_is_told_is_counted_and_written(run: Run) -> None:
    ledger, recorder = ledger_of(run)
    with recorder:
        ledger.progress(told(row(1, 0, 120), row(1, 1, 125), tick=130))
        ledger.update(update(3))
    assert ledger.standings() == {0: Standing(130, (0, 2))}
    assert (ledger.updates, ledger.seconds) == ({"blue": 3}, {"blue": 3.0})
    assert on_record(run) == [(1, 0), (1, 1)]


def test_a_ledger_that_is_opened_again_counts_the_episodes_of_its_round_and_lanes(run: Run) -> None:
    first, recorder = ledger_of(run)
    with recorder:
        first.progress(told(row(0, 4, 110), row(1, 7, 111), row(0, 8, 112, round=1), tick=120))
    fewer = make_plan(parse_config({**DATA, "matches": [{"env": "game", "seats": ["blue", "red"]}]}, source="test"))
    for plan, counts in ((run.plan, [5, 8]), (fewer, [5]), (replace(run.plan, round=1), [9, 0])):
        ledger, recorder = ledger_of(replace(run, plan=plan))
        with recorder:
            ledger.read()
        assert ledger.counts == {0: counts}


def test_of_what_a_repair_has_found_only_that_is_told_which_is_not_on_record(run: Run) -> None:
    found = tuple(row(0, number, 100 + number) for number in (5, 3, 4))
    ledger, recorder = ledger_of(replace(run, leg=Leg(start=100, recent=(*found, found[0]))))
    with recorder:
        ledger.recall({0: [4, 0]})
        for progress in ledger.found():
            ledger.progress(progress)
    assert ledger.counts == {0: [6, 0]}
    assert [line["episode"] for line in JournalReader(run.folder.episodes)] == [4, 5]


def test_updates_that_are_made_again_are_not_written_again(run: Run) -> None:
    ledger, recorder = ledger_of(run)
    ledger.pass_over({"blue": 4})
    with recorder:
        for number in (3, 4, 5):
            ledger.update(update(number))
    assert [line["update"] for line in JournalReader(run.folder.metrics)] == [5]
    assert ledger.updates == {"blue": 5}


def test_the_newest_updates_on_record_are_those_of_the_boundary_and_of_the_lines_after_it(run: Run) -> None:
    assert updates_on_record(run.folder) == {}
    journal = Journal(run.folder.metrics)
    journal.extend([{"policy": "blue", "update": 1}])
    journal.flush()
    written = boundary.journal_bytes(run.folder)
    boundary.save(run.folder, Boundary(tick=100, updates={"blue": 1, "red": 6}, journals=written))
    journal.extend([{"policy": "blue", "update": number} for number in (2, 3)])
    journal.close()
    assert updates_on_record(run.folder) == {"blue": 3, "red": 6}
