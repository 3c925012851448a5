"""Games whose number of units jumps between 0 and 20,000, over real links of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from in_process import one_match
from run_cli import episodes, trained


def duel(**changes: Any) -> dict[str, Any]:
    """Two matches of two workers, which check that all units are their own and that actions are right."""
    policies = {
        name: {"algorithm": "unit_workers:Noted", "options": {"mark": number + 1, "name": name}}
        for number, name in enumerate(("blue", "red"))
    }
    match = {"lanes": 2, "copies": 2, "pipeline": changes.pop("pipeline", 1)}
    game = {"make": "crowd:Crowd", "kwargs": {"most": 20_000, "alone": True}}
    return one_match(game, policies, ticks=10, match=match, name="duel", seed=4) | changes


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
    "messages in two blocks": (6, {"transport": "mpi", "pipeline": 2}),
}


@pytest.mark.parametrize("link", [pytest.param(link, marks=[pytest.mark.long] * (link == "3 ranks")) for link in LINKS])
def test_crowds_play_the_same_over_every_link(link: str, in_one_process: Any, tmp_path: Path) -> None:
    ranks, changes = LINKS[link]
    assert left(tmp_path, duel(**changes), ranks) == in_one_process
