"""External games over sockets and in environments that are polled, in whole runs; clients that are killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from arena.external.socket import SocketGames
from arena.game.api import Interface
from arena.records.journal import JournalReader
from external_connections import Playing, entities_of
from in_process import play
from line_client import client_process

LINE = Interface(("walker",), (Box(-1.0, 1e6, (1,), np.float32),), (Discrete(3),), (0,))


def config(make: str, ticks: int, **kwargs: Any) -> dict[str, Any]:
    return {
        "seed": 5,
        "ticks": ticks,
        "checkpoint_every": 70,
        "envs": {"live": {"make": make, "kwargs": kwargs}},
        "policies": {"blue": {"algorithm": "random"}},
        "matches": [{"env": "live", "seats": ["blue"], "lanes": 2}],
    }


@pytest.mark.slow
def test_clients_in_processes_of_their_own_play_a_run(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'socket'}"
    clients = [client_process(address, name, 6) for name in ("one", "other")]
    written = config("socket", 200, address=address, entities=entities_of(LINE))
    written["envs"]["live"]["external"] = {"min_asking": 2, "max_delay_s": 240.0}  # no client plays the run alone
    found = play(written, tmp_path)
    assert [process.communicate(timeout=60)[0] for process in clients] == ["over\n", "over\n"]
    assert len(found.episodes) > 20
    for line in found.episodes:
        assert (line["length"], line["seats"][0]["return"], line["seats"][0]["outcome"]) == (6, 15.0, "win")
    (*_, last) = JournalReader(found.folder.games)
    assert last["begun"] == last["ended"] + last["held"]
    (place,) = msgspec.json.decode(found.folder.external.read_bytes())
    assert (place["kind"], place["address"], place["slots"]) == ("socket", address, 2)


def test_a_polled_environment_plays_a_run(tmp_path: Path) -> None:
    found = play(config("external_connections:PolledLines", 200, games=2), tmp_path)
    lines = [(line["game"], line["length"], line["seats"][0]["return"]) for line in found.episodes]
    assert set(lines) == {("0", 5, 10.0), ("1", 5, 10.0)}
    assert len(lines) > 30


@pytest.mark.slow
def test_killed_clients_lose_their_games_alone() -> None:
    with Playing(SocketGames(entities=entities_of(LINE)), 4) as playing:
        clients = [client_process(playing.games.address, f"game{number}", 10**9) for number in range(4)]
        playing.until(lambda: playing.table.held == 4 and playing.table.counts.asks > 50)
        for process in clients[:3]:
            process.kill()
        playing.until(lambda: playing.table.counts.lost == 3)
        asks = playing.table.counts.asks
        playing.until(lambda: playing.table.counts.asks > asks + 20)
        assert sorted(game.lost for game in playing.finished) == ["lost"] * 3
        assert playing.table.held == 1
    for process in clients:
        process.communicate(timeout=60)
