"""The application of `arena board`, served in a thread for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn

from arena.board.app import application
from arena.board.board import board_at


class Served(NamedTuple):
    """A server: its address, as `http://127.0.0.1:8123`, and the key that its pages need."""

    address: str
    key: str

    def page(self, path: str) -> str:
        """The first address of a page."""
        return f"{self.address}{path}?key={self.key}"


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Serves a folder at a free port."""
    board = board_at(folder)
    config = uvicorn.Config(application(board), host="127.0.0.1", port=0, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "it could not start"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", board.key)
    finally:
        server.should_exit = True
        thread.join()
