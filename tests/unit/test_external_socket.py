"""Games over sockets: the contract, each frame, each refusal, limits, and clients that misbehave."""

from __future__ import annotations

from pathlib import Path

import pytest

from arena.external.socket import SocketGames
from arena.testing import check_external_games
from external_games import INTERFACE, entities_of, play_socket


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_sockets_keep_the_contract(kind: str, tmp_path: Path) -> None:
    address = "127.0.0.1:0" if kind == "tcp" else f"unix:{tmp_path / 'games'}"
    check_external_games(lambda: SocketGames(address, entities=entities_of(INTERFACE)), play_socket, limit_s=60.0)
