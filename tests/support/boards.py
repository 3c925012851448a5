"""The board, served by a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arena.board.app import application
from arena.board.board import board_at
from arena.cli.board import HOST, server_of


class Served:
    """A board that answers.

    Attributes:
        home: its address without a key.
        key: which opens it.
        folder: that it shows.
    """

    def __init__(self, folder: Path, port: int, key: str) -> None:
        self.folder, self.home, self.key = folder, f"http://{HOST}:{port}", key

    def address(self, page: str = "/") -> str:
        """The address of a page, with the key."""
        return f"{self.home}{page}{'&' if '?' in page else '?'}key={self.key}"


@contextmanager
def board(folder: Path) -> Iterator[Served]:
    """Serves a folder."""
    found = board_at(folder)
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
        found.cookie = f"arena-board-{port}"
        server = server_of(application(found), found)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(folder, port, found.key)
        finally:
            server.should_exit = True
            thread.join()
