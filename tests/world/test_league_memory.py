"""A league keeps only playing snapshots in memory, for any number on the disk."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arena.records import checkpoint
from arena.records.journal import JournalReader
from in_process import NOTES, one_match, train
from learners import LearnerWithActor

BYTES = 2**18
"""Of the weights."""


class Heavy(LearnerWithActor):
    """The first worker of policy `p0` records the memory allocated by Python when all ranks are ready."""

    def __init__(self, env: Any, group: Any, *, ticks: int) -> None:
        super().__init__(env, group, ticks=ticks)
        self.many = np.zeros(BYTES, np.uint8)

    def run(self) -> None:
        if self.group.policy == "p0" and self.group.is_root:
            gc.collect()
            NOTES.append(tracemalloc.get_traced_memory()[0])
        super().run()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "many": self.many}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.many = state["many"]


LEARNERS, KEPT, ROUNDS = 3, 3, 6
POLICIES = [f"p{number}" for number in range(LEARNERS)]


def league() -> dict[str, Any]:
    """Each learner meets itself or one of its past selves."""
    game = {"make": "matrix", "kwargs": {"game": "rock_paper_scissors"}}
    policies = {name: {"algorithm": "test_league_memory:Heavy"} for name in POLICIES}
    matches = [{"matchmaking": {"env": "game", "policies": POLICIES, "rule": "past_selves"}}]
    given = {"seed": 2, "rounds": ROUNDS, "checkpoint_every": 2, "league": {"snapshots": {"keep": KEPT}}}
    return one_match(game, policies, ticks=2, matches=matches, **given)


def loads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """All checkpoint files that are read whole from now on."""
    found: list[Path] = []
    load = checkpoint.load

    def noted(path: Path | checkpoint.StatePlace) -> checkpoint.Checkpoint:
        if not isinstance(path, checkpoint.StatePlace):
            found.append(path)
        return load(path)

    monkeypatch.setattr(checkpoint, "load", noted)
    return found


def test_only_playing_snapshots_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = loads(monkeypatch)
    tracemalloc.start()
    try:
        folder = train(league(), tmp_path / "run")
    finally:
        tracemalloc.stop()
    rounds = list(JournalReader(folder.rounds))
    joined, left = ([name for planned in rounds for name in planned[key]] for key in ("snapshots", "dropped"))
    assert len(joined) - len(left) == LEARNERS * KEPT == 9

    playing = [planned["players"] for planned in rounds]
    snapshots = [path for path in read if path.is_relative_to(folder.path / "snapshots")]
    assert sorted(snapshots) == sorted(
        folder.snapshot_path(player["policy"], player["tick"]) for players in playing for player in players.values()
    )
    held = [note for note in NOTES if isinstance(note, int)]
    assert len(held) == ROUNDS
    assert held[0] >= 2 * LEARNERS * BYTES, "the weights of all seats"
    assert max(held) - held[0] <= 8 * BYTES, "as much with 9 snapshots in the league as with none"
