"""One rank of a run: its resources are closed when it fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arena.config import parse_config
from arena.launch.rank import Rank
from arena.plan.build import make_plan
from arena.run.run import Run
from arena.run.stop import Stop

DATA = {
    "name": "test",
    "ticks": 20,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"]}],
}


class World:
    """All processes; keeps in `calls` what was called, in order."""

    rank = 0

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def split(self, color: int | None) -> None:
        return None


class Transport:
    """Connects to nothing."""

    def __init__(self, world: World, ranks: Any, *, shared_memory: bool) -> None:
        self._world = world

    def close(self) -> None:
        self._world.calls.append("close")


def test_transport_is_closed_if_the_roles_cannot_be_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("arena.launch.rank.RoleScheduler", no_memory)
    monkeypatch.setattr("arena.launch.rank.Console", SimpleNamespace)
    calls: list[str] = []
    mpi = SimpleNamespace(
        World=lambda *_, **__: World(calls),
        MpiTransport=Transport,
        world=lambda: None,
    )
    leader: Any = None
    with pytest.raises(MemoryError):
        Rank(mpi, leader, Stop())._host(Run(make_plan(parse_config(DATA, source="test")), tmp_path), None)
    assert calls == ["close"]
