"""The server of the application, on this machine alone, until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from arena.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from arena.board.board import Board

HOST = "127.0.0.1"
PORT = 8000
_CLOSING_S = 1  # for answers that are being sent; streams have no end of their own


def serve(folder: Path | str, *, port: int, say: Callable[[str], None], page: str = "/", option: str = "--port") -> int:
    """Serves the runs and experiments in a folder until Ctrl-C; returns the exit status.

    Args:
        port: 0 takes any that is free.
        say: gets the address, with its key.
        page: which the address opens.
        option: names the port in errors.

    Raises:
        ConfigError: there is no such folder; the port is in use; or the extra `board` is not installed.
    """
    if missing := [package for package in ("starlette", "uvicorn") if find_spec(package) is None]:
        command = "pip install 'mpi-policy-arena[board]'"
        raise ConfigError(f"the pages need the extra `board` ({', '.join(missing)} is missing): {command}")
    from arena.board.app import application
    from arena.board.board import board_at

    board = board_at(folder)
    try:
        listener = socket.create_server((HOST, port), backlog=128)
    except OSError as error:
        why = f"{HOST}:{port} cannot be served: {error.strerror}"
        raise ConfigError(f"{why}; name another port, or 0 for any", path=option) from error
    port = listener.getsockname()[1]
    board.cookie = f"arena-board-{port}"
    server = server_of(application(board), board)
    say(f"http://{HOST}:{port}{page}?key={board.key} shows {folder}; Ctrl-C ends it")
    with listener, suppress(KeyboardInterrupt):
        server.run(sockets=[listener])
    return 0


def server_of(application: Starlette, board: Board) -> uvicorn.Server:
    """The server of an application, whose streams end with it."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            board.ending.set()
            await super().shutdown(sockets)

    return Server(
        uvicorn.Config(
            application,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSING_S,
        )
    )
