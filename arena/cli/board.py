"""`arena board`: runs and experiments in a browser, served on this machine alone."""

from __future__ import annotations

import argparse
import socket
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from arena.cli.arguments import port as port_number
from arena.errors import ConfigError
from arena.terminal.output import say

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from arena.board.board import Board

HOST = "127.0.0.1"
PORT = 8000
_CLOSING_S = 1  # for answers that are being sent; streams have no end of their own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serves pages on this machine alone: all runs and experiments in a folder, live. The address that is printed "
        "has a key. Needs the extra `board`; Ctrl-C ends it."
    )
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="runs", help="where the runs are (default: runs)"
    )
    parser.add_argument(
        "--port", type=port_number, default=PORT, metavar="PORT", help=f"at which it listens (default: {PORT}; 0: any)"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until Ctrl-C; returns the exit status."""
    return serve(arguments.folder, port=arguments.port)


def serve(folder: Path | str, *, port: int, page: str = "/", option: str = "--port") -> int:
    """Serves the runs and experiments in a folder until Ctrl-C; returns the exit status.

    Args:
        port: 0 takes any that is free.
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
