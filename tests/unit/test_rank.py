"""One rank of a run: its resources are closed when it fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arena.config import parse_config
from arena.plan.build import make_plan
from arena.roles.run import Run
from arena.run.loop import Processes

DATA = {
    "name": "test",
    "ticks": 20,
    "envs": {"game": {"make": "touchdown"}},
    "policies": {"blue": {"algorithm": "random"}, "red": {"algorithm": "random"}},
    "matches": [{"env": "game", "seats": ["blue", "red"]}],
}


class World:
    """All processes; keeps in `calls` what was called, in order."""

    rank, size = 0, 4

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

    monkeypatch.setattr("arena.run.loop.RoleScheduler", no_memory)
    calls: list[str] = []
    run = Run(make_plan(parse_config(DATA, source="test")), tmp_path)
    team = Processes(SimpleNamespace(MpiTransport=Transport), World(calls))
    with pytest.raises(MemoryError), team.hosting(run):
        pass
    assert calls == ["close"]
