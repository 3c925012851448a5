"""Games whose number of units jumps between 0 and 20,000, over real links of every kind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from arena.records.journal import JournalReader
from run_cli import alone, episodes, finish, ranks_in, started, trained, wait_for


def duel(*, ticks: int = 10, most: int = 20_000, lanes: int = 2, copies: int = 2, **changes: Any) -> dict[str, Any]:
    """Two matches of two workers, which check that all units are their own and that actions are right."""
    match = {"env": "game", "seats": ["blue", "red"], "lanes": lanes, "copies": copies}
    match["pipeline"] = changes.pop("pipeline", 1)
    return {
        "name": "duel",
        "seed": 4,
        "ticks": ticks,
        "envs": {"game": {"make": "crowd:Crowd", "kwargs": {"most": most, "alone": True}}},
        "policies": {
            name: {"algorithm": "unit_workers:Noted", "options": {"mark": number + 1, "name": name}}
            for number, name in enumerate(("blue", "red"))
        },
        "matches": [match],
        **changes,
    }


def notes(folder: Path) -> list[str]:
    """Digests of each worker's observations and draws."""
    return sorted(path.read_text() for path in folder.glob("seen-*"))


def left(folder: Path, config: dict[str, Any], ranks: int) -> tuple[list[str], Any]:
    """The records of a run's workers, and its episodes."""
    run = trained(folder, config, ranks=ranks, NOTES_FOLDER=str(folder))
    return notes(folder), episodes(run)


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Any]:
    seen, lines = left(tmp_path_factory.mktemp("one"), duel(), 1)
    assert len(seen) == 4 and all(int(note.split()[1]) > 10**5 for note in seen) and len(lines) > 6
    return seen, lines


LINKS = {
    "3 ranks": (3, {}),
    "6 ranks": (6, {}),
    "messages in two blocks": (6, {"transport": "mpi", "pipeline": 2}),
    "two blocks": (1, {"pipeline": 2}),
    "messages": (3, {"transport": "mpi"}),
}
LONG = ("3 ranks", "6 ranks", "two blocks", "messages")


@pytest.mark.parametrize("link", [pytest.param(link, marks=[pytest.mark.long] * (link in LONG)) for link in LINKS])
def test_crowds_play_the_same_over_every_link(link: str, in_one_process: Any, tmp_path: Path) -> None:
    ranks, changes = LINKS[link]
    assert left(tmp_path, duel(**changes), ranks) == in_one_process


@pytest.mark.long
def test_a_killed_worker_of_a_crowd_is_replaced(tmp_path: Path) -> None:
    config, run = duel(ticks=120, most=200, checkpoint_every=20), tmp_path / "run"
    process = started(tmp_path, config)
    journal = run / "episodes.jsonl"
    wait_for(lambda: (journal.exists() and journal.stat().st_size > 4_000) or process.poll() is not None)
    os.kill(ranks_in(tmp_path)[3], signal.SIGKILL)
    ended = finish(process)
    assert ended.code == 0, ended.err
    assert [line["kind"] for line in JournalReader(run / "faults.jsonl")] == ["process"]
    assert episodes(run) == episodes(alone(tmp_path, config))
